// The steady state: time one callable as a tuning would, but thoroughly.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "disttune/device.hpp"
#include "disttune/group.hpp"
#include "disttune/record.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

struct MeasureOptions {
  int warmup = 5;                            ///< untimed runs, ≥ 0
  int repeat = 50;                           ///< timed runs, ≥ 1
  std::string cache = "hot";                 ///< "hot" or "cold"
  std::string timer = "auto";                ///< "auto", "device", "host" or "graph"
  std::function<std::int64_t()> clock = {};  ///< a clock of the caller's, nanoseconds
  Stream stream = {};                        ///< where the work goes; none: the host
  ProcessGroup* group = nullptr;  ///< all its ranks call together; samples are their maximum
};

/// Nanoseconds. With a group all ranks hold the same numbers, except host_ns.
struct Measurement {
  std::vector<std::int64_t> samples_ns;  ///< sample by sample the slowest rank's
  std::vector<std::int64_t> host_ns;     ///< this rank's host time of the same runs
  double median_ns = 0;
  double mean_ns = 0;                    ///< of the middle half
  double spread_ns = 0;                  ///< 1.4826 × median absolute deviation
  std::vector<RankMedian> rank_medians;  ///< one a rank
  int slowest_rank = 0;
  std::string gate = "none";  ///< how the stream was held closed while work was queued
};

/// Runs `run` warmup + repeat times. What it throws passes. With a group: on all ranks or none,
/// like a collective; a rank that throws is announced to the others (PeerFailed there).
/// std::invalid_argument for counts or names out of range.
[[nodiscard]] Measurement measure(const std::function<void()>& run,
                                  const MeasureOptions& options = {});

DISTTUNE_NAMESPACE_END
