#include "core/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace disttune::core;
using Samples = std::vector<std::int64_t>;

TEST(Statistics, MiddleHalfMeanCutsAQuarterAtEachEnd) {
  EXPECT_DOUBLE_EQ(middle_half_mean(Samples{7}), 7);
  EXPECT_DOUBLE_EQ(middle_half_mean(Samples{4, 2}), 3);
  EXPECT_DOUBLE_EQ(middle_half_mean(Samples{1, 2, 3, 1000}), 2.5);
  // Three: 0.25 of the first, all of the second, 0.25 … of the third: weights 1, 4, 1.
  EXPECT_DOUBLE_EQ(middle_half_mean(Samples{0, 6, 18}), (0 + 4 * 6 + 18) / 6.0);
  // Ten: two and a half are cut at each end.
  EXPECT_DOUBLE_EQ(middle_half_mean(Samples{0, 0, 10, 20, 20, 20, 20, 30, 99, 99}),
                   (0.5 * 10 + 4 * 20 + 0.5 * 30) / 5);
}

TEST(Statistics, MiddleHalfMeanDoesNotDependOnTheOrder) {
  std::mt19937_64 random(7);
  Samples s;
  for (int i = 0; i < 37; ++i) s.push_back(static_cast<std::int64_t>(random() >> 2U));
  const double once = middle_half_mean(s);
  for (int i = 0; i < 50; ++i) {
    std::shuffle(s.begin(), s.end(), random);
    ASSERT_EQ(middle_half_mean(s), once);
  }
}

TEST(Statistics, MiddleHalfMeanDoesNotOverflow) {
  const std::int64_t big = std::numeric_limits<std::int64_t>::max() - 1000;
  EXPECT_DOUBLE_EQ(middle_half_mean(Samples(9, big)), static_cast<double>(big));
}

TEST(Statistics, Median) {
  EXPECT_DOUBLE_EQ(median(Samples{5}), 5);
  EXPECT_DOUBLE_EQ(median(Samples{9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(median(Samples{9, 1, 5, 6}), 5.5);
}

TEST(Statistics, RobustDeviation) {
  EXPECT_DOUBLE_EQ(robust_deviation(Samples{4, 4, 4, 4000}), 0);
  EXPECT_DOUBLE_EQ(robust_deviation(Samples{1, 2, 3, 4, 5}), 1.4826);
}

}  // namespace
