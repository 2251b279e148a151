#include "store/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/fork.hpp"
#include "core/text.hpp"
#include "store/atomic_file.hpp"
#include "store/journal_format.hpp"
#include "store/json_text.hpp"
#include "store/process_id.hpp"

namespace disttune::store {

namespace fs = std::filesystem;

/// The journals with a candidate at hand, for the end of the process.
struct Journal::AtHand {
  std::mutex mutex;
  std::vector<Impl*> journals;

  static AtHand& all() {
    static auto& it = *new core::PerProcess<AtHand>;
    return it.get();
  }
  void note_end() noexcept;
};

struct Journal::Impl {
  Impl(fs::path record_file, const Value& key_text, const Value& policy)
      : record(std::move(record_file)),
        key(key_text),
        policy_text(policy),
        owner(core::fork_count()) {
    static const int registered = std::atexit([] { AtHand::all().note_end(); });
    static_cast<void>(registered);
    AtHand& all = AtHand::all();
    const std::lock_guard lock(all.mutex);
    all.journals.push_back(this);
  }
  ~Impl() {
    AtHand& all = AtHand::all();
    const std::lock_guard lock(all.mutex);
    std::erase(all.journals, this);
    close_file();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] bool is_mine() const noexcept { return core::fork_count() == owner; }

  /// Opens the file at the first note. Its lock tells other journals of this process that it is in
  /// use; a name that is taken gets a number.
  bool open() {
    if (fd >= 0) return true;
    if (broken) return false;
    broken = true;  // until proven otherwise
    const ProcessId process = this_process();
    const FileCalls& calls = file_calls();
    constexpr int k_flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    for (int n = 1; n < 100; ++n) {
      file = journal_file(record, process, n);
      int opened = calls.open(file.c_str(), k_flags, 0666);
      if (opened < 0 && errno == ENOENT && !make_folders(file.parent_path()))
        opened = calls.open(file.c_str(), k_flags, 0666);
      if (opened < 0) return false;
      if (calls.flock(opened, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        (void)calls.close(opened);
        continue;
      }
      fd = opened;
      broken = false;
      pending = journal_header(key, policy_text, process);
      return true;
    }
    return false;
  }

  /// One write a note. After a failed or short one nothing more is written: what follows half a
  /// line could not be read.
  void write(std::string_view line) {
    if (!is_mine() || !open()) return;
    pending += line;
    const ssize_t written = file_calls().write(fd, pending.data(), pending.size());
    if (written != static_cast<ssize_t>(pending.size())) {
      close_file();
      broken = true;
    }
    pending.clear();
  }

  void close_file() noexcept {
    // A child forked meanwhile has the descriptor too; closing ours would not release the lock.
    if (fd >= 0 && is_mine()) (void)file_calls().flock(fd, LOCK_UN);
    if (fd >= 0) (void)file_calls().close(fd);
    fd = -1;
  }

  fs::path record;
  Value key;
  Value policy_text;
  std::uint64_t owner;  ///< the process, by its fork_count
  fs::path file;
  int fd = -1;
  bool broken = false;
  std::string pending;  ///< the header, until the first note takes it along
  std::optional<Value> current;
  std::thread::id runner;  ///< of the candidate at hand
  std::mutex mutex;        ///< held by a note
};

void Journal::AtHand::note_end() noexcept {
  const std::unique_lock lock(mutex, std::try_to_lock);  // who holds it will not end any more
  if (!lock) return;
  for (Impl* journal : journals) {
    const std::unique_lock noting(journal->mutex, std::try_to_lock);
    if (!noting || !journal->current || journal->runner == std::this_thread::get_id()) continue;
    try {
      journal->write(interrupted_line(*journal->current));
      journal->current.reset();
    } catch (const std::exception&) {
      journal->broken = true;
    }
  }
}

Journal::Journal(const fs::path& record_file, const Value& key_text, const Value& policy) noexcept {
  try {
    if (!record_file.empty()) m_impl = std::make_unique<Impl>(record_file, key_text, policy);
  } catch (const std::exception&) {
    m_impl = nullptr;  // no memory for a journal: the tuning goes on without
  }
}

Journal::~Journal() = default;

void Journal::note(const std::string& line) noexcept {
  if (!m_impl) return;
  const std::lock_guard lock(m_impl->mutex);
  try {
    m_impl->write(line);
  } catch (const std::exception&) {
    m_impl->broken = true;
  }
}

void Journal::preparing() noexcept { note(prepare_line("begin")); }
void Journal::prepared() noexcept { note(prepare_line("end")); }

void Journal::begin(const Value& candidate) noexcept {
  if (!m_impl) return;
  const std::lock_guard lock(m_impl->mutex);
  try {
    m_impl->current = candidate;
    m_impl->runner = std::this_thread::get_id();
    m_impl->write(begin_line(candidate));
  } catch (const std::exception&) {
    m_impl->broken = true;
  }
}

void Journal::end(const Value& candidate, Status status, std::string_view reason,
                  std::span<const std::int64_t> samples_ns) noexcept {
  if (!m_impl) return;
  const std::lock_guard lock(m_impl->mutex);
  try {
    if (m_impl->current == candidate) m_impl->current.reset();
    m_impl->write(end_line(candidate, status, reason, samples_ns));
  } catch (const std::exception&) {
    m_impl->broken = true;
  }
}

void Journal::interrupted() noexcept {
  if (!m_impl) return;
  const std::lock_guard lock(m_impl->mutex);
  if (!m_impl->current) return;
  try {
    const Value candidate = *std::exchange(m_impl->current, std::nullopt);
    m_impl->write(interrupted_line(candidate));
  } catch (const std::exception&) {
    m_impl->broken = true;
  }
}

void Journal::close(bool keep) noexcept {
  if (!m_impl) return;
  if (!keep && m_impl->is_mine() && !m_impl->file.empty() && (m_impl->fd >= 0 || m_impl->broken))
    (void)file_calls().unlink(m_impl->file.c_str());
  m_impl = nullptr;
}

}  // namespace disttune::store
