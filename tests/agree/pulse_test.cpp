#include "agree/pulse.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "core/group_state.hpp"
#include "core/run_clock.hpp"

namespace disttune::agree::test {
namespace {

constexpr std::chrono::hours k_patience{1};

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
  pulse.add(a, k_patience);
  pulse.add(b, k_patience);
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
    pulse.add(a, k_patience);
    a.beaten.acquire();
    pulse.remove(a);
  }
}

TEST(Pulse, WhoHangsInOneRunIsSilentUntilItIsOver) {
  Pulse pulse(std::chrono::milliseconds(1));
  Counting a;
  Counting b;
  core::RunClock& runs = a.state().runs;
  runs.watch_this_thread();
  core::RunClock::run_begins();
  pulse.add(a, std::chrono::nanoseconds(-1));  // any run is too long
  pulse.add(b, k_patience);
  for (int i = 0; i < 3; ++i) b.beaten.acquire();
  EXPECT_EQ(0, a.count);
  core::RunClock::runs_end();
  a.beaten.acquire();
  runs.stop();
  pulse.remove(a);
  pulse.remove(b);
}

TEST(Pulse, ARunThatGoesOnCountsFromThen) {
  Counting a;
  core::RunClock& runs = a.state().runs;
  runs.goes_on();
  EXPECT_FALSE(runs.in_one_run_for(std::chrono::nanoseconds(-1))) << "there is no run";
  runs.watch_this_thread();
  core::RunClock::run_begins();
  runs.stop();  // as a contextual call does, whose launches come from any thread
  constexpr std::chrono::milliseconds k_short{20};
  while (!runs.in_one_run_for(k_short)) std::this_thread::yield();
  int tries = 0;
  do runs.goes_on();
  while (runs.in_one_run_for(k_short) && ++tries < 1'000'000);
  EXPECT_LT(tries, 1'000'000);
  core::RunClock::runs_end();
}

TEST(Pulse, SignsComeThreeTimesInThePatience) {
  Pulse pulse(std::chrono::hours(1));
  Counting a;
  pulse.add(a, k_patience);
  Counting b;
  pulse.add(b, std::chrono::milliseconds(3));
  b.beaten.acquire();
  pulse.remove(a);
  pulse.remove(b);
}

TEST(Pulse, NothingIsRunningWithoutAGroup) {
  Pulse pulse(std::chrono::hours(1));
  Counting a;
  pulse.add(a, k_patience);
  pulse.remove(a);
  EXPECT_EQ(0, a.count);
}

}  // namespace
}  // namespace disttune::agree::test
