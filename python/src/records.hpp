// Records and explanations for Python: configurations are shown as the caller's own objects where
// the launcher still has them.
#pragma once

#include "object.hpp"

#include <memory>
#include <unordered_map>

#include "disttune/record.hpp"

namespace disttune::python {

/// Identity of a candidate → its entry (a dict of ours).
using LiveEntries = std::unordered_map<Value, Ref>;

struct ShownRecord {
  Record record;
  std::shared_ptr<const LiveEntries> live;
};
struct ShownTuning {
  TuningRecord tuning;
  std::shared_ptr<const LiveEntries> live;
};
struct ShownCandidate {
  CandidateRecord candidate;
  std::shared_ptr<const LiveEntries> live;
};
struct ShownExplanation {
  Explanation explanation;
  std::shared_ptr<const LiveEntries> live;
};

/// A new dict: the caller's entry, else names with values made from the text. Throws ErrorSet.
[[nodiscard]] Ref shown_config(const Config& config, const LiveEntries* live);

[[nodiscard]] Ref wrap(ShownRecord record);
[[nodiscard]] Ref wrap(ShownExplanation explanation);

}  // namespace disttune::python
