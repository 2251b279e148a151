// One key's files in one root: the record itself, and the folder `.beside/<digest>` with what could
// not be merged into it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "disttune/record.hpp"

namespace disttune::store {

/// Larger files are not read: no tuning writes one.
inline constexpr std::size_t k_largest_record = std::size_t{64} << 20;

enum class Condition {
  good,
  missing,
  damaged,    ///< whatever it is, it is no record of this key: may be moved aside
  foreign,    ///< another version's or tool's: left where it is
  unreadable  ///< it may be good, but not for us, or not now: left where it is
};
struct Reading {
  Condition condition = Condition::missing;
  std::optional<Record> record;
  std::string reason;       ///< for all but `good`
  std::uint64_t inode = 0;  ///< of the file read
};
/// Reads one file and compares the full key; leaves out the tuning under the deps `but`.
[[nodiscard]] Reading read_record_file(const std::filesystem::path& file, const RecordKey& key,
                                       const Value* but = nullptr);

/// ".beside/<digest>" in the record's folder, for what could not be merged into `file`. Nearly
/// always there is no ".beside" at all, so a look-up asks in vain once, in a small folder, however
/// many records there are.
[[nodiscard]] std::filesystem::path beside_folder(const std::filesystem::path& file);
/// Removes it and ".beside", as far as they are empty.
void remove_beside_folder(const std::filesystem::path& file);
struct Beside {
  std::filesystem::path file;
  Record record;
};
/// The good records in `file`'s beside folder, newest first; what is wrong with others is a note.
[[nodiscard]] std::vector<Beside> read_beside(const std::filesystem::path& file,
                                              const RecordKey& key,
                                              std::vector<std::string>& notes);

/// Adds the tunings of `more` to `into`, newest first, at most eight. Of two with equal deps the
/// later created stays; of two created in the same second that in `more`.
void merge_tunings(std::vector<TuningRecord>& into, std::vector<TuningRecord> more);
/// Adds the unknown fields of `more` that `into` lacks (both JSON objects).
void merge_extra(std::string& into, const std::string& more);

}  // namespace disttune::store
