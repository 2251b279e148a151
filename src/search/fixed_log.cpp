#include "search/fixed_log.hpp"

#include <bit>
#include <limits>

namespace disttune::search {

// Bit by bit: squaring the mantissa doubles its logarithm, whose integer part is the next bit.
std::int64_t log2_fixed(std::int64_t v) noexcept {
  __extension__ using Wide = unsigned __int128;
  const auto u = static_cast<std::uint64_t>(v);
  const int top = 63 - std::countl_zero(u);
  std::int64_t log = top;
  std::uint64_t mantissa = u << (63 - top);  // in [1, 2), 63 bits after the point
  for (int bit = 0; bit < 32; ++bit) {
    const Wide square = static_cast<Wide>(mantissa) * mantissa;  // in [1, 4), 126 bits
    const bool over = (square >> 127U) != 0;
    mantissa = static_cast<std::uint64_t>(square >> (over ? 64U : 63U));
    log = log * 2 + (over ? 1 : 0);
  }
  return log;
}

double nanoseconds_from_log2(std::int64_t log) noexcept {
  constexpr int k_fraction_bits = 10;
  const std::int64_t target = log + k_fraction_bits * k_log_one;
  std::int64_t low = 1;
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (log2_fixed(middle) < target)
      low = middle + 1;
    else
      high = middle;
  }
  return static_cast<double>(low) / (1 << k_fraction_bits);
}

}  // namespace disttune::search
