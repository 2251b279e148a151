// The candidates of one cold call: the launcher's distinct entries, each with what became of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "disttune/detail/attempt.hpp"
#include "disttune/record.hpp"

namespace disttune::session {

class Field {
 public:
  /// Equal entries of the space are one candidate, at the place of the first.
  explicit Field(std::span<const Config> space);

  [[nodiscard]] std::size_t size() const noexcept { return m_records.size(); }
  /// Place in the launcher's space.
  [[nodiscard]] std::size_t space_index(std::size_t i) const noexcept { return m_index[i]; }
  [[nodiscard]] const Config& config(std::size_t i) const noexcept { return m_records[i].config; }
  [[nodiscard]] std::optional<std::size_t> find(const Value& identity) const;
  /// Entries of the space that equal an earlier one.
  [[nodiscard]] std::size_t duplicates() const noexcept { return m_duplicates; }

  [[nodiscard]] std::vector<CandidateRecord>& records() noexcept { return m_records; }
  [[nodiscard]] const std::vector<CandidateRecord>& records() const noexcept { return m_records; }
  void end(std::size_t i, Status status, std::string reason);
  /// Asks prune_fn about every candidate once, in order. What it throws passes.
  void prune(detail::Attempt& attempt);

  /// Who is still to be measured: status `skipped` and no reason.
  [[nodiscard]] std::vector<std::size_t> open() const;
  [[nodiscard]] bool is_open(std::size_t i) const noexcept {
    return m_records[i].status == Status::skipped && m_records[i].reason.empty();
  }
  /// "no valid configuration for 'f': …" with every candidate and its reason.
  [[nodiscard]] std::string failure_text(std::string_view function) const;

 private:
  std::vector<std::size_t> m_index;
  std::vector<CandidateRecord> m_records;
  std::unordered_map<Value, std::size_t> m_by_identity;
  std::size_t m_duplicates = 0;
};

}  // namespace disttune::session
