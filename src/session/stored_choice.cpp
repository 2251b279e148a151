#include "session/stored_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "observe/observe.hpp"

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
    const bool won = tuning->winner && *tuning->winner == c.config.identity();
    if (c.status != Status::ok || (!won && !c.score_ns)) continue;
    valid.emplace_back(won ? -std::numeric_limits<double>::infinity() : *c.score_ns, *at);
  }
  std::ranges::sort(valid);
  for (const auto& [score, at] : valid) choice.ranking.push_back(at);
  for (std::size_t i = 0; i < field.size(); ++i)
    if (!known[i]) choice.unknown.push_back(i);
  if (choice.ranking.empty()) {
    why = "none of the record's measured candidates is in the configuration space now";
    return std::nullopt;
  }
  return choice;
}

std::vector<CandidateRecord> take_over(const StoredChoice& stored, std::size_t best, Field& field) {
  const auto keeps = [&](std::size_t i) {
    return i != best && field.records()[i].status != Status::pruned &&
           std::ranges::find(stored.unknown, i) == stored.unknown.end();
  };
  std::vector<CandidateRecord> lacking;
  for (const CandidateRecord& c : stored.tuning.candidates) {
    const auto at = field.find(c.config.identity());
    if (!at)
      lacking.push_back(c);
    else if (keeps(*at))
      field.records()[*at] = c;
  }
  // A candidate that an earlier budget left out has status `skipped`: give it a reason to stay out.
  for (std::size_t i = 0; i < field.size(); ++i)
    if (keeps(i) && field.is_open(i))
      field.end(i, Status::skipped, "not measured by the stored tuning");
  return lacking;
}

void leave_out_crashed(const store::Remains& left, Field& field) {
  for (const auto& crash : left.crashed)
    if (const auto at = field.find(crash.candidate); at && field.is_open(*at))
      field.end(*at, Status::crashed,
                fmt::format("a process died while it ran ({}); "
                            "TRITON_DIST_AUTOTUNE_RETRY_CRASHED=1 tries it again",
                            crash.what));
}

void warn_of_versions(std::string_view name, const std::vector<std::string>& differences,
                      std::string_view where) {
  if (differences.empty()) return;
  observe::message(
      Level::warning,
      fmt::format(
          "disttune: '{}': the stored choice was tuned under other versions ({}); it is used all "
          "the same (TRITON_DIST_AUTOTUNE_VERSION_CHECK=1 tunes again): {}",
          name, fmt::join(differences, "; "), where),
      fmt::format("deps {} {}", name, where));
}

}  // namespace disttune::session
