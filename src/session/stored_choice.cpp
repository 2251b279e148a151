#include "session/stored_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace disttune::session {
namespace {

const TuningRecord* tuning_for(const Record& record, const Value& deps, const Settings& settings,
                               std::string& why, std::vector<std::string>& differences) {
  const TuningRecord* newest = nullptr;
  for (const TuningRecord& t : record.tunings) {
    if (settings.checked && !t.checked) {
      why = "tuned without a check of results, and this launcher has one";
      continue;
    }
    differences = store::deps_differences(t.deps, deps);
    if (differences.empty()) return &t;
    if (newest == nullptr) newest = &t;
  }
  if (newest == nullptr) {
    if (why.empty()) why = "the record holds no tuning";
    return nullptr;
  }
  differences = store::deps_differences(newest->deps, deps);
  if (settings.environment.version_check) {
    why = fmt::format("versions differ (VERSION_CHECK): {}", fmt::join(differences, "; "));
    return nullptr;
  }
  return newest;
}

}  // namespace

std::optional<StoredChoice> choose(const Record& record, const Value& deps,
                                   const Settings& settings, const Field& field, std::string& why) {
  StoredChoice choice;
  const TuningRecord* tuning = tuning_for(record, deps, settings, why, choice.differences);
  if (tuning == nullptr) return std::nullopt;
  choice.tuning = *tuning;

  std::vector<bool> known(field.size(), false);
  std::vector<std::pair<double, std::size_t>> valid;
  for (const CandidateRecord& c : tuning->candidates) {
    const auto at = field.find(c.config.identity());
    if (!at) continue;
    known[*at] = !(c.status == Status::crashed && settings.environment.retry_crashed);
    if (c.status != Status::ok || !c.score_ns) continue;
    const bool won = tuning->winner && *tuning->winner == c.config.identity();
    valid.emplace_back(won ? -std::numeric_limits<double>::infinity() : *c.score_ns, *at);
  }
  std::ranges::sort(valid);
  for (const auto& [score, at] : valid) choice.ranking.push_back(at);
  for (std::size_t i = 0; i < field.size(); ++i)
    if (!known[i]) choice.unknown.push_back(i);
  if (choice.ranking.empty()) {
    why = "none of the record's valid candidates is in the configuration space now";
    return std::nullopt;
  }
  return choice;
}

}  // namespace disttune::session
