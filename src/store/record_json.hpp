// The parts of the record format that the store needs beyond `write_record` and `read_record`
// (store.hpp). The schema is docs/record.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "disttune/error.hpp"
#include "store/store.hpp"

namespace disttune::store {

inline constexpr std::string_view k_schema_name = "disttune.record";
inline constexpr std::int64_t k_schema_version = 1;
/// Schema and summary end within this many bytes of a file.
inline constexpr std::size_t k_head_bytes = 4096;
inline constexpr std::size_t k_most_tunings = 8;

/// A record of another version of the schema, or a file of the original tool: not ours to judge,
/// to move or to replace.
class OtherFormat : public StoreError {
 public:
  using StoreError::StoreError;
};

/// A file of the original tool (original_format.hpp).
class OriginalFormat : public OtherFormat {
 public:
  using OtherFormat::OtherFormat;
};

/// As read_record, without the tuning under the deps `but` (nullptr: with all): a save that
/// replaces it has no use for it. The record may be left without tunings.
[[nodiscard]] Record read_record_but(std::string_view json, const Value* but);

/// The summary at the beginning of a file. Nothing when it is not there, not ours, cut, or had to
/// be shortened: then the whole file must be read. `file` is left empty.
[[nodiscard]] std::optional<Summary> read_head(std::string_view beginning);

/// What the summary says of a record whose newest tuning is `newest`.
[[nodiscard]] Summary summary_of(const Record& record, const TuningRecord& newest);

/// As write_record, with these tunings (newest first) instead of the record's own, which need not
/// be copied together to be saved.
[[nodiscard]] std::string write_record_of(const Record& record,
                                          std::span<const TuningRecord* const> tunings);

/// The candidate with this identity, or nullptr.
[[nodiscard]] const CandidateRecord* find_candidate(const TuningRecord& tuning,
                                                    const Value& identity) noexcept;

}  // namespace disttune::store
