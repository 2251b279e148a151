// The measuring part of a cold call: prepare, check, then selector ⇄ stopwatch ⇄ reduction until
// decided. Everything it learns goes into the field's records.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agree/agreement.hpp"
#include "disttune/detail/attempt.hpp"
#include "measure/stopwatch.hpp"
#include "session/field.hpp"
#include "session/settings.hpp"
#include "session/tuning.hpp"
#include "store/journal.hpp"

namespace disttune::session {

/// What a measuring is about; references outlive it.
struct Assignment {
  const detail::LauncherSpec& launcher;
  const Settings& settings;
  const Device& device;
  const Stream& stream;
  Field& field;
  detail::Attempt& attempt;
  store::Journal& journal;
  agree::Agreement& agreement;
  std::optional<std::size_t> incumbent;  ///< field index of the stored winner, measured again
  bool one_at_a_time = false;            ///< a process died while it prepared several candidates
};

struct Measured {
  std::optional<std::size_t> winner;  ///< field index
  double prepare_seconds = 0;
  double measure_seconds = 0;
  std::string gate;
  bool ungated = false;  ///< the device has a gate and the launcher defeated it
  bool out_of_budget = false;
  bool throttled = false;                ///< the device was too hot or short of power at the end
  bool contended = false;                ///< another process was tuning on the device
  double own_median_ns = -1;             ///< of the winner, on this rank
  std::vector<RankMedian> rank_medians;  ///< of the winner, with a group
};

/// Visits the field's open candidates. Failing candidates are results; DeviceLost, errors of the
/// group and what is no std::exception pass.
[[nodiscard]] Measured measure_field(const Assignment& assignment);

}  // namespace disttune::session
