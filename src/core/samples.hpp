// The sample block: what measuring fills, agreement reduces and a selector reads.
//
// One flat block of int64 a batch: the timed runs of its visits in order, nanoseconds each, then
// `k_trailer` words: the nanoseconds spent so far (for budgets) and the weakest timing mode in use.
// A run that failed holds a status code, larger than any time, so that MAX over ranks lets the
// worst failure win; a run to be taken again holds a retry code, between times and failures.
#pragma once

#include <cstddef>
#include <cstdint>

#include "disttune/record.hpp"
#include "disttune/selector.hpp"

namespace disttune::core {

[[nodiscard]] constexpr std::int64_t sample_of(Status status) noexcept {
  return k_failed + static_cast<std::int64_t>(status);
}
[[nodiscard]] constexpr bool is_failure(std::int64_t sample) noexcept { return sample >= k_failed; }
[[nodiscard]] constexpr Status status_of(std::int64_t sample) noexcept {
  return is_failure(sample) ? static_cast<Status>(sample - k_failed) : Status::ok;
}

/// Why a sample must be taken again.
enum class Retry : std::uint8_t {
  bad_clock,  ///< zero, negative or not a number
  spoiled,    ///< another tuning ran inside it
  stalled,    ///< the gate had to be opened early
};
[[nodiscard]] constexpr std::int64_t sample_of(Retry retry) noexcept {
  return k_failed - 3 + static_cast<std::int64_t>(retry);
}
[[nodiscard]] constexpr bool is_retry(std::int64_t sample) noexcept {
  return sample >= sample_of(Retry::bad_clock) && sample < k_failed;
}
[[nodiscard]] constexpr Retry retry_of(std::int64_t sample) noexcept {
  return static_cast<Retry>(sample - sample_of(Retry::bad_clock));
}

/// How a visit holds the stream; a launcher that synchronises moves down, never up again.
enum class TimingMode : std::uint8_t { gate_a_visit, gate_a_run, ungated };

inline constexpr std::size_t k_trailer = 2;

}  // namespace disttune::core
