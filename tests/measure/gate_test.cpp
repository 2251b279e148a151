// Launchers that wait behind a closed gate, measurements inside measurements, and the contextual
// way of timing one launch at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "measure/rig.hpp"

namespace disttune::timing {
namespace {

using core::Retry;
using core::sample_of;
using core::TimingMode;
using Samples = std::vector<std::int64_t>;

const auto k_spoiled = sample_of(Retry::spoiled);

// S66: a delay kernel timed out when other threads touched the device.
TEST(Gate, S66_a_launcher_that_waits_moves_down_to_no_gate_in_two_visits) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) {
    rig.device->launch(5us, 20us);
    rig.device->block_until_released();
  });
  auto t = visit(watch, attempt, {0, 1, 3});
  EXPECT_EQ(t.end.status, Status::ok);
  EXPECT_EQ(t.samples, Samples(3, k_stalled));  // one gate around all: all are spoiled
  EXPECT_EQ(watch.mode(), TimingMode::gate_a_run);

  t = visit(watch, attempt, {0, 1, 3});
  EXPECT_EQ(t.samples, (Samples{k_stalled, 25000, 25000}));
  EXPECT_EQ(watch.mode(), TimingMode::ungated);

  rig.device->clear_log();
  t = visit(watch, attempt, {0, 1, 3});
  EXPECT_EQ(t.samples, (Samples{25000, 25000, 25000}));
  const auto log = rig.device->log();
  EXPECT_EQ(std::ranges::count(log, "hold"), 0);
  EXPECT_EQ(watch.gate(), "stream_wait");  // what it was; the mode says that it is not used now
}

TEST(Gate, a_cold_run_that_stalls_spoils_its_own_sample_and_only_a_second_one_ends_the_gate) {
  Rig rig;
  auto policy = rig.policy();
  policy.cold = true;
  policy.alone = true;
  auto watch = rig.watch(policy);
  int runs = 0;
  int stalls = 0;
  ScriptedAttempt attempt([&](std::size_t) {
    rig.device->launch(5us);
    if (++runs == 3 || runs == 6) {
      rig.device->block_until_released();
      ++stalls;
    }
  });
  EXPECT_EQ(visit(watch, attempt, {0, 0, 5}).samples, (Samples{5000, 5000, k_stalled, 5000, 5000}));
  EXPECT_EQ(watch.mode(), TimingMode::gate_a_run);
  EXPECT_EQ(visit(watch, attempt, {0, 0, 1}).samples, Samples{k_stalled});
  EXPECT_EQ(watch.mode(), TimingMode::ungated);
  EXPECT_EQ(stalls, 2);
}

TEST(Gate, S66_the_watchdog_waits_50_ms_or_five_times_the_usual_host_time) {
  for (const auto& [host, bound] :
       {std::pair<std::chrono::nanoseconds, std::chrono::nanoseconds>{20us, 50ms}, {30ms, 150ms}}) {
    Rig rig;
    auto watch = rig.watch();
    ScriptedAttempt attempt([&, host = host](std::size_t) {
      rig.device->launch(5us, host);
      if (rig.device->held()) rig.device->block_until_released();
    });
    const auto t = visit(watch, attempt, {0, 2, 1});
    EXPECT_EQ(t.samples, Samples{k_stalled});
    EXPECT_GE(std::chrono::nanoseconds(t.host_ns[0]), bound);
  }
}

TEST(Gate, the_first_untimed_run_may_compile_and_does_not_lengthen_the_wait) {
  Rig rig;
  auto watch = rig.watch();
  int run = 0;
  std::int64_t blocked = 0;
  ScriptedAttempt attempt([&](std::size_t) {
    rig.device->launch(5us, run++ == 0 ? std::chrono::nanoseconds(20s) : 1us);
    if (!rig.device->held()) return;
    const auto from = rig.clock->now_ns();
    rig.device->block_until_released();
    blocked = rig.clock->now_ns() - from;
  });
  visit(watch, attempt, {0, 2, 1});
  EXPECT_GE(std::chrono::nanoseconds(blocked), 49ms);
  EXPECT_LT(std::chrono::nanoseconds(blocked), 100s);  // five times the first run's 20 s
}

TEST(Gate, a_slow_host_that_keeps_queueing_is_left_alone) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us, 30ms); });
  const auto t = visit(watch, attempt, {0, 1, 10});  // 300 ms behind one gate
  EXPECT_EQ(t.samples, Samples(10, 5000));
  EXPECT_EQ(watch.mode(), TimingMode::gate_a_visit);
}

TEST(Gate, a_full_queue_blocks_the_host_and_ends_like_waiting) {
  testing::ScriptedDeviceOptions options;
  options.queue_capacity = 100;
  Rig rig(options);
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) {
    for (int i = 0; i < 30; ++i) rig.device->launch(1us, 2us);
  });
  EXPECT_EQ(visit(watch, attempt, {0, 1, 10}).samples, Samples(10, k_stalled));
  EXPECT_EQ(visit(watch, attempt, {0, 1, 10}).samples, Samples(10, 30000));  // one gate a run: fits
  EXPECT_EQ(watch.mode(), TimingMode::gate_a_run);
}

TEST(Gate, a_stalled_visit_that_then_fails_is_a_failure) {
  Rig rig;
  auto watch = rig.watch();
  int run = 0;
  ScriptedAttempt attempt([&](std::size_t) {
    rig.device->block_until_released();
    if (++run == 3) throw std::runtime_error("boom");
  });
  EXPECT_EQ(visit(watch, attempt, {0, 1, 4}).end.status, Status::launch_failed);
  EXPECT_FALSE(rig.device->held());
}

TEST(Nesting, a_launcher_can_tell_that_it_is_being_measured) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) {
    EXPECT_TRUE(inside_visit());
    std::thread([] { EXPECT_FALSE(inside_visit()); }).join();
    rig.device->launch(5us);
  });
  EXPECT_FALSE(inside_visit());
  visit(watch, attempt, {0, 1, 1});
  EXPECT_FALSE(inside_visit());
}

TEST(Nesting, spoiling_opens_the_gate_and_costs_the_sample_at_hand_alone) {
  Rig rig;
  auto watch = rig.watch();
  int run = 0;
  ScriptedAttempt attempt([&](std::size_t) {
    if (++run == 3) {
      spoil_sample();
      EXPECT_FALSE(rig.device->held());
      rig.device->block_until_released();  // it may wait now
    }
    rig.device->launch(5us);
  });
  const auto t = visit(watch, attempt, {0, 1, 4});
  EXPECT_EQ(t.samples, (Samples{5000, k_spoiled, 5000, 5000}));
  EXPECT_EQ(watch.mode(), TimingMode::gate_a_visit);
}

TEST(Nesting, spoiling_outside_a_sample_has_no_effect) {
  spoil_sample();
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) {
    if (!rig.device->held()) spoil_sample();
    rig.device->launch(5us);
  });
  EXPECT_EQ(visit(watch, attempt, {0, 3, 2}).samples, (Samples{5000, 5000}));
}

TEST(Nesting, a_tuning_inside_an_untimed_run_does_not_confuse_the_outer) {
  Rig rig;
  auto outer = rig.watch();
  auto inner = rig.watch();
  Taken inside;
  ScriptedAttempt inner_attempt([&](std::size_t) { rig.device->launch(3us, 1us); });
  int run = 0;
  ScriptedAttempt outer_attempt([&](std::size_t) {
    if (run++ == 0) inside = visit(inner, inner_attempt, {0, 1, 2});
    EXPECT_TRUE(inside_visit());
    rig.device->launch(5us, 1us);
  });
  const auto t = visit(outer, outer_attempt, {0, 2, 3});
  EXPECT_EQ(inside.samples, (Samples{3000, 3000}));
  EXPECT_EQ(t.samples, (Samples{5000, 5000, 5000}));
}

TEST(Nesting, a_visit_inside_a_timed_run_spoils_that_sample_and_stalls_nobody) {
  Rig rig;
  auto outer = rig.watch();
  auto inner = rig.watch();
  Taken inside;
  ScriptedAttempt inner_attempt([&](std::size_t) { rig.device->launch(3us, 1us); });
  int run = 0;
  ScriptedAttempt outer_attempt([&](std::size_t) {
    if (++run == 3) inside = visit(inner, inner_attempt, {0, 1, 2});
    rig.device->launch(5us, 1us);
  });
  const auto t = visit(outer, outer_attempt, {0, 1, 3});
  EXPECT_EQ(inside.samples, (Samples{3000, 3000}));
  EXPECT_EQ(t.samples, (Samples{5000, k_spoiled, 5000}));
  EXPECT_EQ(outer.mode(), TimingMode::gate_a_visit);
}

TEST(Timed, takes_its_steps_in_order_in_the_middle_of_other_work) {
  Rig rig;
  auto policy = rig.policy();
  policy.cold = true;
  auto watch = rig.watch(policy);
  rig.device->launch(1ms);  // the outer function's
  watch.timed(
      4, [&] { rig.device->launch(70us); }, [&] { rig.device->launch(5us, 20us); });
  rig.device->launch(2ms);
  watch.timed(2, {}, [&] { rig.device->launch(6us, 20us); });
  EXPECT_EQ(rig.device->log(),
            (Log{"launch", "launch", "hold", "flush", "start 4", "launch", "stop 4", "release",
                 "launch", "hold", "flush", "start 2", "launch", "stop 2", "release"}));
  Samples samples(2);
  watch.collect(samples);
  EXPECT_EQ(samples, (Samples{5000, 6000}));
  watch.collect({});
}

TEST(Timed, a_launch_that_throws_takes_no_sample_and_opens_the_gate) {
  Rig rig;
  auto watch = rig.watch();
  EXPECT_THROW(watch.timed(0, {}, [] { throw std::runtime_error("boom"); }), std::runtime_error);
  EXPECT_FALSE(rig.device->held());
  EXPECT_FALSE(inside_visit());
  watch.timed(0, {}, [&] { rig.device->launch(5us); });
  Samples samples(1);
  watch.collect(samples);
  EXPECT_EQ(samples, Samples{5000});
}

TEST(Timed, a_launch_that_waits_is_timed_ungated_from_then_on) {
  Rig rig;
  auto watch = rig.watch();
  const auto launch = [&] {
    rig.device->launch(5us, 20us);
    rig.device->block_until_released();
  };
  watch.timed(0, {}, launch);
  watch.timed(1, {}, launch);
  Samples samples(2);
  watch.collect(samples);
  EXPECT_EQ(samples, (Samples{k_stalled, 25000}));
  EXPECT_EQ(watch.mode(), TimingMode::ungated);
}

TEST(Timed, a_late_stream_times_all_samples_out) {
  Rig rig;
  auto watch = rig.watch();
  watch.timed(0, {}, [&] { rig.device->launch(5us); });
  watch.timed(1, {}, [&] { rig.device->launch(testing::ScriptedDevice::k_never); });
  Samples samples(2);
  watch.collect(samples);
  EXPECT_EQ(samples, Samples(2, sample_of(Status::timed_out)));
}

TEST(Timed, the_callers_clock_is_read_twice_a_launch) {
  Rig rig;
  auto policy = rig.policy();
  policy.clock = rig.clock->reader();
  auto watch = rig.watch(policy);
  rig.device->launch(1ms);
  watch.timed(0, {}, [&] { rig.device->launch(5us, 20us); });
  Samples samples(1);
  watch.collect(samples);
  EXPECT_EQ(samples, Samples{25000});
  EXPECT_EQ(rig.clock->readings(), 2);
}

TEST(Timed, wrong_numbers_are_refused) {
  Rig rig;
  auto watch = rig.watch(rig.policy(), 1);
  EXPECT_THROW(watch.timed(1, {}, [] {}), std::logic_error);
  Samples samples(1);
  EXPECT_THROW(watch.collect(samples), std::logic_error);
}

}  // namespace
}  // namespace disttune::timing
