#include "core/seconds.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace disttune::core {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Seconds, are_counted_in_nanoseconds) {
  EXPECT_EQ(in_nanoseconds(1.5), nanoseconds(1'500'000'000));
  EXPECT_EQ(in_nanoseconds(1e-9), nanoseconds(1));
  EXPECT_EQ(in_nanoseconds(k_longest_seconds), seconds(1'000'000'000));
}

TEST(Seconds, what_no_clock_can_count_is_the_nearest_that_one_can) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  for (const double longer : {1.1e9, 1e10, 1e300, infinite})
    EXPECT_EQ(in_nanoseconds(longer), seconds(1'000'000'000)) << longer;
  for (const double none : {0.0, -1.0, -infinite, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(in_nanoseconds(none), nanoseconds(0)) << none;
  EXPECT_GT(std::chrono::steady_clock::now() + in_nanoseconds(infinite),
            std::chrono::steady_clock::now());
}

}  // namespace
}  // namespace disttune::core
