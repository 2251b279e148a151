// Logarithms of times as whole numbers. Ranks must decide alike to the last bit, and the last bit
// of a library's logarithm depends on the processor; integer arithmetic does not.
#pragma once

#include <cstdint>

namespace disttune::search {

/// One, in the fixed-point logarithms below: 32 bits after the point.
inline constexpr std::int64_t k_log_one = std::int64_t{1} << 32;

/// log2 of `v` > 0, rounded down to 32 bits after the point.
[[nodiscard]] std::int64_t log2_fixed(std::int64_t v) noexcept;

/// The nanoseconds, in steps of 1/1024, whose logarithm is `log`: the inverse of log2_fixed.
[[nodiscard]] double nanoseconds_from_log2(std::int64_t log) noexcept;

}  // namespace disttune::search
