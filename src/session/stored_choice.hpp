// What a stored record offers a call whose candidates, versions and checks may have changed since.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "disttune/record.hpp"
#include "session/field.hpp"
#include "session/settings.hpp"
#include "store/journal.hpp"

namespace disttune::session {

/// Why a record that is there does not serve.
inline constexpr std::string_view k_always_tune = "ALWAYS_TUNE is set";
inline constexpr std::string_view k_all_refused =
    "every valid candidate of the record is refused by the prune function now";

struct StoredChoice {
  TuningRecord tuning;
  /// Candidates of the call that the record found valid, the winner first, then by score.
  std::vector<std::size_t> ranking;
  /// Candidates that the record does not know (or that are to be tried again).
  std::vector<std::size_t> unknown;
  /// The environment differs in these fields, "field: stored → now"; the record serves all the
  /// same.
  std::vector<std::string> differences;
};

/// Nothing (with the reason in `why`) when no tuning of the record may serve.
[[nodiscard]] std::optional<StoredChoice> choose(const Record& record, const Value& deps,
                                                 const Settings& settings, const Field& field,
                                                 std::string& why);

/// An incremental tuning: every candidate that is not pruned keeps what the stored tuning knows of
/// it, except `best`, which is measured again beside those that are new. Returns the stored
/// candidates that the space lacks now.
[[nodiscard]] std::vector<CandidateRecord> take_over(const StoredChoice& stored, std::size_t best,
                                                     Field& field);

/// A candidate in flight when a process died is not tried again.
void leave_out_crashed(const store::Remains& left, Field& field);

/// Once for each `where` (a file, a key): the choice serves though the environment differs in these
/// fields; nothing when there are none.
void warn_of_versions(std::string_view name, const std::vector<std::string>& differences,
                      std::string_view where);

}  // namespace disttune::session
