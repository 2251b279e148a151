// Estimators for samples in nanoseconds. Pure; none modifies its input.
#pragma once

#include <cstdint>
#include <span>

namespace disttune::core {

/// Mean of the middle half (a quarter cut at each end, with fractional weights at the cuts), the
/// score of `fixed`. Robust against single outliers, less wasteful than the median. `samples` not
/// empty.
[[nodiscard]] double middle_half_mean(std::span<const std::int64_t> samples);
/// Median; the mean of the two middle ones for an even count. `samples` not empty.
[[nodiscard]] double median(std::span<const std::int64_t> samples);
/// 1.4826 × median absolute deviation from the median: a robust standard deviation.
[[nodiscard]] double robust_deviation(std::span<const std::int64_t> samples);

}  // namespace disttune::core
