// Contextual tuning with ranks, which are threads here. Time is a script.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <map>
#include <thread>

#include "core/group_state.hpp"
#include "core/run_clock.hpp"
#include "disttune/contextual.hpp"
#include "session/contextual_rig.hpp"

namespace disttune::test {
namespace {

/// … and kernels that cost and fail as a test says, by rank.
class ContextualRanks : public KernelsOnRanks {
 protected:
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
