// Contextual tuning: kernels decided during runs of an outer function. Time is a script.
#include "disttune/contextual.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <fstream>
#include <map>
#include <thread>

#include "session/rig.hpp"

namespace disttune::test {
namespace {

/// Kernels that take a script's time, and whose launches are noted by kernel and block.
class Contextual : public Session {
 protected:
  auto kernel(const std::string& name, const Space<Tile>& space) {
    return tuned_kernel(
        name, space, [](int n) { return n; },
        [this, name](const Tile& t, int n) { launch(name, t.block, n); });
  }
  void launch(const std::string& name, int block, int n) {
    launches[name].emplace_back(block, n);
    if (on_launch) on_launch(name, block, n);
    clock.advance(std::chrono::nanoseconds(time(name, block)));
  }
  [[nodiscard]] std::size_t launches_of(const std::string& name, int block) const {
    const auto found = launches.find(name);
    if (found == launches.end()) return 0;
    return static_cast<std::size_t>(
        std::ranges::count_if(found->second, [&](const auto& l) { return l.first == block; }));
  }
  [[nodiscard]] ContextualOptions options(int n_warmup = 3, int n_repeat = 5) {
    return {.n_warmup = n_warmup, .n_repeat = n_repeat, .cache = "hot", .clock = clock.reader()};
  }
  [[nodiscard]] std::string log(int rank = 0) const {
    std::ifstream file(root / "context" / ("rank-" + std::to_string(rank) + ".log"));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::map<std::string, std::vector<std::pair<int, int>>> launches;
  std::function<std::int64_t(const std::string&, int)> time = [](const std::string&, int block) {
    return 1000 * block;
  };
  std::function<void(const std::string&, int, int)> on_launch;
};

TEST_F(Contextual, AWrongResultNeverWinsAndTheWinnersFirstRunFindsItsArgumentsPutBack) {
  int sum = 0;
  int looked = 0;
  const auto k = tuned_kernel(
                     "checked", tiles({4, 2, 8}), [](const int&) { return 0; },
                     [this](const Tile& t, int& into) {
                       launch("checked", t.block, into);
                       into += t.block == 2 ? 100 : 1;
                     })
                     .before_each([](int& into) { into = 0; })
                     .check([&](const Tile&, int& into) -> std::optional<std::string> {
                       ++looked;
                       if (into == 1) return std::nullopt;
                       return "wrong sum";
                     });
  contextual("step", options(1, 2), [&](int& into) { k(into); })(sum);
  EXPECT_EQ(looked, 3);
  EXPECT_EQ(sum, 1);
  EXPECT_EQ(launches["checked"].back().first, 4);
  EXPECT_EQ(launches_of("checked", 2), 1u);
}

TEST_F(Contextual, OneKernelTakesExactlyItsStepsAndOneRunMore) {
  const auto k = kernel("k", tiles({4, 2, 8}));
  int passes = 0;
  const auto step = contextual("step", options(2, 3), [&](int n) {
    ++passes;
    k(n);
    return passes;
  });
  EXPECT_EQ(step(7), 3 * (2 + 3) + 1);
  EXPECT_EQ(passes, 16);
  EXPECT_EQ(launches_of("k", 4), 5u);
  EXPECT_EQ(launches_of("k", 8), 5u);
  EXPECT_EQ(launches_of("k", 2), 6u);
  EXPECT_EQ(launches["k"].back().first, 2);
}

TEST_F(Contextual, WhatIsDecidedTakesOnePassAndStaysDecidedOutside) {
  const auto k = kernel("k", tiles({4, 2}));
  int passes = 0;
  const auto step = contextual("step", options(), [&](int n) {
    ++passes;
    k(n);
  });
  step(1);
  passes = 0;
  launches.clear();
  step(1);
  EXPECT_EQ(passes, 1);
  EXPECT_EQ(launches["k"], (std::vector<std::pair<int, int>>{{2, 1}}));
  k(1);
  EXPECT_EQ(launches["k"].back().first, 2);
  EXPECT_EQ(launches["k"].size(), 2u);
}

TEST_F(Contextual, TheCallsResultIsThatOfTheRunWithTheWinners) {
  const auto k = tuned_kernel(
      "k", tiles({4, 2}), [](int n) { return n; },
      [&](const Tile& t, int) {
        launch("k", t.block, 0);
        return t.block;
      });
  const auto step = contextual("step", options(), [&](int n) { return k(n) * 10; });
  EXPECT_EQ(step(1), 20);
}

TEST_F(Contextual, KernelsAdvanceTogetherAndADecidedOneRunsItsWinner) {
  const auto a = kernel("a", tiles({1, 2}));
  const auto b = kernel("b", tiles({4, 2, 3}));
  int passes = 0;
  const auto step = contextual("step", options(1, 1), [&] {
    ++passes;
    a(1);
    b(1);
  });
  step();
  EXPECT_EQ(passes, 3 * 2 + 1);
  EXPECT_EQ(launches_of("a", 2), 2u);
  EXPECT_EQ(launches_of("a", 1), 5u);
  EXPECT_EQ(launches_of("b", 2), 3u);
}

TEST_F(Contextual, TwoKeysInOnePassAreTwoContextsWithTheirOwnArguments) {
  time = [](const std::string&, int block) { return block; };
  const auto k = tuned_kernel(
      "k", tiles({4, 2}), [](int n) { return n; },
      [&](const Tile& t, int n) {
        launches["k"].emplace_back(t.block, n);
        clock.advance(std::chrono::nanoseconds(n == 1 ? 100 * t.block : 1000 / t.block));
      });
  const auto step = contextual("step", options(1, 2), [&] {
    k(1);
    k(2);
  });
  step();
  const auto& all = launches["k"];
  EXPECT_EQ(all.size(), 2u * (2 * 3 + 1));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].second, i % 2 == 0 ? 1 : 2);
  launches.clear();
  step();
  EXPECT_EQ(launches["k"], (std::vector<std::pair<int, int>>{{2, 1}, {4, 2}}));
}

TEST_F(Contextual, SeveralLaunchesInAPassTakeSeveralSteps) {
  const auto k = kernel("k", tiles({4, 2}));
  int passes = 0;
  const auto step = contextual("step", options(1, 2), [&] {
    ++passes;
    for (int i = 0; i < 3; ++i) k(1);
  });
  step();
  EXPECT_EQ(passes, 2 + 1);
  EXPECT_EQ(launches["k"].size(), 9u);
}

TEST_F(Contextual, ManyLaunchesInAPassAreMeasuredInSeveralPasses) {
  const auto k = kernel("k", tiles({4, 2}));
  int passes = 0;
  const auto step = contextual("step", options(0, 50), [&] {
    ++passes;
    for (int i = 0; i < 200; ++i) k(1);
  });
  step();
  EXPECT_EQ(passes, 3);
  EXPECT_EQ(launches["k"].back().first, 2);
}

TEST_F(Contextual, AFailingCandidateGivesWayWithinTheSameLaunch) {
  for (const int failing : {4, 2, 1}) {
    launches.clear();
    const auto k = kernel("k" + std::to_string(failing), tiles({4, 2, 1}));
    on_launch = [&](const std::string&, int block, int) {
      if (block == failing) throw std::runtime_error("no room");
    };
    int passes = 0;
    const auto step = contextual("step", options(1, 1), [&] {
      ++passes;
      k(1);
    });
    step();
    // The last one leaves a launch without a step.
    EXPECT_EQ(passes, 2 * 2 + 1 + (failing == 1)) << failing;
    EXPECT_EQ(launches_of("k" + std::to_string(failing), failing), 1u);
    EXPECT_EQ(launches["k" + std::to_string(failing)].back().first, failing == 1 ? 2 : 1);
  }
  EXPECT_NE(log().find("no room"), std::string::npos);
}

TEST_F(Contextual, WhereNothingWorksTheErrorNamesTheKernelAndEveryReason) {
  const auto k = kernel("gemm", tiles({4, 2}));
  on_launch = [](const std::string&, int block, int) {
    throw std::runtime_error("bad " + std::to_string(block));
  };
  const auto step = contextual("step", options(), [&] { k(1); });
  for (int twice = 0; twice < 2; ++twice) {
    try {
      step();
      FAIL();
    } catch (const NoValidConfig& e) {
      EXPECT_NE(std::string(e.what()).find("gemm"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("bad 4"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("bad 2"), std::string::npos) << e.what();
    }
  }
  on_launch = {};
  step();
  EXPECT_EQ(launches["gemm"].back().first, 2);
}

TEST_F(Contextual, AnExceptionOfTheOuterFunctionEndsTheCallInAnyPass) {
  const auto count_of = [&](int raise_in) {
    launches.clear();
    const auto k = kernel("k", tiles({4, 2}));
    int passes = 0;
    bool raise = true;
    const auto step = contextual("step", options(1, 2), [&] {
      ++passes;
      k(1);
      if (raise && passes == raise_in) throw std::domain_error("the caller's own");
    });
    EXPECT_THROW(step(), std::domain_error);
    EXPECT_EQ(detail::current_pass, nullptr);
    EXPECT_EQ(passes, raise_in);
    raise = false;
    passes = 0;
    step();
    return passes;
  };
  for (int pass = 1; pass <= 6; ++pass) EXPECT_EQ(count_of(pass), 2 * 3 + 1) << pass;
  EXPECT_EQ(count_of(7), 1);  // the winner had been decided
}

TEST_F(Contextual, ACallInsideACallIsRefusedAndNamesBoth) {
  const auto k = kernel("k", tiles({4, 2}));
  const auto inner = contextual("inner call", options(), [&] { k(1); });
  const auto outer = contextual("outer call", options(), [&] { inner(); });
  try {
    outer();
    FAIL();
  } catch (const NestedContext& e) {
    EXPECT_NE(std::string(e.what()).find("inner call"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("outer call"), std::string::npos);
  }
  inner();
  EXPECT_EQ(launches["k"].back().first, 2);
}

TEST_F(Contextual, AKernelThatIsNotReachedAnyMoreEndsUndecided) {
  const auto a = kernel("a", tiles({1, 2}));
  const auto b = kernel("b", tiles({4, 2}));
  int passes = 0;
  const auto step = contextual("step", options(2, 2), [&] {
    if (passes++ == 0) b(1);
    a(1);
  });
  step();
  EXPECT_EQ(passes, 2 * 4 + 1);
  EXPECT_EQ(launches["b"].size(), 1u);
  passes = 0;
  step();
  EXPECT_LE(passes, 6);  // a is decided; b is met once more and given up
}

TEST_F(Contextual, AnOuterFunctionWithANewKeyInEveryPassEndsAllTheSame) {
  const auto a = kernel("a", tiles({1, 2}));
  const auto k = kernel("k", tiles({4, 2}));
  int passes = 0;
  const auto alone = contextual("alone", options(2, 2), [&] { k(100 + passes++); });
  alone();
  EXPECT_EQ(passes, 4 + 1);
  passes = 0;
  const auto beside = contextual("beside", options(2, 2), [&] {
    a(1);
    k(200 + passes++);
  });
  beside();
  EXPECT_EQ(passes, 2 * 4 + 3 + 1);
  EXPECT_EQ(launches["a"].back().first, 1);
  const auto enough = contextual("enough", options(1, 1), [&] {
    for (int i = 0; i < 4; ++i) k(300 + passes);  // decided when first met
    ++passes;
  });
  passes = 0;
  enough();
  EXPECT_EQ(passes, 2);
}

TEST_F(Contextual, AKernelWithANewKeyInsideInEveryRunEndsAllTheSame) {
  const auto inner = kernel("inner", tiles({4, 2, 8}));
  int passes = 0;
  const auto outer = tuned_kernel(
      "outer", tiles({3, 1}), [](int n) { return n; },
      [&](const Tile& t, int n) {
        inner(passes);
        launch("outer", t.block, n);
      });
  const auto step = contextual("step", options(1, 2), [&] {
    ++passes;
    outer(1);
  });
  step();
  EXPECT_EQ(passes, 4 + 1);
}

TEST_F(Contextual, AKernelThatLaunchesAnotherWaitsForIt) {
  const auto inner = kernel("inner", tiles({4, 2, 8}));
  const auto outer = tuned_kernel(
      "outer", tiles({3, 1}), [](int n) { return n; },
      [&](const Tile& t, int n) {
        inner(n);
        launch("outer", t.block, n);
      });
  int passes = 0;
  const auto step = contextual("step", options(1, 2), [&] {
    ++passes;
    outer(1);
  });
  step();
  EXPECT_EQ(launches["inner"].back().first, 2);
  EXPECT_EQ(launches["outer"].back().first, 1);
  EXPECT_LE(passes, 3 * 3 + 2 * 3 + 1);
}

TEST_F(Contextual, BadTimesAreTakenAgain) {
  auto device_clock = std::make_shared<testing::ScriptedClock>();
  auto device = std::make_shared<testing::ScriptedDevice>(device_clock);
  const auto k = tuned_kernel(
                     "k", tiles({4, 2}), [](int n) { return n; },
                     [&](const Tile& t, int) {
                       launches["k"].emplace_back(t.block, 0);
                       device->launch(std::chrono::microseconds(t.block));
                     })
                     .on([&](int) {
                       return Stream{device, nullptr};
                     });
  int passes = 0;
  const auto step = contextual("step", {.n_warmup = 1, .n_repeat = 2}, [&] {
    ++passes;
    k(1);
  });
  device->give_samples({-5, 0});
  step();
  EXPECT_GT(passes, 2 * 3 + 1);
  EXPECT_EQ(launches["k"].back().first, 2);
  EXPECT_EQ(device->open_timers(), 0u);
  EXPECT_FALSE(device->held());
}

TEST_F(Contextual, NewCandidatesAreMeasuredBesideTheStoredBestOnly) {
  const auto run = [&](const Space<Tile>& space) {
    launches.clear();
    const auto k = kernel("k", space);
    auto with = options(1, 2);
    with.persist = true;
    const auto step = contextual("step", with, [&] { k(1); });
    step();
    return launches["k"].back().first;
  };
  EXPECT_EQ(run(tiles({4, 2})), 2);
  EXPECT_EQ(run(tiles({4, 2})), 2);
  EXPECT_EQ(launches["k"].size(), 1u);
  EXPECT_EQ(run(tiles({4, 2, 8, 1})), 1);
  EXPECT_EQ(launches["k"].size(), 3 * 3 + 1u);
  EXPECT_EQ(launches_of("k", 4), 0u);
  EXPECT_EQ(run(tiles({4, 3, 8, 1})), 1);
  EXPECT_EQ(launches["k"].size(), 2 * 3 + 1u);
  EXPECT_EQ(run(tiles({4, 2, 3, 8, 1})), 1);  // what a space lacked once is not forgotten
  EXPECT_EQ(launches["k"].size(), 1u);
}

TEST_F(Contextual, AChoiceStoredUncheckedDoesNotServeACheckedKernel) {
  int looked = 0;
  auto with = options(1, 2);
  with.persist = true;
  const auto run = [&](bool checked) {
    launches.clear();
    auto k = kernel("k", tiles({4, 2}));
    if (checked)
      k = std::move(k).check([&](const Tile& t, int) -> std::optional<std::string> {
        ++looked;
        return t.block == 2 ? std::optional<std::string>("wrong") : std::nullopt;
      });
    contextual("step", with, [&] { k(1); })();
    return launches["k"].back().first;
  };
  EXPECT_EQ(run(false), 2);
  EXPECT_EQ(run(true), 4);
  EXPECT_EQ(looked, 2);
  EXPECT_EQ(run(true), 4) << "the checked choice serves";
  EXPECT_EQ(looked, 2);
}

TEST_F(Contextual, TheRecordSaysHowItWasTuned) {
  const auto device =
      std::make_shared<testing::ScriptedDevice>(std::make_shared<testing::ScriptedClock>());
  const auto k =
      tuned_kernel(
          "k", tiles({4, 2}), [](int n) { return n; },
          [&](const Tile& t, int) { device->launch(std::chrono::microseconds(t.block)); })
          .on([&](int) {
            return Stream{device, nullptr};
          })
          .prepare([](const Tile&, int) {})
          .check([](const Tile&, int) { return std::optional<std::string>(); });
  std::optional<TuningRecord> told;
  detail::run_contextual(
      "step", {.n_warmup = 1, .n_repeat = 2}, [&](detail::Pass&) { k(1); },
      [&](const detail::Launcher&, const Value&, const TuningRecord& t, std::size_t) { told = t; });
  ASSERT_TRUE(told);
  EXPECT_TRUE(told->checked);
  EXPECT_NE(told->gate, "none");
  EXPECT_GT(told->prepare_seconds, 0);
  EXPECT_GT(told->measure_seconds, 0);
}

TEST_F(Contextual, WhatPreparationLaunchesRunsItsDefault) {
  set("WORKERS", "2");
  std::barrier both(2);  // the launch's thread and another one
  std::atomic<int> prepared{0};
  detail::Pass* pass = nullptr;
  std::vector<int> inner_runs;
  std::mutex mutex;
  const auto inner = tuned_kernel(
      "inner", tiles({4, 2}), [](int n) { return n; },
      [&](const Tile& t, int) {
        const std::lock_guard lock(mutex);
        inner_runs.push_back(t.block);
      });
  const auto k = kernel("k", tiles({4, 2})).prepare([&](const Tile&, int) {
    both.arrive_and_wait();
    detail::Pass* const before = std::exchange(detail::current_pass, pass);
    inner(1);
    detail::current_pass = before;
    ++prepared;
  });
  detail::run_contextual("step", options(0, 1), [&](detail::Pass& p) {
    pass = &p;
    k(1);
  });
  EXPECT_EQ(prepared, 2);
  EXPECT_EQ(inner_runs, (std::vector<int>{4, 4}));
}

TEST_F(Contextual, LaunchesOfOtherThreadsMayComeBetweenPasses) {
  constexpr int k_keys = 20;
  std::atomic<int> ran{0};
  const auto k = tuned_kernel(
      "k", tiles({4, 2}), [](int n) { return n; },
      [&](const Tile& t, int) {
        ++ran;
        clock.advance(std::chrono::nanoseconds(1000 * t.block));
      });
  detail::ContextualCall call("step", options(1, 1));
  const auto outer = [&](detail::Pass& p, int n) {
    detail::Pass* const before = std::exchange(detail::current_pass, &p);
    k(n);
    detail::current_pass = before;
  };
  outer(call.pass(), 0);
  std::thread other([&] {
    for (int n = 1; n <= k_keys; ++n)
      for (int launch = 0; launch < 3; ++launch) outer(call.pass(), n);
  });
  call.complete([&](detail::Pass& p) { outer(p, 0); });
  other.join();
  EXPECT_EQ(k.choice(0)->block, 2);
  EXPECT_GE(ran, 2 * 2 + 1 + 3 * k_keys);
}

TEST_F(Contextual, AStoredChoiceOfOtherVersionsServesWithAWarningAndLendsNoSamples) {
  std::string version = "1";
  detail::set_software_provider([&] { return Value::dict({{Value("compiler"), Value(version)}}); });
  const Warnings warnings;
  const auto run = [&](const Space<Tile>& space) {
    launches.clear();
    const auto k = kernel("k", space);
    auto with = options(1, 2);
    with.persist = true;
    contextual("step", with, [&] { k(1); })();
    return launches["k"].back().first;
  };
  EXPECT_EQ(run(tiles({4, 2})), 2);
  version = "2";
  EXPECT_EQ(run(tiles({4, 2})), 2);
  EXPECT_EQ(launches["k"].size(), 1u);
  EXPECT_EQ(warnings.with("under other versions (compiler"), 1u);
  EXPECT_EQ(run(tiles({4, 2, 8})), 2);
  EXPECT_EQ(launches["k"].size(), 3 * 3 + 1u) << "all were measured anew";
  EXPECT_EQ(warnings.with("under other versions"), 1u);
  detail::set_software_provider({});
}

TEST_F(Contextual, AClockThatNeverMovesIsNamed) {
  const auto k = kernel("k", tiles({4, 2}));
  auto with = options(1, 2);
  with.clock = [] { return std::int64_t{7}; };
  with.clock_name = "wall";
  const auto step = contextual("step", with, [&] { k(1); });
  try {
    step();
    FAIL();
  } catch (const NoValidConfig& e) {
    EXPECT_NE(std::string(e.what()).find("the wall clock gave no usable time in 3 repetitions"),
              std::string::npos)
        << e.what();
  }
}

TEST_F(Contextual, TimedLaunchesAreColdAndGated) {
  auto device_clock = std::make_shared<testing::ScriptedClock>();
  auto device = std::make_shared<testing::ScriptedDevice>(device_clock);
  const auto k = tuned_kernel(
                     "k", tiles({2, 1}), [](int n) { return n; },
                     [&](const Tile& t, int) {
                       device->launch(std::chrono::microseconds(t.block),
                                      std::chrono::microseconds(30 / t.block));
                     })
                     .on([&](int) {
                       return Stream{device, nullptr};
                     });
  const auto step = contextual("step", {.n_warmup = 0, .n_repeat = 1}, [&] {
    device->launch(std::chrono::microseconds(7));
    k(1);
  });
  step();
  const auto count = [&](std::string_view what) {
    const auto log = device->log();
    return std::ranges::count_if(log, [&](const auto& l) { return l.starts_with(what); });
  };
  EXPECT_GE(count("hold"), 2);  // a launch that the gate's bound overtook is taken again
  EXPECT_EQ(count("flush"), count("hold"));
  EXPECT_EQ(count("release"), count("hold"));
  // By device time block 1 wins, though its launches take the host longer.
  device->clear_log();
  k(1);
  EXPECT_EQ(count("launch"), 1);
}

TEST_F(Contextual, ModeOffRunsEntryZeroAndTunesNothing) {
  set("MODE", "off");
  const auto k = kernel("k", tiles({4, 2}));
  int passes = 0;
  const auto step = contextual("step", options(), [&] {
    ++passes;
    k(1);
  });
  step();
  EXPECT_EQ(passes, 1);
  EXPECT_EQ(launches["k"], (std::vector<std::pair<int, int>>{{4, 1}}));
  unset("MODE");
  step();
  EXPECT_EQ(launches["k"].back().first, 2);
}

TEST_F(Contextual, ModeStrictNamesTheKernel) {
  set("MODE", "strict");
  const auto k = kernel("k7", tiles({4, 2}));
  const auto step = contextual("step", options(), [&] { k(1); });
  try {
    step();
    FAIL();
  } catch (const NotTuned& e) {
    EXPECT_NE(std::string(e.what()).find("k7"), std::string::npos);
  }
}

TEST_F(Contextual, TheEnvironmentsCountsHoldWhereNoneAreGiven) {
  const auto passes_of = [&](ContextualOptions with) {
    static int n = 0;
    const auto k = kernel("k" + std::to_string(++n), tiles({4, 2}));
    int passes = 0;
    const auto step = contextual("step", std::move(with), [&] {
      ++passes;
      k(1);
    });
    step();
    return passes;
  };
  const auto with = [&](std::optional<int> n_warmup, std::optional<int> n_repeat) {
    return ContextualOptions{
        .n_warmup = n_warmup, .n_repeat = n_repeat, .cache = "hot", .clock = clock.reader()};
  };
  EXPECT_EQ(passes_of(with({}, {})), 2 * (3 + 5) + 1);
  set("WARMUP", "1");
  set("REPEAT", "2");
  EXPECT_EQ(passes_of(with({}, {})), 2 * (1 + 2) + 1);
  EXPECT_EQ(passes_of(with(2, {})), 2 * (2 + 2) + 1);
  EXPECT_EQ(passes_of(with({}, 4)), 2 * (1 + 4) + 1);
  unset("WARMUP");
  unset("REPEAT");
}

TEST_F(Contextual, TheBudgetEndsTheTuningBetweenCandidates) {
  set("BUDGET", "0.000001");
  const auto k = kernel("k", tiles({4, 2, 1}));
  int passes = 0;
  std::vector<CandidateRecord> candidates;
  std::vector<std::string> quality;
  detail::run_contextual(
      "step", options(1, 2),
      [&](detail::Pass&) {
        ++passes;
        k(1);
      },
      [&](const detail::Launcher&, const Value&, const TuningRecord& tuning, std::size_t) {
        candidates = tuning.candidates;
        quality = tuning.quality;
      });
  unset("BUDGET");
  EXPECT_EQ(passes, 3 + 1);
  EXPECT_EQ(launches["k"].back().first, 4);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[0].status, Status::ok);
  EXPECT_EQ(candidates[1].status, Status::skipped);
  EXPECT_NE(candidates[2].reason.find("budget"), std::string::npos);
  EXPECT_EQ(quality, std::vector<std::string>{"budget"});
}

TEST_F(Contextual, CountsAreCheckedWhenTheCallIsMade) {
  const auto nothing = [] {};
  EXPECT_THROW(std::ignore = contextual("s", {.n_repeat = 0}, nothing), std::invalid_argument);
  EXPECT_THROW(std::ignore = contextual("s", {.n_warmup = -1}, nothing), std::invalid_argument);
  EXPECT_THROW(std::ignore = contextual("s", {.cache = "warm"}, nothing), std::invalid_argument);
}

TEST_F(Contextual, AFolderThatCannotBeWrittenCostsTheLogOnly) {
  std::ofstream(root / "file") << "x";
  set("CONTEXT_LOGS", (root / "file" / "below").string());
  const auto k = kernel("k", tiles({4, 2}));
  const auto step = contextual("step", options(), [&] { k(1); });
  step();
  EXPECT_EQ(launches["k"].back().first, 2);
}

TEST_F(Contextual, TheLogHasOneLineAStepAndIsAppended) {
  const auto k = kernel("k", tiles({4, 2}));
  const auto step = contextual("step", options(1, 2), [&](int n) { k(n); });
  step(1);
  const auto lines = [&] { return std::ranges::count(log(), '\n'); };
  EXPECT_EQ(lines(), 2 * 3 + 1);
  step(2);
  EXPECT_EQ(lines(), 2 * (2 * 3 + 1));
  EXPECT_NE(log().find("decided: candidate 1"), std::string::npos);
}

TEST_F(Contextual, S1AnotherKeyIsTunedForItself) {
  const auto k = tuned_kernel(
      "k", tiles({4, 2}), [](int n, std::string dtype) { return std::tuple(n, dtype); },
      [&](const Tile& t, int n, const std::string& dtype) {
        launches[dtype].emplace_back(t.block, n);
        clock.advance(std::chrono::nanoseconds(dtype == "fp16" ? t.block : 100 - t.block));
      });
  const auto step = contextual("step", options(), [&](const std::string& d) { k(1, d); });
  step("fp16");
  step("fp32");
  EXPECT_EQ(launches["fp16"].back().first, 2);
  EXPECT_EQ(launches["fp32"].back().first, 4);
}

TEST_F(Contextual, S61TheOrderOfCandidatesDoesNotDecide) {
  for (const auto& order : {std::array{4, 2, 8}, std::array{8, 2, 4}}) {
    const auto k = kernel("k", Space<Tile>({{order[0]}, {order[1]}, {order[2]}}));
    const auto step = contextual("step", options(), [&] { k(1); });
    step();
    EXPECT_EQ(launches["k"].back().first, 2);
  }
}

}  // namespace
}  // namespace disttune::test
