// The thread that opens a gate behind which the host has got stuck.
#include "measure/gate_watchdog.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "measure/rig.hpp"

#if defined(__has_feature)
#  define DISTTUNE_CLANG_TSAN __has_feature(thread_sanitizer)
#else
#  define DISTTUNE_CLANG_TSAN 0
#endif

namespace disttune::timing {
namespace {

TEST(GateWatchdog, a_watchdog_fires_once_and_only_while_armed) {
  const auto clock = std::make_shared<testing::ScriptedClock>();
  const auto device = std::make_shared<testing::ScriptedDevice>(clock);
  const auto timer = device->open(nullptr, 1);
  GateWatchdog watchdog([clock] { return clock->steady(); });
  EXPECT_FALSE(watchdog.disarm());
  for (int i = 0; i < 3; ++i) {
    timer->hold();
    watchdog.arm(*timer, 50ms);
    device->block_until_released();
    EXPECT_TRUE(watchdog.disarm());
    EXPECT_FALSE(watchdog.disarm());
  }
  timer->hold();
  clock->advance(1h);
  watchdog.arm(*timer, 50ms);
  clock->advance(50ms - 1ns);
  EXPECT_FALSE(watchdog.disarm());
  EXPECT_TRUE(device->held());
}

TEST(GateWatchdog, the_real_clock_opens_a_gate_too) {
  const auto clock = std::make_shared<testing::ScriptedClock>();
  const auto device = std::make_shared<testing::ScriptedDevice>(clock);
  const auto timer = device->open(nullptr, 1);
  GateWatchdog watchdog;
  timer->hold();
  watchdog.arm(*timer, 1ms);
  device->block_until_released();
  EXPECT_TRUE(watchdog.disarm());
}

TEST(GateWatchdog, a_watchdog_that_sleeps_for_an_earlier_gate_is_in_time_for_a_later_one) {
  Rig rig;
  const auto timer = rig.device->open(nullptr, 1);
  GateWatchdog watchdog;          // the real clock's
  for (int i = 0; i < 50; ++i) {  // in some of them it has gone to sleep for the hour
    watchdog.arm(*timer, 1h);
    std::this_thread::yield();
    EXPECT_FALSE(watchdog.disarm());
    ASSERT_TRUE(timer->hold());
    watchdog.arm(*timer, 1ms);
    rig.device->block_until_released();  // throws when nobody opens the gate
    EXPECT_TRUE(watchdog.disarm());
  }
}

/// A timer that says which thread opened its gate.
class OpenedBy final : public StreamTimer {
 public:
  void start(std::size_t) override {}
  void stop(std::size_t) override {}
  std::int64_t elapsed_ns(std::size_t) override { return 0; }
  bool synchronize(Deadline) override { return true; }
  void release() noexcept override { m_opener.set_value(::gettid()); }
  pid_t wait() { return m_opener.get_future().get(); }

 private:
  std::promise<pid_t> m_opener;
};

/// Lets the gate stay closed too long; the thread that opened it.
pid_t opener(GateWatchdog& watchdog) {
  OpenedBy timer;
  watchdog.arm(timer, 1ms);
  const pid_t by = timer.wait();
  EXPECT_TRUE(watchdog.disarm());
  return by;
}

TEST(GateWatchdog, one_thread_serves_the_watchdogs_of_tunings_that_follow_each_other) {
  pid_t kept = 0;
  {
    GateWatchdog outer;  // each with the real clock
    const pid_t first = opener(outer);
    GateWatchdog inner;
    kept = opener(inner);
    EXPECT_NE(kept, first) << "both live";
    EXPECT_EQ(opener(outer), first);
  }  // the inner one, which ends first, leaves its thread
  for (int tuning = 0; tuning < 3; ++tuning) {
    GateWatchdog next;
    EXPECT_EQ(opener(next), kept);
  }
}

TEST(GateWatchdog, a_forked_child_measures_with_a_watchdog_of_its_own) {
#if defined(__SANITIZE_THREAD__) || DISTTUNE_CLANG_TSAN
  GTEST_SKIP() << "the thread sanitizer has no threads in a forked child";
#endif
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) {
    rig.device->launch(5us);
    if (rig.device->held()) rig.device->block_until_released();
  });
  visit(watch, attempt, {0, 1, 1});  // the parent's thread is running
  const pid_t child = fork();
  if (child == 0) {
    {
      auto fresh = rig.watch();
      const bool stalled = visit(fresh, attempt, {0, 1, 1}).samples[0] == k_stalled;
      const bool again = visit(watch, attempt, {0, 1, 1}).samples[0] == k_stalled;
      if (!stalled || !again) _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(GateWatchdog, a_forked_child_does_not_wait_for_the_thread_that_its_parent_kept) {
#if defined(__SANITIZE_THREAD__) || DISTTUNE_CLANG_TSAN
  GTEST_SKIP() << "the thread sanitizer has no threads in a forked child";
#endif
  pid_t kept = 0;
  {
    GateWatchdog before;
    kept = opener(before);
  }
  const pid_t child = fork();
  if (child == 0) {
    GateWatchdog own;
    _exit(opener(own) != kept ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  GateWatchdog after;
  EXPECT_EQ(opener(after), kept) << "the parent's is still there";
}

}  // namespace
}  // namespace disttune::timing
