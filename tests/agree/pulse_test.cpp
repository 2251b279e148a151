#include "agree/pulse.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

namespace disttune::agree::test {
namespace {

class Counting final : public ProcessGroup {
 public:
  Counting() : ProcessGroup(0, 2, {2}) {}
  void all_reduce_max(std::span<std::int64_t>, const Wait&) override {}
  void abandon(std::uint64_t, std::string_view) noexcept override {}
  void alive() noexcept override {
    ++count;
    beaten.release();
  }
  std::atomic<int> count{0};
  std::counting_semaphore<> beaten{0};
};

TEST(Pulse, BeatsForEveryGroupThatIsListed) {
  Pulse pulse(std::chrono::milliseconds(1));
  Counting a;
  Counting b;
  pulse.add(a);
  pulse.add(b);
  for (int i = 0; i < 3; ++i) {
    a.beaten.acquire();
    b.beaten.acquire();
  }
  pulse.remove(a);
  const int seen = a.count;
  for (const int from = b.count; b.count < from + 3;) b.beaten.acquire();
  EXPECT_EQ(seen, a.count);
  pulse.remove(b);
}

TEST(Pulse, StartsAgainAfterAPause) {
  Pulse pulse(std::chrono::milliseconds(1));
  for (int i = 0; i < 3; ++i) {
    Counting a;
    pulse.add(a);
    a.beaten.acquire();
    pulse.remove(a);
  }
}

TEST(Pulse, NothingIsRunningWithoutAGroup) {
  Pulse pulse(std::chrono::hours(1));
  Counting a;
  pulse.add(a);
  pulse.remove(a);
  EXPECT_EQ(0, a.count);
}

}  // namespace
}  // namespace disttune::agree::test
