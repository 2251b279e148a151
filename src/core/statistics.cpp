#include "core/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace disttune::core {
namespace {

std::vector<std::int64_t> sorted(std::span<const std::int64_t> samples) {
  std::vector<std::int64_t> out(samples.begin(), samples.end());
  std::ranges::sort(out);
  return out;
}

double median_of_sorted(const auto& s) {
  const std::size_t half = s.size() / 2;
  const auto high = static_cast<double>(s[half]);
  if (s.size() % 2 != 0) return high;
  const auto low = static_cast<double>(s[half - 1]);
  return low + (high - low) / 2;
}

}  // namespace

double middle_half_mean(std::span<const std::int64_t> samples) {
  const std::vector<std::int64_t> s = sorted(samples);
  const std::size_t n = s.size();
  // Counted in quarters of a sample every weight is a whole number: cut n of the 4n quarters at
  // each end. The sum is then exact, so that all ranks get the same bits in any order of samples.
  __extension__ using Wide = __int128;
  Wide sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t from = std::max(4 * i, n);
    const std::size_t to = std::min(4 * (i + 1), 3 * n);
    if (to > from) sum += static_cast<Wide>(to - from) * s[i];
  }
  return static_cast<double>(sum) / static_cast<double>(2 * n);
}

double median(std::span<const std::int64_t> samples) { return median_of_sorted(sorted(samples)); }

double robust_deviation(std::span<const std::int64_t> samples) {
  const double centre = median(samples);
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (const std::int64_t v : samples)
    deviations.push_back(std::abs(static_cast<double>(v) - centre));
  std::ranges::sort(deviations);
  return 1.4826 * median_of_sorted(deviations);
}

}  // namespace disttune::core
