// The Store: a root that is written, and read-only layers under it.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <utility>

#include "core/sha256.hpp"
#include "core/text.hpp"
#include "store/atomic_file.hpp"
#include "store/place.hpp"
#include "store/record_json.hpp"
#include "store/store.hpp"

namespace disttune::store {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t k_lock_patience_ns = 5'000'000'000;

/// One a folder: a lock is held for a moment, and more files would be in everybody's way.
fs::path lock_file(const fs::path& folder) { return folder / ".lock"; }

fs::path file_in(const fs::path& root, std::string_view name, std::string_view digest) {
  return root / core::safe_name(name) / fmt::format("{}.json", digest);
}

/// Moves a damaged record aside unless somebody is just replacing it; whoever saves holds the lock
/// and sees the damage himself.
std::string move_damaged(const fs::path& file, const Reading& seen, const RecordKey& key) {
  const FileLock lock(lock_file(file.parent_path()), 0);
  if (!lock.held()) return fmt::format("damaged: {}", seen.reason);
  const Reading now = read_record_file(file, key);
  if (now.condition != Condition::damaged || now.inode != seen.inode)
    return fmt::format("damaged: {}; it has been replaced meanwhile", seen.reason);
  const MovedAside moved = move_aside(file, "damaged");
  return moved.error ? fmt::format("damaged: {}; {}", seen.reason, moved.error.text)
                     : fmt::format("damaged: {}; moved to {}", seen.reason, moved.to.string());
}

/// Adds what one root knows to `out`, whose tunings so far count more.
void take(Record record, const fs::path& file, bool layer, Lookup& out) {
  if (!out.record) {
    out.record = std::move(record);
    out.from_layer = layer;
    if (layer) out.file = file;
  } else if (!layer) {
    merge_tunings(out.record->tunings, std::move(record.tunings));
  } else {
    // A layer adds the environments that those above do not know; its dates never outrank theirs.
    std::vector<TuningRecord>& tunings = out.record->tunings;
    for (TuningRecord& t : record.tunings) {
      const auto same = std::ranges::find(tunings, t.deps, &TuningRecord::deps);
      if (same == tunings.end() && tunings.size() < k_most_tunings) tunings.push_back(std::move(t));
    }
  }
}

/// Reads one key in one root.
void load_from(const fs::path& file, const RecordKey& key, bool layer, Lookup& out) {
  // Before the record: whoever merges writes the record first and removes these afterwards, so in
  // this order nothing can slip through between the two.
  std::vector<std::string> notes;
  std::vector<Beside> beside = read_beside(file, key, notes);
  for (const std::string& note : notes) out.notes.push_back({note, note});
  Reading reading = read_record_file(file, key);
  std::string problem;
  std::string cause;
  switch (reading.condition) {
    case Condition::good:
      take(std::move(*reading.record), file, layer, out);
      break;
    case Condition::missing:
      break;
    case Condition::damaged:
      problem = layer ? "damaged: " + reading.reason : move_damaged(file, reading, key);
      break;
    case Condition::foreign:
      problem = "left alone: " + reading.reason;
      break;
    case Condition::unreadable:
      problem = "cannot be read: " + reading.reason;
      cause = core::unreadable_cause(file.parent_path().parent_path().string(), reading.reason);
      break;
  }
  for (Beside& b : beside) take(std::move(b.record), file, layer, out);
  if (problem.empty()) return;
  std::string text = fmt::format("{}: {}", file.string(), problem);
  if (cause.empty()) cause = text;
  out.notes.push_back({std::move(text), std::move(cause)});
  if (out.reason.empty()) out.reason = std::move(problem);
}

bool is_there(const fs::path& file) {
  struct ::stat about {};
  return file_calls().stat(file.c_str(), &about) == 0;
}

std::string joined(const std::string& a, const std::string& b) {
  if (a.empty()) return b;
  return b.empty() ? a : a + "; " + b;
}

/// Whether a second place in the same folder would fail in the same way.
bool is_hopeless(int code) noexcept {
  return code == ENOSPC || code == EDQUOT || code == EROFS || code == EACCES || code == EPERM ||
         code == ENOTDIR;
}

/// What a save does: a new record needs no lock, an old one is merged under it; else beside it.
///
/// Nothing is lost: only who holds the lock replaces a record, and only one that he has read under
/// it. Where there is none, everybody publishes without replacing, locked or not; who comes second
/// meets the first one's record and merges.
class Saving {
 public:
  Saving(const Record& record, fs::path file) : m_record(record), m_file(std::move(file)) {}

  Saved run() {
    if (std::optional<Saved> saved = as_new()) return *saved;
    const FileLock lock(lock_file(m_file.parent_path()), k_lock_patience_ns);
    if (lock.held()) return locked();
    // The lock may be somebody's who lets others write beside him only.
    const int code = lock.error().code;
    if (is_hopeless(code) && code != EACCES) return {{}, lock.error().text};
    return write_beside(unique_suffix().substr(1), std::nullopt, lock.error().text);
  }

 private:
  /// `base` with the new tuning in front, in place of one with equal deps.
  [[nodiscard]] std::string on_top_of(const std::optional<Record>& base) const {
    const TuningRecord& newest = m_record.tunings.front();
    std::vector<const TuningRecord*> tunings{&newest};
    Record out{m_record.name, m_record.module, m_record.key, {}, m_record.extra};
    if (base) {
      merge_extra(out.extra, base->extra);
      for (const TuningRecord& t : base->tunings)
        if (t.deps != newest.deps) tunings.push_back(&t);
    }
    std::string text = write_record_of(out, tunings);
    if (text.size() > k_largest_record && tunings.size() > 1) {
      tunings.resize(1);
      text = write_record_of(out, tunings);
    }
    if (text.size() > k_largest_record)
      throw StoreError(
          fmt::format("the record has {} bytes, and more than {} would not be read: "
                      "kept in memory only",
                      text.size(), k_largest_record));
    return text;
  }

  static void absorb(std::optional<Record>& into, Record record) {
    if (!into) {
      into = std::move(record);
      return;
    }
    merge_extra(into->extra, record.extra);
    merge_tunings(into->tunings, std::move(record.tunings));
  }

  /// Nothing: there is something to merge with, or the file system cannot publish in this way.
  std::optional<Saved> as_new() {
    if (is_there(m_file) || is_there(beside_folder(m_file))) return std::nullopt;
    const FileError error = create_atomically(m_file, on_top_of(std::nullopt));
    if (!error) return Saved{m_file, {}};
    if (is_hopeless(error.code)) return Saved{{}, error.text};
    return std::nullopt;
  }

  Saved locked() {
    for (int attempt = 0; attempt < 2; ++attempt)
      if (std::optional<Saved> saved = into_record(false)) return *saved;
    // The name is taken, and yet there is nothing to read: a link that leads nowhere.
    return *into_record(true);
  }

  /// Nothing, unless `replace`: where no record was, there is one now.
  std::optional<Saved> into_record(bool replace) {
    const Value& deps = m_record.tunings.front().deps;
    Reading there = read_record_file(m_file, m_record.key, &deps);
    std::vector<std::string> notes;
    const std::vector<Beside> beside = read_beside(m_file, m_record.key, notes);
    for (const Beside& b : beside) absorb(there.record, b.record);
    if (there.condition == Condition::foreign || there.condition == Condition::unreadable)
      return all_beside(beside, there.record, there.reason);
    if (there.condition == Condition::damaged) {
      const MovedAside moved = move_aside(m_file, "damaged");
      if (moved.error) return all_beside(beside, there.record, moved.error.text);
      m_problem = fmt::format("{} was damaged ({}) and is now {}", m_file.string(), there.reason,
                              moved.to.string());
    }
    replace |= there.condition == Condition::good;
    const std::string text = on_top_of(there.record);
    FileError error = replace ? write_atomically(m_file, text) : create_atomically(m_file, text);
    if (!replace && error.code == EEXIST) return std::nullopt;
    // Where nobody can publish without replacing, nobody does so without the lock.
    if (error.code == EOPNOTSUPP) error = write_atomically(m_file, text);
    if (!error) {
      remove(beside, {});
      return Saved{m_file, m_problem};
    }
    if (is_hopeless(error.code)) return Saved{{}, joined(m_problem, error.text)};
    return all_beside(beside, there.record, joined(m_problem, error.text));
  }

  /// Under the lock, but not into the record: one file takes the place of all others beside it.
  Saved all_beside(const std::vector<Beside>& others, const std::optional<Record>& base,
                   const std::string& why) {
    Saved out = write_beside("merged", base, why);
    if (!out.file.empty()) remove(others, out.file);
    return out;
  }

  Saved write_beside(const std::string& stem, const std::optional<Record>& base,
                     const std::string& why) {
    const fs::path file = beside_folder(m_file) / (stem + ".json");
    const std::string text = on_top_of(base);
    FileError error = write_atomically(file, text);
    // Somebody merged, and removed the folder between its making and its use.
    if (error.code == ENOENT) error = write_atomically(file, text);
    if (error) return {{}, joined(why, error.text)};
    return {file, fmt::format("{}; saved beside it as {}", why, file.string())};
  }

  void remove(const std::vector<Beside>& merged, const fs::path& but) const {
    for (const Beside& b : merged)
      if (b.file != but) (void)file_calls().unlink(b.file.c_str());
    if (!merged.empty()) remove_beside_folder(m_file);
  }

  const Record& m_record;
  fs::path m_file;
  std::string m_problem;  ///< of a record that was moved aside
};

std::uint64_t parse_id(const FileContent& content) {
  if (content.state != FileState::read) return 0;
  std::string_view text = content.text;
  if (text.empty() || text.back() != '\n') return 0;
  text.remove_suffix(1);
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool valid = error == std::errc{} && end == text.data() + text.size() && id >> 63 == 0;
  return valid ? id : 0;
}

std::uint64_t find_or_make_id(const fs::path& root) {
  const fs::path file = root / ".id";
  constexpr std::size_t k_most = 64;
  for (int attempt = 0; attempt < 3; ++attempt) {
    FileContent content = read_file(file, k_most);
    if (const std::uint64_t id = parse_id(content)) return id;
    if (content.state == FileState::unreadable) return 0;
    if (content.state != FileState::missing) {
      const FileLock lock(lock_file(root), k_lock_patience_ns);
      if (!lock.held()) return 0;
      content = read_file(file, k_most);
      if (const std::uint64_t id = parse_id(content)) return id;
      if (content.state != FileState::missing && move_aside(file, "damaged").error) return 0;
    }
    const std::string text = fmt::format("{}\n", random_number());
    FileError error = create_atomically(file, text);
    if (error.code == EOPNOTSUPP) error = write_atomically(file, text);
    if (error && error.code != EEXIST) return 0;
  }
  return parse_id(read_file(file, k_most));
}

}  // namespace

Store::Store(std::optional<fs::path> root, std::vector<fs::path> layers)
    : m_root(std::move(root)), m_layers(std::move(layers)) {}

fs::path Store::folder(std::string_view name) const {
  return m_root ? *m_root / core::safe_name(name) : fs::path();
}

fs::path Store::file(std::string_view name, const RecordKey& key) const {
  return m_root ? file_in(*m_root, name, core::sha256_hex(key.text().text())) : fs::path();
}

Lookup Store::load(std::string_view name, const RecordKey& key) const noexcept {
  Lookup out;
  try {
    const std::string digest = core::sha256_hex(key.text().text());
    if (m_root) {
      out.file = file_in(*m_root, name, digest);
      load_from(fs::path(out.file), key, false, out);
    }
    for (const fs::path& layer : m_layers) load_from(file_in(layer, name, digest), key, true, out);
    if (out.record) {
      out.reason.clear();
    } else if (out.reason.empty()) {
      out.reason = m_root || !m_layers.empty() ? "no record" : "no record: memory only";
    }
  } catch (const std::exception& e) {
    out.record.reset();
    try {
      out.reason = e.what();
    } catch (const std::exception&) {
      // Out of memory: a miss without words.
    }
  }
  return out;
}

Saved Store::save(const Record& record) const noexcept {
  try {
    if (!m_root)
      return {{},
              "there is no home folder to store in: kept in memory only; set "
              "TRITON_DIST_AUTOTUNE_HOME"};
    if (record.tunings.empty()) return {{}, "the record holds no tuning"};
    return Saving(record, file(record.name, record.key)).run();
  } catch (const std::exception& e) {
    try {
      return {{}, e.what()};
    } catch (const std::exception&) {
      return {};
    }
  }
}

std::uint64_t Store::id() const noexcept {
  if (!m_root) return 0;
  try {
    return find_or_make_id(*m_root);
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace disttune::store
