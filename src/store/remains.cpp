// What dead processes left about a key (journal.hpp).
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "core/text.hpp"
#include "store/atomic_file.hpp"
#include "store/journal.hpp"
#include "store/journal_format.hpp"
#include "store/process_id.hpp"

namespace disttune::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_largest_journal = std::size_t{64} << 20;
/// A journal that nobody has written to for this long was left behind, wherever its process was.
constexpr std::int64_t k_silence_seconds = 600;

struct Found {
  fs::path file;
  std::int64_t written_ns = 0;  ///< since the epoch
};

std::vector<Found> find_journals(const fs::path& record_file) {
  const std::string prefix = journal_prefix(record_file);
  std::vector<Found> out;
  std::error_code error;
  for (fs::directory_iterator it(record_file.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    if (!it->path().filename().native().starts_with(prefix)) continue;
    struct ::stat about {};
    if (file_calls().stat(it->path().c_str(), &about) != 0) continue;
    out.push_back({it->path(), about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec});
  }
  std::ranges::sort(out, {}, [](const Found& f) { return std::pair(f.written_ns, f.file); });
  return out;
}

bool is_silent(const Found& found) {
  using namespace std::chrono;
  const std::int64_t now_ns =
      duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
  return now_ns - found.written_ns > k_silence_seconds * 1'000'000'000;
}

/// Whether a Journal of this process still writes to the file.
bool is_in_use(const fs::path& file) {
  const FileCalls& calls = file_calls();
  const int fd = calls.open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (fd < 0) return true;
  const bool locked = calls.flock(fd, LOCK_EX | LOCK_NB) != 0;
  (void)calls.close(fd);
  return locked;
}

enum class Owner { lives, died, this_process };

Owner owner_of(const Found& found, const ProcessId& process, const ProcessId& self) {
  if (process == self) return is_in_use(found.file) ? Owner::lives : Owner::this_process;
  if (is_visible(process)) return is_alive(process) ? Owner::lives : Owner::died;
  return is_silent(found) ? Owner::died : Owner::lives;
}

void add(Remains& out, JournalContent journal, Owner owner) {
  const auto is_ended = [&](const Value& candidate) {
    return std::ranges::find(journal.ended, candidate) != journal.ended.end();
  };
  // It ended for a process that began after the crash. One that ran beside it, another rank of the
  // same job, proves nothing.
  std::erase_if(out.crashed, [&](const Remains::Crash& c) {
    return c.at < journal.at && is_ended(c.candidate);
  });
  for (Remains::Measured& measured : journal.measured) {
    std::erase_if(out.measured,
                  [&](const Remains::Measured& m) { return m.candidate == measured.candidate; });
    out.measured.push_back(std::move(measured));
  }
  if (owner != Owner::died) return;
  out.died_preparing |= journal.preparing;
  if (!journal.begun) return;
  const Value& candidate = journal.begun->candidate;
  std::erase_if(out.crashed, [&](const Remains::Crash& c) { return c.candidate == candidate; });
  out.crashed.push_back({candidate, journal.begun->at,
                         fmt::format("host {}, process {}, {}", journal.process.host,
                                     journal.process.pid, journal.begun->at)});
}

void read_one(const Found& found, const Value& key_text, const Value& policy, const ProcessId& self,
              Remains& out) {
  FileContent content = read_file(found.file, k_largest_journal);
  if (content.state != FileState::read) return;
  std::optional<JournalContent> journal = read_journal(content.text, policy);
  if (!journal) {
    // Not even its owner can be read. It may be one that is being begun.
    if (is_silent(found)) out.files.push_back(found.file);
    return;
  }
  if (journal->key != key_text.text()) return;
  const Owner owner = owner_of(found, journal->process, self);
  if (owner == Owner::lives) return;
  // It may have ended since the reading, and has then said its last word, or decided the key.
  content = read_file(found.file, k_largest_journal);
  if (content.state != FileState::read) return;
  journal = read_journal(content.text, policy);
  if (!journal || journal->key != key_text.text()) return;
  out.files.push_back(found.file);
  add(out, std::move(*journal), owner);
}

}  // namespace

Remains read_remains(const fs::path& record_file, const Value& key_text,
                     const Value& policy) noexcept {
  Remains out;
  try {
    if (record_file.empty()) return out;
    const std::vector<Found> journals = find_journals(record_file);
    if (journals.empty()) return out;
    const ProcessId self = this_process();
    for (const Found& found : journals) read_one(found, key_text, policy, self, out);
    for (const Remains::Crash& crash : out.crashed)
      std::erase_if(out.measured,
                    [&](const Remains::Measured& m) { return m.candidate == crash.candidate; });
  } catch (const std::exception&) {
    out = {};
  }
  return out;
}

void remove_files(const Remains& left) noexcept {
  for (const fs::path& file : left.files) {
    std::error_code ignored;
    fs::remove(file, ignored);
  }
}

}  // namespace disttune::store
