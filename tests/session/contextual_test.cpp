// Contextual tuning: kernels decided during runs of an outer function. Time is a script.
#include "disttune/contextual.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <fstream>
#include <map>
#include <thread>

#include "core/group_state.hpp"
#include "core/run_clock.hpp"
#include "disttune/testing/ranks.hpp"
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

// ---- ranks as threads ------------------------------------------------------------------------

/// Every rank has a clock, kernels and launches of its own.
class ContextualRanks : public Session {
 protected:
  static constexpr int k_ranks = 2;
  struct Rank {
    testing::ScriptedClock clock;
    std::map<std::string, std::vector<int>> launches;
    int passes = 0;
  };
  Rank& at(int r) { return ranks[static_cast<std::size_t>(r)]; }

  auto kernel(int r, const std::string& name, const Space<Tile>& space) {
    return tuned_kernel(
        name, space, [](int n) { return n; },
        [this, r, name](const Tile& t, int) {
          at(r).launches[name].push_back(t.block);
          if (fails && fails(r, name, t.block)) throw std::runtime_error("fails here");
          at(r).clock.advance(std::chrono::nanoseconds(cost(r, name, t.block)));
        });
  }
  ContextualOptions options(ProcessGroup& g, int n_warmup = 2, int n_repeat = 3) {
    return {.n_warmup = n_warmup,
            .n_repeat = n_repeat,
            .group = &g,
            .cache = "hot",
            .clock = at(g.rank()).clock.reader()};
  }

  std::array<Rank, k_ranks> ranks;
  testing::Ranks group{k_ranks};
  std::function<std::int64_t(int, const std::string&, int)> cost =
      [](int, const std::string&, int block) { return 1000 * block; };
  std::function<bool(int, const std::string&, int)> fails;
};

TEST_F(ContextualRanks, WhatAKernelChoseAloneDoesNotCountInTheCall) {
  cost = [](int r, const std::string&, int block) {
    return block == 2 ? 150 : block == (r == 0 ? 1 : 4) ? 100 : 900;
  };
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = tuned_kernel(
                       "k", tiles({1, 2, 4}), [](int n) { return n; },
                       [this, r = g.rank()](const Tile& t, int) {
                         at(r).launches["k"].push_back(t.block);
                         at(r).clock.advance(std::chrono::nanoseconds(cost(r, "k", t.block)));
                       })
                       .timer(at(g.rank()).clock.reader())
                       .store((root / std::to_string(g.rank())).string());
    k(1);
    contextual("step", options(g), [&] { k(1); })();
    k(1);
  });
  for (int r = 0; r < k_ranks; ++r) {
    EXPECT_EQ(testing::what(errors[static_cast<std::size_t>(r)]), "");
    const auto& blocks = at(r).launches["k"];
    EXPECT_EQ(blocks[blocks.size() - 2], 2) << "the call's last run";
    EXPECT_EQ(blocks.back(), 2) << "a call by itself afterwards";
  }
}

TEST_F(ContextualRanks, TheSlowestRankDecides) {
  // Rank 0 alone would take 1, rank 1 alone 4; the maximum is least for 2.
  cost = [](int r, const std::string&, int block) { return r == 0 ? block * 100 : 500 / block; };
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), "k", tiles({1, 2, 4}));
    const auto step = contextual("step", options(g), [&] {
      ++at(g.rank()).passes;
      k(1);
    });
    step();
  });
  for (int r = 0; r < k_ranks; ++r) {
    EXPECT_EQ(testing::what(errors[static_cast<std::size_t>(r)]), "");
    EXPECT_EQ(at(r).launches["k"].back(), 2);
    EXPECT_LE(at(r).passes, 1 + 3 * 5 + 1);
  }
  EXPECT_EQ(at(0).passes, at(1).passes);
}

TEST_F(ContextualRanks, ACandidateThatFailsOnOneRankIsLaunchedNoMoreAnywhere) {
  for (const int failing : {1, 2, 4}) {
    for (auto& rank : ranks) rank.launches.clear();
    fails = [&](int r, const std::string&, int block) { return r == 1 && block == failing; };
    const auto errors = group.run([&](ProcessGroup& g) {
      const auto k = kernel(g.rank(), "k" + std::to_string(failing), tiles({1, 2, 4}));
      const auto step = contextual("step", options(g), [&] { k(1); });
      step();
    });
    for (int r = 0; r < k_ranks; ++r) {
      EXPECT_EQ(testing::what(errors[static_cast<std::size_t>(r)]), "");
      const auto& mine = at(r).launches["k" + std::to_string(failing)];
      EXPECT_EQ(mine.back(), failing == 1 ? 2 : 1);
      EXPECT_LE(std::ranges::count(mine, failing), 1) << "rank " << r;
    }
  }
}

TEST_F(ContextualRanks, AFailureInATimedRunEndsTheCandidateAndKeepsTheRanksTogether) {
  std::array<std::atomic<int>, k_ranks> of_one{};
  fails = [&](int r, const std::string&, int block) {
    return block == 1 && ++of_one[static_cast<std::size_t>(r)] == 4 && r == 0;
  };
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), "k", tiles({2, 1, 4}));
    const auto step = contextual("step", options(g), [&] {
      ++at(g.rank()).passes;
      k(1);
    });
    step();
  });
  for (int r = 0; r < k_ranks; ++r) {
    EXPECT_EQ(testing::what(errors[static_cast<std::size_t>(r)]), "");
    EXPECT_EQ(at(r).launches["k"].back(), 2);
  }
  EXPECT_EQ(at(0).passes, at(1).passes);
}

TEST_F(ContextualRanks, WhereNothingWorksAllRanksSaySoAndTheGroupGoesOn) {
  // On every rank, on one of two only, and each candidate on another rank; untimed and timed.
  const std::vector<std::function<bool(int, int)>> ways{
      [](int, int) { return true; },
      [](int r, int) { return r == 1; },
      [](int r, int block) { return (r == 0) == (block == 1); },
  };
  int n = 0;
  for (const auto& way : ways)
    for (const int from : {1, 2, 4}) {
      const std::string name = "k" + std::to_string(++n);
      std::array<std::map<int, int>, k_ranks> counts;
      fails = [&](int r, const std::string& kernel, int block) {
        auto& mine = counts[static_cast<std::size_t>(r)][block];
        return kernel == name && ++mine >= from && way(r, block);
      };
      const auto errors = group.run([&](ProcessGroup& g) {
        const auto k = kernel(g.rank(), name, tiles({1, 2}));
        const auto step = contextual("step", options(g), [&] { k(1); });
        EXPECT_THROW(step(), NoValidConfig) << name;
        const auto next = kernel(g.rank(), "next" + name, tiles({1, 2}));
        const auto good = contextual("good", options(g), [&] { next(1); });
        good();
      });
      for (const auto& e : errors) EXPECT_EQ(testing::what(e), "") << name;
    }
}

TEST_F(ContextualRanks, WhereNothingWorksTheOuterFunctionsOwnErrorIsNotTold) {
  fails = [](int r, const std::string&, int) { return r == 1; };
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), "k", tiles({1, 2}));
    const auto step = contextual("step", options(g), [&] {
      try {
        k(1);
      } catch (const Error&) {
        throw std::domain_error("made of it");
      }
    });
    step();
  });
  EXPECT_NE(testing::what(errors[0]).find("no valid configuration for 'k'"), std::string::npos);
  EXPECT_NE(testing::what(errors[0]).find("on rank 1"), std::string::npos);
  EXPECT_EQ(testing::what(errors[0]), testing::what(errors[1]));
}

TEST_F(ContextualRanks, DifferentLaunchesAreTheSameErrorEverywhere) {
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), "k", tiles({1, 2}));
    const auto step = contextual("step", options(g), [&] {
      k(1);
      if (g.rank() == 1 && ++at(1).passes == 3) k(1);
    });
    step();
  });
  EXPECT_NE(testing::what(errors[0]).find("launches"), std::string::npos);
  EXPECT_EQ(testing::what(errors[0]), testing::what(errors[1]));
}

TEST_F(ContextualRanks, DifferentKernelsAreTheSameErrorEverywhere) {
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), g.rank() == 0 ? "gemm" : "norm", tiles({1, 2}));
    const auto step = contextual("step", options(g), [&] { k(1); });
    step();
  });
  EXPECT_NE(testing::what(errors[0]).find("gemm"), std::string::npos);
  EXPECT_EQ(testing::what(errors[0]), testing::what(errors[1]));
}

TEST_F(ContextualRanks, AKernelWithACheckOnOneRankIsTheSameErrorEverywhere) {
  const auto errors = group.run([&](ProcessGroup& g) {
    auto k = kernel(g.rank(), "k", tiles({1, 2}));
    if (g.rank() == 1)
      k = std::move(k).check([](const Tile&, int) { return std::optional<std::string>(); });
    contextual("step", options(g, 0, 1), [&] { k(1); })();
  });
  EXPECT_NE(testing::what(errors[0]).find("checks of tuned kernels"), std::string::npos)
      << testing::what(errors[0]);
  EXPECT_EQ(testing::what(errors[0]), testing::what(errors[1]));
}

/// The first launch throws over the prune function on those ranks, and the outer function goes on.
class SwallowedFirstLaunch : public ContextualRanks {
 protected:
  /// The call itself, which may live on; `end` is called while it does.
  void call(ProcessGroup& g, bool broken, const std::function<void()>& end) {
    const auto k = kernel(g.rank(), "k", tiles({1, 2})).prune([=](const Tile&, int) {
      if (broken) throw std::domain_error("cannot say");
      return true;
    });
    detail::ContextualCall contextual_call("step", options(g));
    const auto outer = [&](detail::Pass& pass) {
      detail::Pass* const before = std::exchange(detail::current_pass, &pass);
      try {
        k(1);
      } catch (const std::domain_error&) {
        ++at(g.rank()).passes;
      }
      detail::current_pass = before;
    };
    outer(contextual_call.pass());
    contextual_call.complete(outer);
    end();
  }
};

TEST_F(SwallowedFirstLaunch, OnAllRanksLeavesTheGroupFreeWhenTheCallEnds) {
  const auto errors = group.run([&](ProcessGroup& g) {
    call(g, true, [&] {
      EXPECT_EQ(g.state().owner, std::thread::id());
      barrier(g);
    });
    EXPECT_EQ(at(g.rank()).passes, 1);
  });
  for (const auto& error : errors) EXPECT_EQ(testing::what(error), "");
}

TEST_F(SwallowedFirstLaunch, OnOneRankIsToldToThoseThatTune) {
  const auto errors = group.run([&](ProcessGroup& g) { call(g, g.rank() == 1, [] {}); });
  EXPECT_EQ(testing::what(errors[1]), "");
  EXPECT_THROW(std::rethrow_exception(errors[0]), PeerFailed);
  EXPECT_NE(testing::what(errors[0]).find("nothing to decide"), std::string::npos)
      << testing::what(errors[0]);
}

TEST_F(ContextualRanks, AFirstLaunchOfAnotherThreadLeavesNothingOnThatThread) {
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), "k", tiles({1, 2}));
    const auto step = contextual("step", options(g), [&] {
      detail::Pass* const pass = detail::current_pass;
      std::thread([&, pass] {
        detail::current_pass = pass;
        k(1);
        core::RunClock::run_begins();
        EXPECT_FALSE(core::RunClock::in_run()) << "nobody waits for this thread";
      }).join();
    });
    step();
    barrier(g);
  });
  for (const auto& error : errors) EXPECT_EQ(testing::what(error), "");
}

TEST_F(ContextualRanks, DifferentFirstRunsAreNamedByWhatDiffers) {
  using Outer = std::function<void()>;
  using Step = std::function<void(const Outer&)>;
  const auto said = [&](const std::function<void(int, const Step&)>& body) {
    const auto errors = group.run([&](ProcessGroup& g) {
      body(g.rank(), [&](const Outer& outer) { contextual("step", options(g), outer)(); });
    });
    EXPECT_EQ(testing::what(errors[0]), testing::what(errors[1]));
    return testing::what(errors[0]);
  };
  const auto expect = [](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto times = said([&](int r, const Step& step) {
    const auto k = kernel(r, "k", tiles({1, 2}));
    step([&] {
      for (int i = 0; i <= r; ++i) k(7);
    });
  });
  expect(times, "number of launches of each tuned kernel and key in a pass of 'step'");
  expect(times, "\"k 7\": 1 | 2");
  const auto keys = said([&](int r, const Step& step) {
    const auto k = kernel(r, "k", tiles({1, 2}));
    step([&] { k(7 + r); });
  });
  expect(keys, "keys of tuned kernels");
  expect(keys, "only in the first: \"k 7\"; only in the second: \"k 8\"");
  const auto names = said([&](int r, const Step& step) {
    const auto k = kernel(r, r == 0 ? "gemm" : "norm", tiles({1, 2}));
    step([&] { k(7); });
  });
  expect(names, "tuned kernels launched in a pass of 'step'");
  expect(names, "only in the first: \"gemm\"; only in the second: \"norm\"");
  const auto space = said([&](int r, const Step& step) {
    const auto other = kernel(r, "a", tiles({1, 2}));
    const auto k = kernel(r, "k", r == 0 ? tiles({1, 2}) : tiles({1, 2, 3}));
    step([&] {
      other(7);
      k(7);
    });
  });
  expect(space, "candidates of kernel 'k' with key 7");
  expect(space, "their entries, 2 | 3; only in the second: ");
  const auto order = said([&](int r, const Step& step) {
    const auto k = kernel(r, "k", r == 0 ? tiles({1, 2}) : tiles({2, 1}));
    step([&] { k(7); });
  });
  expect(order, "the same entries in another order");
}

TEST_F(ContextualRanks, AnExceptionOnOneRankReachesTheOthersAndWarmCallsGoOn) {
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto warm = kernel(g.rank(), "warm", tiles({1, 2}));
    const auto steady = contextual("steady", options(g), [&] { warm(1); });
    steady();
    const auto k = kernel(g.rank(), "k", tiles({1, 2}));
    const auto step = contextual("step", options(g), [&] {
      k(1);
      if (g.rank() == 0 && ++at(0).passes == 3) throw std::domain_error("the caller's own");
    });
    if (g.rank() == 0)
      EXPECT_THROW(step(), std::domain_error);
    else
      EXPECT_THROW(step(), PeerFailed);
    steady();
    EXPECT_THROW(step(), PeerFailed);  // the group is closed for what is cold
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
}

TEST_F(ContextualRanks, DifferentModesAreTheSameErrorEverywhere) {
  for (const char* mode : {"off", "cached", "first", "strict"}) {
    std::atomic<int> turn{0};
    const auto wait_for = [&](int t) {
      while (turn != t) std::this_thread::yield();
    };
    const auto errors = group.run([&](ProcessGroup& g) {
      const auto k = kernel(g.rank(), "k", tiles({1, 2}));
      const auto step = contextual("step", options(g), [&] {
        struct Next {
          std::atomic<int>& t;
          ~Next() { ++t; }
        };
        if (g.rank() == 1) wait_for(1);
        {
          const Next next{turn};
          if (g.rank() == 1) set("MODE", mode);
          k(1);
        }
        if (g.rank() == 0) wait_for(2);
      });
      step();
    });
    unset("MODE");
    EXPECT_NE(testing::what(errors[0]).find("disagree about the MODE"), std::string::npos)
        << testing::what(errors[0]);
    EXPECT_EQ(testing::what(errors[0]), testing::what(errors[1])) << mode;
  }
}

TEST_F(ContextualRanks, RanksThatAllDoNotTuneCompareTheirModesOnce) {
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), "k", tiles({1, 2}));
    const auto step = contextual("step", options(g), [&] { k(1); });
    barrier(g);
    if (g.rank() == 0) set("MODE", "off");
    barrier(g);
    step();
    const auto before = group.reductions(g.rank());
    step();
    EXPECT_EQ(group.reductions(g.rank()), before);
    barrier(g);
    if (g.rank() == 0) set("MODE", "strict");
    barrier(g);
    EXPECT_THROW(step(), NotTuned);
    EXPECT_THROW(step(), NotTuned);
    barrier(g);
    if (g.rank() == 0) unset("MODE");
    barrier(g);
    step();
    EXPECT_EQ(at(g.rank()).launches["k"].back(), 1);
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
}

TEST_F(ContextualRanks, NewCandidatesAreMeasuredBesideTheStoredBestOnly) {
  const auto run = [&](const Space<Tile>& space, std::vector<int>& blocks) {
    for (auto& rank : ranks) rank.launches.clear();
    const auto errors = group.run([&](ProcessGroup& g) {
      const auto k = kernel(g.rank(), "k", space);
      auto with = options(g);
      with.persist = true;
      const auto step = contextual("step", with, [&] { k(1); });
      step();
    });
    for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
    EXPECT_EQ(at(0).launches["k"], at(1).launches["k"]);
    blocks = at(0).launches["k"];
  };
  std::vector<int> blocks;
  run(tiles({4, 2}), blocks);
  run(tiles({4, 2}), blocks);
  EXPECT_EQ(blocks, (std::vector<int>{4, 2}));
  run(tiles({4, 2, 1}), blocks);
  EXPECT_EQ(blocks.back(), 1);
  EXPECT_EQ(std::ranges::count(blocks, 4), 1);  // while the ranks had not spoken
  run(tiles({8, 4, 2, 1}), blocks);
  EXPECT_EQ(blocks.back(), 1);
  EXPECT_EQ(std::ranges::count(blocks, 4) + std::ranges::count(blocks, 2), 0);
}

TEST_F(ContextualRanks, AClockThatNeverMovesOnOneRankIsNamedOnAll) {
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), "k", tiles({1, 2}));
    auto with = options(g);
    with.clock_name = "wall";
    if (g.rank() == 1) with.clock = [] { return std::int64_t{7}; };
    const auto step = contextual("step", with, [&] { k(1); });
    EXPECT_THROW(step(), NoValidConfig);
    step();
  });
  for (const auto& e : errors)
    EXPECT_NE(testing::what(e).find("the wall clock gave no usable time"), std::string::npos)
        << testing::what(e);
}

TEST_F(ContextualRanks, ANewKeyInEveryPassEndsTheCallAlike) {
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto a = kernel(g.rank(), "a", tiles({1, 2}));
    const auto k = kernel(g.rank(), "k", tiles({4, 2}));
    const auto step = contextual("step", options(g), [&] {
      a(1);
      k(100 + at(g.rank()).passes++);
    });
    step();
  });
  for (int r = 0; r < k_ranks; ++r) {
    EXPECT_EQ(testing::what(errors[static_cast<std::size_t>(r)]), "");
    EXPECT_EQ(at(r).launches["a"].back(), 1);
    EXPECT_LE(at(r).passes, 1 + 2 * 5 + 3 + 1);
  }
  EXPECT_EQ(at(0).passes, at(1).passes);
}

TEST_F(ContextualRanks, S40TwoKernelsWithNoisyClocksAreDecidedAlike) {
  std::array<std::atomic<unsigned>, k_ranks> noise{1u, 77u};
  cost = [&](int r, const std::string&, int block) {
    auto& state = noise[static_cast<std::size_t>(r)];
    state = state * 1664525u + 1013904223u;
    return 1000 + block + static_cast<std::int64_t>(state % 300);
  };
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto a = kernel(g.rank(), "a", tiles({1, 2, 3}));
    const auto b = kernel(g.rank(), "b", tiles({1, 2, 3, 4}));
    const auto step = contextual("step", options(g), [&] {
      ++at(g.rank()).passes;
      a(1);
      b(1);
    });
    step();
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
  EXPECT_EQ(at(0).launches["a"].back(), at(1).launches["a"].back());
  EXPECT_EQ(at(0).launches["b"].back(), at(1).launches["b"].back());
  EXPECT_EQ(at(0).passes, at(1).passes);
  EXPECT_EQ(group.reductions(0), group.reductions(1));
}

TEST_F(ContextualRanks, ASteadyCallReducesNothing) {
  const auto errors = group.run([&](ProcessGroup& g) {
    const auto k = kernel(g.rank(), "k", tiles({1, 2}));
    const auto step = contextual("step", options(g), [&] { k(1); });
    step();
    const auto before = group.reductions(g.rank());
    step();
    step();
    EXPECT_EQ(group.reductions(g.rank()), before);
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
}

}  // namespace
}  // namespace disttune::test
