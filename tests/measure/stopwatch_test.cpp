#include "measure/stopwatch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "measure/rig.hpp"

namespace disttune::timing {
namespace {

using core::Retry;
using core::sample_of;
using core::TimingMode;
using Samples = std::vector<std::int64_t>;

TEST(ScriptedClock, is_earlier_than_a_deadline_of_a_machine_that_has_just_started) {
  // Code under test may take its deadlines from the steady clock, which begins with the machine.
  EXPECT_LE(testing::ScriptedClock().steady(), Deadline(2s));
}

TEST(Stopwatch, takes_the_steps_of_a_gated_visit_in_order) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us, 20us); });
  const auto t = visit(watch, attempt, {3, 1, 2});
  EXPECT_EQ(t.end.status, Status::ok);
  EXPECT_EQ(rig.device->log(),
            (Log{"launch", "synchronize",                                               // untimed
                 "hold", "start 0", "launch", "stop 0", "start 1", "launch", "stop 1",  //
                 "release", "synchronize", "elapsed 0", "elapsed 1"}));
  EXPECT_EQ(attempt.began, (std::vector<std::pair<std::size_t, std::size_t>>{{3, 3}}));
  EXPECT_EQ(attempt.befores, 3);
  EXPECT_EQ(attempt.runs, 3);
  EXPECT_EQ(watch.mode(), TimingMode::gate_a_visit);
  EXPECT_EQ(watch.gate(), "stream_wait");
}

TEST(Stopwatch, takes_the_steps_of_one_gate_a_run_in_order) {
  Rig rig;
  auto policy = rig.policy();
  policy.cold = true;
  auto watch = rig.watch(policy);
  watch.weaken(TimingMode::gate_a_run);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
  visit(watch, attempt, {0, 0, 2});
  EXPECT_EQ(rig.device->log(),
            (Log{"synchronize",                                                             //
                 "hold", "flush", "start 0", "launch", "stop 0", "release", "synchronize",  //
                 "hold", "flush", "start 1", "launch", "stop 1", "release", "synchronize",  //
                 "synchronize", "elapsed 0", "elapsed 1"}));
}

TEST(Stopwatch, pipelined_runs_go_ahead_once_they_outlast_the_launching_of_the_rest) {
  Rig rig;
  auto policy = rig.policy();
  policy.alone = true;
  const auto runs_ahead = [&](Stopwatch& watch, std::chrono::nanoseconds on_device) {
    ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(on_device, 20us); });
    const std::size_t before = rig.device->log().size();
    const auto t = visit(watch, attempt, {0, 2, 10});
    EXPECT_EQ(t.samples, Samples(10, on_device.count()));  // no launch time in any of them
    EXPECT_EQ(watch.mode(), TimingMode::gate_a_visit);
    const Log log = rig.device->log();
    const auto begin = log.begin() + static_cast<std::ptrdiff_t>(before);
    EXPECT_LE(std::count(begin, log.end(), "advance"), 1);
    return std::count(begin, std::find(begin, log.end(), "advance"), "launch") - 2;
  };
  auto watch = rig.watch(policy);
  EXPECT_EQ(runs_ahead(watch, 40us), 10) << "how long runs take is not known yet";
  // 2 * 40 us of work against 1.25 * 2 * 20 us of launching; with 1, 40 against 50.
  EXPECT_EQ(runs_ahead(watch, 40us), 2);
  EXPECT_EQ(runs_ahead(watch, 400us), 2) << "a run may take as long as the fastest so far";
  EXPECT_EQ(runs_ahead(watch, 10us), 2);
  // 9 * 10 us before the last against 1.25 * 3 * 20 us; with 6, 90 against 100.
  EXPECT_EQ(runs_ahead(watch, 40us), 7);
  EXPECT_EQ(runs_ahead(watch, 4us), 7);
  // 9 * 4 us against 1.25 * 20 us: one is left, and none after it that would need time.
  EXPECT_EQ(runs_ahead(watch, 40us), 9);
  EXPECT_EQ(runs_ahead(watch, 1us), 9);
  EXPECT_EQ(runs_ahead(watch, 40us), 10) << "all wait together";
  auto long_runs = rig.watch(policy);
  EXPECT_EQ(runs_ahead(long_runs, 400us), 10);
  EXPECT_EQ(runs_ahead(long_runs, 400us), 1);
}

TEST(Stopwatch, what_a_run_puts_back_counts_as_launching) {
  Rig rig;
  auto policy = rig.policy();
  policy.alone = true;
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(40us, 20us); });
  visit(watch, attempt, {0, 2, 10});
  attempt.before = [&] { rig.clock->advance(100us); };
  const std::size_t before = rig.device->log().size();
  visit(watch, attempt, {0, 2, 10});
  const Log log = rig.device->log();
  const auto begin = log.begin() + static_cast<std::ptrdiff_t>(before);
  // 8 * 40 us of work, and 9 before the last, against 1.25 * 2 * 120 us.
  EXPECT_EQ(std::count(begin, std::find(begin, log.end(), "advance"), "launch"), 2 + 8);
}

TEST(Stopwatch, pipelined_visits_without_timed_runs_still_wait_for_their_work) {
  Rig rig;
  auto policy = rig.policy();
  policy.alone = true;
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
  visit(watch, attempt, {0, 1, 0});
  EXPECT_EQ(rig.device->log(), (Log{"launch", "synchronize"}));
}

TEST(Stopwatch, takes_the_steps_of_an_ungated_visit_in_order) {
  Rig rig;
  auto watch = rig.watch();
  watch.weaken(TimingMode::ungated);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
  visit(watch, attempt, {0, 0, 1});
  EXPECT_EQ(rig.device->log(),
            (Log{"synchronize", "start 0", "launch", "stop 0", "synchronize", "elapsed 0"}));
  EXPECT_EQ(watch.gate(), "none");
}

TEST(Stopwatch, results_live_until_the_gate_is_open_and_the_stream_drained) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
  std::vector<std::string> last_before_drop;
  attempt.on_drop = [&] {
    EXPECT_FALSE(rig.device->held());
    last_before_drop.push_back(rig.device->log().back());
  };
  visit(watch, attempt, {0, 2, 3});
  EXPECT_EQ(last_before_drop, (Log{"synchronize", "elapsed 2"}));
}

TEST(Stopwatch, results_are_dropped_run_by_run_where_each_run_is_waited_for) {
  Rig rig;
  const auto drops_in = [&](Stopwatch& watch) {
    ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
    visit(watch, attempt, {0, 2, 3});
    return attempt.drops;
  };
  auto gated = rig.watch();
  EXPECT_EQ(drops_in(gated), 2);  // after the untimed runs, after the visit
  gated.weaken(TimingMode::gate_a_run);
  EXPECT_EQ(drops_in(gated), 5);
  auto policy = rig.policy();
  policy.host_clock = true;
  auto host_clock = rig.watch(policy);
  EXPECT_EQ(drops_in(host_clock), 5);
  policy.graph = true;  // the captured run's results are written by every replay
  auto graph = rig.watch(policy);
  EXPECT_EQ(drops_in(graph), 2);
  Stopwatch host({}, {}, 3);
  EXPECT_EQ(drops_in(host), 7);
}

// S70: copies that are kept while tuning, close to the memory limit.
TEST(Stopwatch, S70_results_that_fill_the_memory_behind_one_gate_are_kept_a_run_at_a_time) {
  Rig rig;
  auto watch = rig.watch();
  int kept = 0;
  ScriptedAttempt attempt([&](std::size_t c) {
    rig.device->launch(5us, 1us);
    if (++kept > (c == 0 ? 3 : 0)) throw std::bad_alloc();
  });
  attempt.on_drop = [&] {
    EXPECT_FALSE(rig.device->held());
    kept = 0;
  };
  auto t = visit(watch, attempt, {0, 1, 8});
  EXPECT_EQ(t.end.status, Status::ok) << t.end.reason;
  EXPECT_EQ(std::ranges::count_if(t.samples, [](std::int64_t s) { return s >= 5000; }), 8);
  EXPECT_TRUE(std::ranges::none_of(t.samples, core::is_retry));
  EXPECT_EQ(watch.mode(), TimingMode::gate_a_run);

  t = visit(watch, attempt, {1, 0, 2});  // not even one fits
  EXPECT_EQ(t.end.status, Status::out_of_resources);
}

// S64: launch overhead inside the sample favours candidates that launch cheaply.
TEST(Stopwatch, S64_a_gated_sample_holds_no_host_time_and_host_time_is_told_beside_it) {
  Rig rig;
  auto watch = rig.watch();
  // Candidate 0 is fast on the device and slow to launch, candidate 1 the reverse.
  ScriptedAttempt attempt([&](std::size_t c) {
    c == 0 ? rig.device->launch(5us, 30us) : rig.device->launch(8us, 2us);
  });
  const auto slow_host = visit(watch, attempt, {0, 1, 3});
  const auto slow_device = visit(watch, attempt, {1, 1, 3});
  EXPECT_EQ(slow_host.samples, (Samples{5000, 5000, 5000}));
  EXPECT_EQ(slow_host.host_ns, (Samples{30000, 30000, 30000}));
  EXPECT_EQ(slow_device.samples, (Samples{8000, 8000, 8000}));
  EXPECT_EQ(slow_device.host_ns, (Samples{2000, 2000, 2000}));

  watch.weaken(TimingMode::ungated);  // what it would have been without a gate
  EXPECT_EQ(visit(watch, attempt, {0, 0, 1}).samples, Samples{35000});
}

// S62: warm-cache timing favours the wrong candidates.
TEST(Stopwatch, S62_a_cold_policy_flushes_before_every_timed_run_outside_the_sample) {
  testing::ScriptedDeviceOptions options;
  options.flush_time = 100us;
  Rig rig(options);
  auto policy = rig.policy();
  policy.cold = true;
  auto watch = rig.watch(policy);
  // The first run after a flush misses the cache, the next one does not.
  ScriptedAttempt attempt([&](std::size_t) {
    const auto log = rig.device->log();
    const bool flushed = std::ranges::find(log.rbegin(), log.rend(), "flush") <
                         std::ranges::find(log.rbegin(), log.rend(), "launch");
    rig.device->launch(flushed ? 9us : 5us);
  });
  EXPECT_EQ(visit(watch, attempt, {0, 1, 3}).samples, (Samples{9000, 9000, 9000}));
  auto hot = rig.watch();
  EXPECT_EQ(visit(hot, attempt, {0, 1, 3}).samples, (Samples{5000, 5000, 5000}));
}

// Runs of a few microseconds were timed up to 20 % too long while others were queued behind them.
TEST(Stopwatch, nothing_is_queued_behind_a_cold_run_unless_ranks_would_wait_for_each_other) {
  for (const bool alone : {true, false}) {
    Rig rig;
    auto policy = rig.policy();
    policy.cold = true;
    policy.alone = alone;
    auto watch = rig.watch(policy);
    ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
    EXPECT_EQ(visit(watch, attempt, {0, 0, 10}).samples, Samples(10, 5000));
    std::vector<int> runs_by_gate;
    for (const auto& step : rig.device->log())
      if (step == "hold")
        runs_by_gate.push_back(0);
      else if (step == "launch")
        ++runs_by_gate.back();
    EXPECT_EQ(runs_by_gate, alone ? std::vector<int>(10, 1) : std::vector<int>{10});
    EXPECT_EQ(watch.mode(), TimingMode::gate_a_visit);
  }
}

TEST(Stopwatch, a_device_without_a_gate_is_timed_without_one) {
  testing::ScriptedDeviceOptions options;
  options.gate = false;
  Rig rig(options);
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us, 20us); });
  const auto t = visit(watch, attempt, {0, 1, 2});
  EXPECT_EQ(t.end.status, Status::ok);
  EXPECT_EQ(t.samples, (Samples{25000, 20000}));  // launching, not working, is what is timed
  EXPECT_EQ(watch.mode(), TimingMode::ungated);
  EXPECT_EQ(watch.gate(), "none");
}

TEST(Stopwatch, the_callers_clock_is_read_twice_a_timed_run_on_a_drained_stream) {
  Rig rig;
  auto policy = rig.policy();
  policy.clock = rig.clock->reader();
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us, 20us); });
  const auto t = visit(watch, attempt, {0, 5, 10});
  EXPECT_EQ(rig.clock->readings(), 20);
  EXPECT_EQ(t.samples, Samples(10, 25000));
  EXPECT_EQ(t.host_ns, Samples(10, 25000));
  EXPECT_EQ(watch.mode(), TimingMode::ungated);
  EXPECT_EQ(watch.gate(), "none");
  const auto log = rig.device->log();
  EXPECT_EQ(std::ranges::count(log, "hold"), 0);
  EXPECT_EQ(std::ranges::count(log, "start 0"), 0);
}

TEST(Stopwatch, the_host_clock_drains_the_stream_at_both_readings) {
  Rig rig;
  auto policy = rig.policy();
  policy.host_clock = true;
  policy.cold = true;
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us, 20us); });
  attempt.before = [&] { rig.device->launch(70us); };
  EXPECT_EQ(visit(watch, attempt, {0, 0, 2}).samples, (Samples{25000, 25000}));
  EXPECT_EQ(rig.device->log(),
            (Log{"synchronize",                                              //
                 "launch", "flush", "synchronize", "launch", "synchronize",  //
                 "launch", "flush", "synchronize", "launch", "synchronize", "synchronize"}));
}

TEST(Stopwatch, a_clock_that_throws_is_the_callers_error_and_no_candidates) {
  Rig rig;
  auto policy = rig.policy();
  policy.clock = []() -> std::int64_t { throw std::out_of_range("no more readings"); };
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
  EXPECT_THROW(visit(watch, attempt, {0, 1, 1}), std::out_of_range);
  EXPECT_FALSE(inside_visit());
}

// S65: event times came out negative, zero, or absurd.
TEST(Stopwatch, S65_a_bad_sample_is_a_retry_code_and_never_a_time) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
  rig.device->give_samples({0, -7, std::numeric_limits<std::int64_t>::max(),
                            std::numeric_limits<std::int64_t>::min(), 42});
  const auto t = visit(watch, attempt, {0, 1, 6});
  const auto bad = sample_of(Retry::bad_clock);
  EXPECT_EQ(t.end.status, Status::ok);
  EXPECT_EQ(t.samples, (Samples{bad, bad, bad, bad, 42, 5000}));
}

TEST(Stopwatch, S65_a_clock_that_stands_still_or_goes_back_gives_retry_codes) {
  Rig rig;
  for (const std::int64_t step : {0, -1}) {
    std::int64_t now = step < 0 ? std::numeric_limits<std::int64_t>::min() + 1 : 0;
    auto policy = rig.policy();
    policy.clock = [&now, step] { return std::exchange(now, step < 0 ? -now : now); };
    auto watch = rig.watch(policy);
    ScriptedAttempt attempt([](std::size_t) {});
    const auto t = visit(watch, attempt, {0, 0, 2});
    EXPECT_TRUE(core::is_retry(t.samples[1])) << t.samples[1];
  }
}

TEST(Stopwatch, exceptions_become_statuses_with_stage_type_and_message) {
  Rig rig;
  auto watch = rig.watch();
  const auto end_of = [&](const std::function<void()>& launch) {
    ScriptedAttempt attempt([&](std::size_t) { launch(); });
    const auto t = visit(watch, attempt, {0, 1, 2});
    EXPECT_EQ(t.samples, Samples(2, sample_of(t.end.status)));
    EXPECT_EQ(attempt.drops, 1);
    return t.end;
  };
  auto end = end_of([] { throw std::runtime_error("boom"); });
  EXPECT_EQ(end.status, Status::launch_failed);
  EXPECT_EQ(end.reason, "warm-up: std::runtime_error: boom");
  end = end_of([] { throw Error("disttune: no"); });
  EXPECT_EQ(end.reason, "warm-up: disttune::Error: disttune: no");
  end = end_of([] { throw std::runtime_error(""); });
  EXPECT_EQ(end.reason, "warm-up: std::runtime_error");
  end = end_of([] { throw std::bad_alloc(); });
  EXPECT_EQ(end.status, Status::out_of_resources);
  end = end_of([] { throw detail::CandidateFailed(Status::compile_failed, "compile: no"); });
  EXPECT_EQ(end.status, Status::compile_failed);
  EXPECT_EQ(end.reason, "compile: no");
}

TEST(Stopwatch, a_failure_behind_a_closed_gate_opens_it_and_drops_the_results_after) {
  Rig rig;
  auto watch = rig.watch();
  int run = 0;
  ScriptedAttempt attempt([&](std::size_t) {
    if (++run == 3) throw std::runtime_error("boom");
    rig.device->launch(5us);
  });
  attempt.on_drop = [&] { EXPECT_FALSE(rig.device->held()); };
  const auto t = visit(watch, attempt, {0, 1, 5});
  EXPECT_EQ(t.end.reason, "timed run: std::runtime_error: boom");
  EXPECT_EQ(run, 3);
  EXPECT_EQ(rig.device->log(), (Log{"launch", "synchronize", "hold", "start 0", "launch", "stop 0",
                                    "start 1", "release", "synchronize"}));
}

TEST(Stopwatch, what_is_no_exception_of_the_standard_passes_and_leaves_nothing_behind) {
  Rig rig;
  auto watch = rig.watch();
  struct Interrupt {};
  ScriptedAttempt attempt([&](std::size_t) {
    if (!rig.device->held()) return;
    throw Interrupt{};
  });
  EXPECT_THROW(visit(watch, attempt, {0, 1, 5}), Interrupt);
  EXPECT_FALSE(rig.device->held());
  EXPECT_EQ(attempt.drops, 2);
  EXPECT_FALSE(inside_visit());
  EXPECT_EQ(rig.device->log().back(), "synchronize");
}

// S47: one candidate's illegal access poisons the context.
TEST(Stopwatch, S47_a_sticky_error_ends_the_tuning_and_is_attributed_to_its_candidate) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) {
    rig.device->break_context("illegal address");
    throw std::runtime_error("launch says 700");
  });
  try {
    visit(watch, attempt, {7, 1, 2});
    FAIL() << "the device was believed";
  } catch (const DeviceLost& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("candidate #7"), text.npos) << text;
    EXPECT_NE(text.find("illegal address"), text.npos) << text;
    EXPECT_NE(text.find("launch says 700"), text.npos) << text;
  }
  EXPECT_EQ(attempt.drops, 1);
}

TEST(Stopwatch, S47_a_sticky_error_found_while_waiting_names_the_candidate) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt([&](std::size_t) {
    rig.device->launch(5us);
    rig.device->break_context("illegal address");
  });
  try {
    visit(watch, attempt, {7, 1, 2});
    FAIL() << "the device was believed";
  } catch (const DeviceLost& e) {
    EXPECT_NE(std::string_view(e.what()).find("candidate #7"), std::string_view::npos) << e.what();
  }
}

// S51: an elapsed-time check after the fact cannot stop a hung call.
TEST(Stopwatch, S51_work_that_never_ends_is_timed_out_and_then_named) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt(
      [&](std::size_t c) { rig.device->launch(c == 4 ? testing::ScriptedDevice::k_never : 5us); });
  const auto began = rig.clock->now_ns();
  const auto t = visit(watch, attempt, {4, 1, 2});
  EXPECT_EQ(t.end.status, Status::timed_out);
  EXPECT_EQ(t.end.reason, "warm-up: its work on the device had not ended after 60 s");
  EXPECT_EQ(t.samples, Samples(2, sample_of(Status::timed_out)));
  EXPECT_EQ(rig.clock->now_ns() - began, std::chrono::nanoseconds(60s).count());
  EXPECT_EQ(attempt.runs, 1);
  try {
    visit(watch, attempt, {5, 1, 2});
    FAIL() << "a hung device was used";
  } catch (const DeviceLost& e) {
    EXPECT_NE(std::string_view(e.what()).find("candidate #4"), std::string_view::npos) << e.what();
  }
  EXPECT_EQ(attempt.runs, 1);
}

TEST(Stopwatch, work_that_ends_late_fails_its_candidate_only) {
  Rig rig;
  auto watch = rig.watch();
  ScriptedAttempt attempt(
      [&](std::size_t c) { rig.device->launch(c == 4 ? std::chrono::nanoseconds(90s) : 5us); });
  EXPECT_EQ(visit(watch, attempt, {4, 1, 2}).end.status, Status::timed_out);
  EXPECT_EQ(visit(watch, attempt, {5, 1, 2}).samples, (Samples{5000, 5000}));
}

TEST(Stopwatch, what_poll_throws_while_waiting_passes) {
  Rig rig;
  auto policy = rig.policy();
  int polls = 0;
  policy.poll = [&] {
    if (++polls == 5) throw PeerFailed("rank 3");
  };
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(10s); });
  EXPECT_THROW(visit(watch, attempt, {0, 1, 2}), PeerFailed);
}

TEST(Stopwatch, S71_nothing_stays_allocated_on_the_device_after_a_tuning) {
  Rig rig;
  {
    auto watch = rig.watch();
    EXPECT_EQ(rig.device->open_timers(), 1u);
    auto second = rig.watch();
  }
  EXPECT_EQ(rig.device->open_timers(), 0u);
}

TEST(Stopwatch, a_graph_is_captured_once_and_replayed_for_every_run) {
  Rig rig;
  auto policy = rig.policy();
  policy.graph = true;
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) {
    rig.device->launch(5us, 20us);
    rig.device->launch(3us, 20us);
  });
  const auto t = visit(watch, attempt, {0, 1, 2});
  EXPECT_EQ(t.samples, (Samples{8000, 8000}));
  EXPECT_EQ(attempt.runs, 2);
  EXPECT_EQ(attempt.befores, 4);
  EXPECT_EQ(rig.device->log(), (Log{"launch",        "launch",      "synchronize",  //
                                    "begin_capture", "launch",      "launch",      "end_capture",
                                    "replay",        "synchronize",  //
                                    "hold",          "start 0",     "replay",      "stop 0",
                                    "start 1",       "replay",      "stop 1",  //
                                    "release",       "synchronize", "elapsed 0",   "elapsed 1"}));
}

TEST(Stopwatch, a_launcher_that_cannot_be_captured_fails_and_leaves_capture) {
  Rig rig;
  auto policy = rig.policy();
  policy.graph = true;
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->block_until_released(); });
  const auto t = visit(watch, attempt, {0, 1, 2});
  EXPECT_EQ(t.end.status, Status::launch_failed);
  EXPECT_EQ(t.end.reason.substr(0, 14), "graph capture:") << t.end.reason;
  EXPECT_FALSE(rig.device->capturing(nullptr));
}

TEST(Stopwatch, a_device_without_graphs_refuses_the_graph_timer) {
  testing::ScriptedDeviceOptions options;
  options.graphs = false;
  Rig rig(options);
  auto policy = rig.policy();
  policy.graph = true;
  auto watch = rig.watch(policy);
  ScriptedAttempt attempt([&](std::size_t) { rig.device->launch(5us); });
  try {
    visit(watch, attempt, {0, 1, 2});
    FAIL() << "graphs out of nowhere";
  } catch (const Error& e) {
    EXPECT_NE(std::string_view(e.what()).find("timer=\"graph\""), std::string_view::npos);
    EXPECT_NE(std::string_view(e.what()).find("scripted"), std::string_view::npos);
  }
}

TEST(Stopwatch, a_visit_that_does_not_fit_is_refused) {
  Rig rig;
  auto watch = rig.watch(rig.policy(), 2);
  ScriptedAttempt attempt([](std::size_t) {});
  EXPECT_THROW(visit(watch, attempt, {0, 0, 3}), std::logic_error);
  std::vector<std::int64_t> one(1);
  EXPECT_THROW(watch.visit({0, 0, 2}, attempt, one, one), std::logic_error);
}

TEST(Stopwatch, without_a_device_the_host_is_timed) {
  Stopwatch watch({}, {}, 4);
  ScriptedAttempt attempt([](std::size_t) {
    const auto until = std::chrono::steady_clock::now() + 1ms;
    while (std::chrono::steady_clock::now() < until) continue;
  });
  const auto t = visit(watch, attempt, {0, 1, 4});
  EXPECT_EQ(t.end.status, Status::ok);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_GE(t.samples[i], 1'000'000);
    EXPECT_GE(t.host_ns[i], t.samples[i]);
  }
  EXPECT_EQ(watch.mode(), TimingMode::ungated);
  EXPECT_EQ(watch.gate(), "none");
}

}  // namespace
}  // namespace disttune::timing
