#include "search/fixed_log.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace {

using namespace disttune::search;

TEST(FixedLog, PowersOfTwoAreExact) {
  for (int i = 0; i < 63; ++i) EXPECT_EQ(log2_fixed(std::int64_t{1} << i), i * k_log_one);
}

TEST(FixedLog, AgreesWithTheLibrary) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const auto v = static_cast<std::int64_t>(random() >> (1 + random() % 60)) + 1;
    EXPECT_NEAR(static_cast<double>(log2_fixed(v)) / static_cast<double>(k_log_one),
                std::log2(static_cast<double>(v)), 1e-9);
  }
}

TEST(FixedLog, TheInverseIsClose) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1000; ++i) {
    const auto v = static_cast<std::int64_t>(random() % 10'000'000'000) + 1;
    EXPECT_NEAR(nanoseconds_from_log2(log2_fixed(v)), static_cast<double>(v),
                0.001 + 1e-9 * static_cast<double>(v));
  }
}

TEST(FixedLog, TheLargestTimeSaturates) {
  const double ns = nanoseconds_from_log2(log2_fixed(std::numeric_limits<std::int64_t>::max()));
  EXPECT_TRUE(std::isfinite(ns));
  EXPECT_GT(ns, 9e15);
}

}  // namespace
