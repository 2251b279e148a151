// Seconds as people write them, in the count of nanoseconds that clocks keep.
#pragma once

#include <algorithm>
#include <chrono>

namespace disttune::core {

/// Some thirty years: this many nanoseconds fit into their count, and so does now plus that many.
inline constexpr double k_longest_seconds = 1e9;

/// `seconds` in nanoseconds, from 0 to the longest; 0 for what is no number. The plain conversion
/// of what does not fit would be undefined.
[[nodiscard]] inline std::chrono::nanoseconds in_nanoseconds(double seconds) noexcept {
  if (!(seconds > 0)) return {};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(seconds, k_longest_seconds)));
}

}  // namespace disttune::core
