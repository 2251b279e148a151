// Contextual tuning where several things meet: kernels beside and below each other, launchers that
// tune themselves, ranks that do not tune. Time is a script.
#include <algorithm>
#include <array>
#include <fstream>
#include <map>

#include "disttune/contextual.hpp"
#include "session/contextual_rig.hpp"

namespace disttune::test {
namespace {

class ContextualTogether : public Session {
 protected:
  auto kernel(const std::string& name, const Space<Tile>& space) {
    return tuned_kernel(
        name, space, [](int n) { return n; },
        [this, name](const Tile& t, int n) {
          launches[name].push_back(t.block);
          if (on_launch) on_launch(name, t.block, n);
          clock.advance(std::chrono::nanoseconds(1000 * t.block));
        });
  }
  /// Launches `inner` with its own block as the key.
  template <class Inner>
  auto above(const Inner& inner, const Space<Tile>& space) {
    return tuned_kernel(
        "outer", space, [](int n) { return n; },
        [this, &inner](const Tile& t, int) {
          launches["outer"].push_back(t.block);
          inner(t.block);
          clock.advance(std::chrono::nanoseconds(t.block));
        });
  }
  [[nodiscard]] ContextualOptions options(int n_warmup = 1, int n_repeat = 2) {
    return {.n_warmup = n_warmup, .n_repeat = n_repeat, .cache = "hot", .clock = clock.reader()};
  }

  std::map<std::string, std::vector<int>> launches;
  std::function<void(const std::string&, int, int)> on_launch;
};

TEST_F(ContextualTogether, WhatADecidedKernelChangesIsPutBackWhileOthersAreTuned) {
  int sum = 0;
  const auto adds = tuned_kernel(
                        "adds", tiles({2, 1}), [](const int&) { return 0; },
                        [this](const Tile& t, int& into) {
                          clock.advance(std::chrono::nanoseconds(t.block));
                          ++into;
                        })
                        .before_each([](int& into) { into = 0; });
  const auto longer = kernel("longer", tiles({4, 2, 3, 1}));
  std::vector<int> sums;
  contextual("step", options(), [&](int& into) {
    adds(into);
    longer(1);
    sums.push_back(into);
  })(sum);
  EXPECT_EQ(sums, std::vector<int>(4 * 3 + 1, 1));
}

TEST_F(ContextualTogether, AllDataInWhichTheTuningLeftSomethingArePutBackOnce) {
  const auto adds = tuned_kernel(
                        "adds", tiles({2, 1}), [](const std::vector<int>&, int*) { return 0; },
                        [this](const Tile& t, std::vector<int>& into, int* count) {
                          clock.advance(std::chrono::nanoseconds(t.block));
                          ++into[0];
                          ++*count;
                        })
                        .before_each([](std::vector<int>& into, int*) { into[0] = 0; });
  std::array<std::vector<int>, 3> sums{{{0}, {0}, {0}}};
  std::array<int, 3> counts{};
  const auto step = contextual("step", options(), [&] {
    for (int twice = 0; twice < 2; ++twice)
      for (std::size_t i = 0; i < sums.size(); ++i) adds(sums[i], &counts[i]);
  });
  step();
  for (const auto& sum : sums) EXPECT_EQ(sum[0], 2);
  step();
  for (const auto& sum : sums) EXPECT_EQ(sum[0], 4) << "decided: nothing is put back";
}

TEST_F(ContextualTogether, AKernelOfWhichNothingWorksFailsTheCandidateThatLaunchesIt) {
  const auto inner = kernel("inner", tiles({4, 2}));
  const auto outer = above(inner, tiles({30, 10, 20}));
  on_launch = [](const std::string&, int, int n) {
    if (n == 30) throw std::runtime_error("too large");
  };
  contextual("step", options(), [&] { outer(1); })();
  EXPECT_EQ(launches["outer"].back(), 10);
  EXPECT_EQ(launches["inner"].back(), 2);
}

TEST_F(ContextualTogether, AnOuterFunctionMayFallBackWhereNothingWorks) {
  const auto bad = kernel("bad", tiles({4, 2}));
  const auto good = kernel("good", tiles({4, 2}));
  on_launch = [](const std::string& name, int, int) {
    if (name == "bad") throw std::runtime_error("no");
  };
  int fallbacks = 0;
  const auto step = contextual("step", options(), [&] {
    try {
      bad(1);
    } catch (const NoValidConfig&) {
      ++fallbacks;
    }
    good(1);
  });
  step();
  EXPECT_EQ(launches["good"].back(), 2);
  EXPECT_EQ(fallbacks, 2 * 3 + 1);
}

TEST_F(ContextualTogether, ALauncherKeepsNoSamplesInWhichAKernelTriedAnother) {
  const auto k = kernel("k", tiles({4, 2, 8}));
  const auto launcher = autotune(
                            "launcher", tiles({1, 2}), [](int n) { return n; },
                            [&](const Tile& t, int n) {
                              k(n);
                              clock.advance(std::chrono::nanoseconds(100 * (3 - t.block)));
                            })
                            .version("1")
                            .timer(clock.reader());
  contextual("step", options(), [&] { launcher(1); })();
  const auto record = launcher.result(1);
  ASSERT_TRUE(record);
  for (const CandidateRecord& c : record->tunings.front().candidates)
    for (const std::int64_t ns : c.samples_ns) EXPECT_EQ(ns, c.samples_ns.front());
  EXPECT_EQ(record->tunings.front().winner, to_config(Tile{2}).identity());
}

TEST_F(ContextualTogether, ARecordSaysHowItWasMeasured) {
  auto device_clock = std::make_shared<testing::ScriptedClock>();
  auto device = std::make_shared<testing::ScriptedDevice>(device_clock);
  const auto k =
      tuned_kernel(
          "k", tiles({4, 2}), [](int n) { return n; },
          [&](const Tile& t, int) { device->launch(std::chrono::microseconds(t.block)); })
          .on([&](int) {
            return Stream{device, nullptr};
          });
  TuningRecord told;
  detail::run_contextual(
      "step", {.n_warmup = 1, .n_repeat = 2}, [&](detail::Pass&) { k(1); },
      [&](const detail::Launcher&, const Value&, const TuningRecord& tuning, std::size_t) {
        told = tuning;
      });
  ASSERT_EQ(told.candidates.size(), 2u);
  for (const CandidateRecord& c : told.candidates) EXPECT_EQ(c.host_ns.size(), c.samples_ns.size());
  ASSERT_EQ(told.rank_medians.size(), 1u);
  EXPECT_EQ(told.rank_medians[0].median_ns, 2000);
  EXPECT_GT(told.measure_seconds, 0);
  EXPECT_NE(told.gate, "none");
}

TEST_F(ContextualTogether, AFailuresReasonStaysOnItsLineOfTheLog) {
  const auto k = kernel("k", tiles({4, 2}));
  on_launch = [](const std::string&, int block, int) {
    if (block == 4) throw std::runtime_error("one\r\ntwo \x1b[31mred");
  };
  contextual("step", options(), [&] { k(1); })();
  std::ifstream file(root / "context" / "rank-0.log");
  const std::string log{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(std::ranges::count(log, '\n'), 1 + 3 + 1) << log;
  EXPECT_NE(log.find("one\\x0d\\ntwo \\x1b[31mred"), std::string::npos) << log;
}

TEST_F(ContextualTogether, ModesThatDoNotTuneTakeTheStoredChoice) {
  auto with = options();
  with.persist = true;
  const auto run = [&] {
    launches.clear();
    const auto k = kernel("k", tiles({4, 2}));  // as another process has it
    contextual("step", with, [&] { k(1); })();
    return launches["k"];
  };
  const Warnings warnings;
  set("MODE", "strict");
  EXPECT_THROW(run(), NotTuned);
  set("MODE", "cached");
  EXPECT_EQ(run(), std::vector<int>{4});
  EXPECT_EQ(warnings.with("MODE=cached"), 1u);
  unset("MODE");
  EXPECT_EQ(run().back(), 2);
  for (const char* mode : {"cached", "strict"}) {
    set("MODE", mode);
    EXPECT_EQ(run(), std::vector<int>{2}) << mode;
  }
  unset("MODE");
}

// ---- ranks as threads ------------------------------------------------------------------------

class RanksTogether : public KernelsOnRanks {
 protected:
  auto kernel(int r, const std::string& name, const Space<Tile>& space) {
    return tuned_kernel(
        name, space, [](int n) { return n; },
        [this, r, name](const Tile& t, int n) {
          at(r).launches[name].push_back(t.block);
          if (fails && fails(r, name, t.block, n)) throw std::runtime_error("fails here");
          at(r).clock.advance(std::chrono::nanoseconds(cost(name, t.block, n)));
        });
  }
  /// The same on all ranks, without an exception.
  std::string said(const std::function<void(ProcessGroup&)>& body) {
    const auto errors = group.run(body);
    EXPECT_EQ(testing::what(errors[0]), testing::what(errors[1]));
    return testing::what(errors[0]);
  }
  ContextualOptions options(ProcessGroup& g, bool persist = false) {
    return {.n_warmup = 1,
            .n_repeat = 2,
            .group = &g,
            .cache = "hot",
            .clock = at(g.rank()).clock.reader(),
            .persist = persist};
  }

  std::function<std::int64_t(const std::string&, int, int)> cost = [](const std::string&, int block,
                                                                      int) { return 1000 * block; };
  std::function<bool(int, const std::string&, int, int)> fails;
};

TEST_F(RanksTogether, WhatModeFirstRunsIsAgreedAndRemembered) {
  set("MODE", "first");
  fails = [](int r, const std::string&, int block, int) { return r == 1 && block == 4; };
  EXPECT_EQ(said([&](ProcessGroup& g) {
              Rank& me = at(g.rank());
              const auto k = kernel(g.rank(), "k", tiles({4, 2, 1}));
              const auto step = contextual("step", options(g), [&] {
                ++me.passes;
                k(1);
              });
              step();
              EXPECT_EQ(me.launches["k"].back(), 2);
              const auto reductions = group.reductions(g.rank());
              me.passes = 0;
              step();
              EXPECT_EQ(me.launches["k"].back(), 2);
              EXPECT_EQ(me.passes, 1);
              EXPECT_EQ(group.reductions(g.rank()), reductions);
            }),
            "");
  EXPECT_EQ(std::ranges::count(at(0).launches["k"], 4), 1) << "before the ranks had spoken";
}

TEST_F(RanksTogether, ModesThatDoNotTuneCompareTheirCandidates) {
  for (const char* mode : {"off", "first", "cached", "strict"}) {
    set("MODE", mode);
    const std::string text = said([&](ProcessGroup& g) {
      const auto k = kernel(g.rank(), "k", g.rank() == 0 ? tiles({4, 2}) : tiles({2, 4}));
      contextual("step", options(g), [&] { k(1); })();
    });
    EXPECT_NE(text.find("candidates"), std::string::npos) << mode << text;
    EXPECT_NE(text.find("in a call of step:"), std::string::npos) << mode << text;
  }
}

TEST_F(RanksTogether, ModesThatDoNotTuneTakeTheStoredChoice) {
  const auto run = [&] {
    for (auto& rank : ranks) rank.launches.clear();
    return said([&](ProcessGroup& g) {
      const auto k = kernel(g.rank(), "k", tiles({4, 2}));
      contextual("step", options(g, true), [&] { k(1); })();
    });
  };
  set("MODE", "strict");
  EXPECT_NE(run().find("MODE=strict forbids tuning"), std::string::npos);
  unset("MODE");
  EXPECT_EQ(run(), "");
  for (const char* mode : {"cached", "strict"}) {
    set("MODE", mode);
    EXPECT_EQ(run(), "") << mode;
    for (auto& rank : ranks) EXPECT_EQ(rank.launches["k"], (std::vector<int>{4, 2})) << mode;
  }
}

TEST_F(RanksTogether, AKernelAboveAnotherIsComparedWithTheOtherDecidedForEachCandidate) {
  // With the inner one's best block 30 wins, with its default it is the slowest.
  cost = [](const std::string&, int block, int n) {
    return n != 30 ? 500 : block == 2 ? 100 : 1000;
  };
  EXPECT_EQ(said([&](ProcessGroup& g) {
              const auto inner = kernel(g.rank(), "inner", tiles({4, 2}));
              const auto outer = tuned_kernel(
                  "outer", tiles({30, 10, 20}), [](int n) { return n; },
                  [&](const Tile& t, int) {
                    at(g.rank()).launches["outer"].push_back(t.block);
                    inner(t.block);
                  });
              const Warnings warnings;
              contextual("step", options(g), [&] { outer(1); })();
              EXPECT_EQ(warnings.with("stays undecided"), 0u);
            }),
            "");
  for (auto& rank : ranks) {
    EXPECT_EQ(rank.launches["outer"].back(), 30);
    EXPECT_EQ(rank.launches["inner"].back(), 2);
  }
}

TEST_F(RanksTogether, WhereNothingOfAKernelWorksOnOneRankTheCandidateAboveItFailsOnAll) {
  fails = [](int r, const std::string&, int, int n) { return r == 1 && n == 30; };
  EXPECT_EQ(said([&](ProcessGroup& g) {
              const auto inner = kernel(g.rank(), "inner", tiles({4, 2}));
              const auto outer = tuned_kernel(
                  "outer", tiles({10, 30, 20}), [](int n) { return n; },
                  [&](const Tile& t, int) {
                    at(g.rank()).launches["outer"].push_back(t.block);
                    inner(t.block);
                    at(g.rank()).clock.advance(std::chrono::nanoseconds(t.block == 30 ? 1 : 50));
                  });
              contextual("step", options(g), [&] { outer(1); })();
            }),
            "");
  for (auto& rank : ranks) EXPECT_EQ(rank.launches["outer"].back(), 10);
}

TEST_F(RanksTogether, AnOuterFunctionMayFallBackWhereNothingWorksOnOneRank) {
  fails = [](int r, const std::string& name, int, int) { return r == 1 && name == "bad"; };
  EXPECT_EQ(said([&](ProcessGroup& g) {
              const auto bad = kernel(g.rank(), "bad", tiles({4, 2}));
              const auto good = kernel(g.rank(), "good", tiles({4, 2}));
              contextual("step", options(g), [&] {
                try {
                  bad(1);
                } catch (const NoValidConfig&) {
                  at(g.rank()).launches["fallback"].push_back(0);
                }
                good(1);
              })();
            }),
            "");
  for (auto& rank : ranks) {
    EXPECT_EQ(rank.launches["good"].back(), 2);
    EXPECT_FALSE(rank.launches["fallback"].empty());
  }
}

TEST_F(RanksTogether, AGroupsFirstUseNamesACallOfAnotherKind) {
  const auto step_of = [&](ProcessGroup& g, const auto& k) {
    return contextual("step", options(g), [&] { k(1); });
  };
  EXPECT_EQ(
      said([&](ProcessGroup& g) {
        const auto k = kernel(g.rank(), "k", tiles({4, 2}));
        const auto launcher = autotune(
                                  "launcher", tiles({1, 2}), [](int n) { return n; },
                                  [&](const Tile& t, int) {
                                    at(g.rank()).clock.advance(std::chrono::nanoseconds(t.block));
                                  })
                                  .version("1")
                                  .timer(at(g.rank()).clock.reader());
        try {
          if (g.rank() == 0)
            step_of(g, k)();
          else
            launcher.with({.group = &g})(7);
          ADD_FAILURE();
        } catch (const Disagreement& e) {
          EXPECT_NE(std::string(e.what()).find("calling step"), std::string::npos) << e.what();
          EXPECT_NE(std::string(e.what()).find("calling launcher 7"), std::string::npos)
              << e.what();
        }
        step_of(g, k)();
        EXPECT_EQ(at(g.rank()).launches["k"].back(), 2);
      }),
      "");
}

}  // namespace
}  // namespace disttune::test
