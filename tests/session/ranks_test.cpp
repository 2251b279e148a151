// Function-level tuning with ranks as threads: the same choice or the same error everywhere.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "disttune/testing/ranks.hpp"
#include "session/rig.hpp"

namespace disttune::test {
namespace {

/// Each rank has a launcher, a clock and a store of its own.
class RankSession : public Session {
 protected:
  static constexpr int k_ranks = 3;
  struct Rank {
    testing::ScriptedClock clock;
    std::vector<int> blocks;
    std::string store;
  };
  RankSession() {
    for (int r = 0; r < k_ranks; ++r) {
      ranks.push_back(std::make_unique<Rank>());
      ranks.back()->store = (root / std::to_string(r)).string();
    }
  }

  auto launcher(int r, const Space<Tile>& space) {
    Rank& rank = *ranks[static_cast<std::size_t>(r)];
    return autotune(
               "scale", space, [](int n) { return n; },
               [&rank, r, this](const Tile& t, int) {
                 rank.blocks.push_back(t.block);
                 if (fails && fails(r, t.block)) throw std::runtime_error("fails here");
                 rank.clock.advance(std::chrono::nanoseconds(rank_cost(r, t.block)));
               })
        .version("1")
        .store(rank.store)
        .timer(rank.clock.reader());
  }
  /// Calls the launcher once on every rank; returns what each ran last, or 0 with its error noted.
  std::vector<int> call(const Space<Tile>& space, testing::Ranks& group, int n = 8) {
    std::vector<int> last(k_ranks, 0);
    errors = group.run([&](ProcessGroup& g) {
      launcher(g.rank(), space).with({.group = &g})(n);
      last[static_cast<std::size_t>(g.rank())] =
          ranks[static_cast<std::size_t>(g.rank())]->blocks.back();
    });
    return last;
  }

  /// A process that dies while it runs the candidate: on rank 1, with the others as far as that.
  void leave_crash(const std::string& store, const Value& candidate) {
    if (const pid_t child = ::fork(); child == 0) {
      fails = nullptr;
      testing::Ranks alone(k_ranks);
      std::barrier together(k_ranks);
      rank_cost = [&](int r, int block) -> std::int64_t {
        if (to_config(Tile{block}).identity() != candidate) return 1000;
        together.arrive_and_wait();
        if (r == 1) ::_exit(9);
        for (;;) ::pause();
      };
      for (int r = 0; r < k_ranks; ++r) ranks[static_cast<std::size_t>(r)]->store = store;
      call({{3}, {1}, {2}}, alone);
      ::_exit(0);
    } else {
      int status = 0;
      ::waitpid(child, &status, 0);
      ASSERT_EQ(WEXITSTATUS(status), 9);
    }
  }

  std::vector<std::unique_ptr<Rank>> ranks;
  std::function<std::int64_t(int, int)> rank_cost = [](int, int block) { return 1000 * block; };
  std::function<bool(int, int)> fails;
  std::vector<std::exception_ptr> errors;
};

TEST_F(RankSession, TheSlowestRankDecides) {
  rank_cost = [](int r, int block) { return block == 1 ? (r == 2 ? 9000 : 1000) : 5000; };
  testing::Ranks group(k_ranks);
  EXPECT_EQ(call({{1}, {2}}, group), std::vector<int>(k_ranks, 2));
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
}

TEST_F(RankSession, S34_S35_NearTiesGiveEveryRankTheSameCandidate) {
  for (int n = 0; n < 20; ++n) {
    rank_cost = [n](int r, int block) { return 100000 + (block * 37 + r * 53 + n * 71) % 997; };
    testing::Ranks group(k_ranks);
    const auto last = call({{1}, {2}, {3}, {4}}, group, n);
    EXPECT_EQ(last, std::vector<int>(k_ranks, last[0]));
  }
}

TEST_F(RankSession, S36_S44_OneRanksRecordIsAdoptedByAll) {
  {
    testing::Ranks alone(k_ranks);
    call({{3}, {1}}, alone);
  }
  std::filesystem::remove_all(ranks[0]->store);
  std::filesystem::remove_all(ranks[2]->store);
  for (auto& r : ranks) r->blocks.clear();
  testing::Ranks group(k_ranks);
  EXPECT_EQ(call({{3}, {1}}, group), std::vector<int>(k_ranks, 1));
  for (auto& r : ranks) EXPECT_EQ(r->blocks.size(), 1u) << "nobody tuned";
  std::size_t records = 0;
  for (auto& r : ranks)
    if (std::filesystem::exists(r->store))
      for (const auto& f : std::filesystem::recursive_directory_iterator(r->store))
        records += f.path().extension() == ".json";
  EXPECT_EQ(records, static_cast<std::size_t>(k_ranks)) << "each store is complete afterwards";
}

// Candidates are not dealt to ranks: every rank measures the whole agreed list, whatever it holds.
TEST_F(RankSession, S41_CachesThatDifferDoNotChangeWhoMeasuresWhat) {
  set("ALWAYS_TUNE", "1");
  {
    testing::Ranks alone(k_ranks);
    call({{3}, {1}}, alone);
  }
  std::filesystem::remove_all(ranks[1]->store);
  for (auto& r : ranks) r->blocks.clear();
  testing::Ranks group(k_ranks);
  call({{3}, {1}, {2}}, group);
  for (auto& r : ranks) {
    for (const int block : {3, 2}) EXPECT_EQ(std::ranges::count(r->blocks, block), 15);
    EXPECT_EQ(std::ranges::count(r->blocks, 1), 15 + 1) << "and the last run";
  }
}

TEST_F(RankSession, S13_TheTuningOfTheEnvironmentInUseIsAdoptedNotTheNewest) {
  std::string version = "1";
  detail::set_software_provider([&] { return Value::dict({{Value("compiler"), Value(version)}}); });
  testing::Ranks group(k_ranks);
  EXPECT_EQ(call({{1}, {2}}, group), std::vector<int>(k_ranks, 1));
  version = "2";
  set("VERSION_CHECK", "1");
  rank_cost = [](int, int block) { return 9000 / block; };
  EXPECT_EQ(call({{1}, {2}}, group), std::vector<int>(k_ranks, 2));
  version = "1";
  std::filesystem::remove_all(ranks[1]->store);
  for (auto& r : ranks) r->blocks.clear();
  EXPECT_EQ(call({{1}, {2}}, group), std::vector<int>(k_ranks, 1));
  for (auto& r : ranks) EXPECT_EQ(r->blocks.size(), 1u) << "nobody tuned";
  detail::set_software_provider({});
}

TEST_F(RankSession, ARecordOfOtherVersionsIsAdoptedWithOneWarning) {
  std::string version = "1";
  detail::set_software_provider([&] { return Value::dict({{Value("compiler"), Value(version)}}); });
  for (auto& r : ranks) r->store = ranks[0]->store;
  testing::Ranks group(k_ranks);
  call({{3}, {1}}, group);
  version = "2";
  for (auto& r : ranks) r->blocks.clear();
  const Warnings heard;
  testing::Ranks another(k_ranks);
  EXPECT_EQ(call({{3}, {1}}, another), std::vector<int>(k_ranks, 1));
  for (auto& r : ranks) EXPECT_EQ(r->blocks.size(), 1u) << "nobody tuned";
  EXPECT_EQ(heard.with("tuned under other versions (compiler: "), 1u);
  detail::set_software_provider({});
}

TEST_F(RankSession, ACrashOnOneRankLeavesTheCandidateOutOnAll) {
  leave_crash(ranks[1]->store, to_config(Tile{1}).identity());
  for (auto& r : ranks) r->blocks.clear();
  testing::Ranks group(k_ranks);
  // Rank 1's full list is longer; what pruning leaves is the same everywhere.
  std::vector<int> last(k_ranks, 0);
  errors = group.run([&](ProcessGroup& g) {
    const bool longer = g.rank() == 1;
    const auto space = longer ? Space<Tile>{{9}, {3}, {1}, {2}} : Space<Tile>{{3}, {1}, {2}};
    launcher(g.rank(), space)
        .prune([](const Tile& t, int) { return t.block != 9; })
        .with({.group = &g})(8);
    last[static_cast<std::size_t>(g.rank())] =
        ranks[static_cast<std::size_t>(g.rank())]->blocks.back();
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
  EXPECT_EQ(last, std::vector<int>(k_ranks, 2));
  for (auto& r : ranks) EXPECT_EQ(std::count(r->blocks.begin(), r->blocks.end(), 1), 0);
}

TEST_F(RankSession, WhatARankChoseAloneDoesNotServeItsGroup) {
  testing::Ranks group(k_ranks);
  std::vector<int> chosen(k_ranks);
  rank_cost = [](int r, int block) {
    return block == 2 ? 1500 : block == 1 + 2 * (r % 2) ? 1000 : 9000;
  };
  errors = group.run([&](ProcessGroup& g) {
    const auto& l = launcher(g.rank(), {{1}, {2}, {3}});
    l.with({.group = local().get()})(8);
    l.with({.group = &g})(8);
    chosen[static_cast<std::size_t>(g.rank())] =
        ranks[static_cast<std::size_t>(g.rank())]->blocks.back();
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
  EXPECT_EQ(chosen, std::vector<int>(k_ranks, 2));
}

TEST_F(RankSession, ALauncherInsideALauncherOfTheSameGroupIsTunedWhereItIsMet) {
  testing::Ranks group(k_ranks);
  std::vector<int> inner_runs(k_ranks), chosen(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    const auto at = static_cast<std::size_t>(g.rank());
    const auto inner = launcher(g.rank(), {{3}, {1}});
    const auto outer = autotune(
                           "outer", Space<Tile>{{20}, {10}}, [](int n) { return n; },
                           [&](const Tile& t, int n) {
                             inner.with({.group = &g})(n);
                             ranks[at]->clock.advance(std::chrono::nanoseconds(100 * t.block));
                             chosen[at] = t.block;
                           })
                           .timer(ranks[at]->clock.reader());
    outer.with({.group = &g})(8);
    inner_runs[at] = static_cast<int>(ranks[at]->blocks.size());
    EXPECT_EQ(ranks[at]->blocks.back(), 1);
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
  EXPECT_EQ(chosen, std::vector<int>(k_ranks, 10));
  // Its own tuning, and one run in each of the outer's.
  EXPECT_EQ(inner_runs, std::vector<int>(k_ranks, 30 + 31));
}

TEST_F(RankSession, AlwaysTuneIsNoWishWhereNothingIsTuned) {
  testing::Ranks before(k_ranks);
  call({{3}, {1}}, before);
  set("ALWAYS_TUNE", "1");
  set("MODE", "strict");
  testing::Ranks group(k_ranks);
  EXPECT_EQ(call({{3}, {1}}, group), std::vector<int>(k_ranks, 1));
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
}

/// A device of one rank whose work ends when the rank says so.
struct Stuck final : Device {
  explicit Stuck(const std::atomic<bool>& is_stuck) : stuck(is_stuck) {}
  struct Timer final : StreamTimer {
    explicit Timer(const std::atomic<bool>& is_stuck) : stuck(is_stuck) {}
    void start(std::size_t) override {}
    void stop(std::size_t) override {}
    [[nodiscard]] std::int64_t elapsed_ns(std::size_t) override { return 1000; }
    [[nodiscard]] bool synchronize(Deadline) override { return !stuck; }
    const std::atomic<bool>& stuck;
  };
  [[nodiscard]] Value fingerprint() const override { return Value::dict({}); }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void*, std::size_t) override {
    return std::make_unique<Timer>(stuck);
  }
  const std::atomic<bool>& stuck;
};

TEST_F(RankSession, AnInterruptOnOneRankIsNoCrashOfTheCandidateThatAnotherHadAtHand) {
  struct Stop {};
  bool interrupted = true;
  const auto call_all = [&] {
    testing::Ranks group(k_ranks, testing::Time::real);
    errors = group.run([&](ProcessGroup& g) {
      std::atomic<bool> stuck{false};
      const auto device = std::make_shared<Stuck>(stuck);
      const auto tuned = autotune(
                             "stuck", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                             [&](const Tile& t, int) {
                               if (!interrupted || t.block == 1) return;
                               if (g.rank() == 1) throw Stop{};
                               stuck = true;
                             })
                             .on([&](int) {
                               return Stream{device, nullptr};
                             })
                             .version("1")
                             .store(ranks[static_cast<std::size_t>(g.rank())]->store);
      tuned.with({.group = &g})(8);
      const auto record = tuned.with({.group = &g}).result(8);
      for (const auto& c : record->tunings[0].candidates)
        EXPECT_EQ(c.status, Status::ok) << c.reason;
    });
  };
  call_all();
  EXPECT_THROW(std::rethrow_exception(errors[0]), PeerFailed);
  interrupted = false;
  call_all();
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
}

TEST_F(RankSession, AProgramMayEndWhileAThreadTunesWithAGroup) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        auto& group = *new testing::Ranks(k_ranks);
        auto& running = *new std::latch(k_ranks);
        auto& never = *new std::promise<void>;
        const std::shared_future<void> end = never.get_future().share();
        std::thread([&, end] {
          group.run([&, end](ProcessGroup& g) {
            const auto tuned = autotune(
                "endless", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                [&, end](const Tile&, int) {
                  running.count_down();
                  end.wait();
                });
            tuned.with({.group = &g})(8);
          });
        }).detach();
        running.wait();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(RankSession, WhatAKeyFunctionThrowsIsToldToTheOthers) {
  testing::Ranks group(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    const auto tuned = autotune(
        "keyed", Space<Tile>{{1}, {2}},
        [&](int n) {
          if (g.rank() == 1) throw std::domain_error("no key here");
          return n;
        },
        [](const Tile& t, int) { return t.block; });
    tuned.with({.group = &g})(8);
  });
  EXPECT_EQ(testing::what(errors[1]), "no key here");
  for (const std::size_t r : {0, 2}) {
    EXPECT_THROW(std::rethrow_exception(errors[r]), PeerFailed);
    EXPECT_NE(testing::what(errors[r]).find("no key here"), std::string::npos);
  }
}

TEST_F(RankSession, AWrongOptionOfMeasureIsToldToTheOthers) {
  testing::Ranks group(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    MeasureOptions options;
    options.group = &g;
    options.repeat = g.rank() == 1 ? 0 : 3;
    static_cast<void>(measure([] {}, options));
  });
  EXPECT_THROW(std::rethrow_exception(errors[1]), std::invalid_argument);
  for (const std::size_t r : {0, 2}) EXPECT_THROW(std::rethrow_exception(errors[r]), PeerFailed);
}

TEST_F(RankSession, ASettingThatOneRankCannotReadIsToldToTheOthers) {
  const std::function<void(ProcessGroup&)> calls[] = {
      [&](ProcessGroup& g) {
        launcher(g.rank(), {{1}, {2}}).with({.group = &g})(8);
      },
      [&](ProcessGroup& g) {
        MeasureOptions options;
        options.group = &g;
        static_cast<void>(measure([] {}, options));
      }};
  for (const auto& cold_call : calls) {
    set("REPEAT", "many");
    testing::Ranks group(k_ranks);
    std::latch told(1);
    errors = group.run([&](ProcessGroup& g) {
      if (g.rank() != 1) {
        told.wait();
        return cold_call(g);
      }
      std::exception_ptr refused;
      try {
        cold_call(g);
      } catch (...) {
        refused = std::current_exception();
      }
      set("REPEAT", "10");  // the ranks of this test share one environment
      told.count_down();
      if (refused) std::rethrow_exception(refused);
    });
    EXPECT_NE(testing::what(errors[1]).find("REPEAT"), std::string::npos);
    for (const std::size_t r : {0, 2}) {
      EXPECT_THROW(std::rethrow_exception(errors[r]), PeerFailed);
      EXPECT_NE(testing::what(errors[r]).find("REPEAT"), std::string::npos);
    }
  }
}

TEST_F(RankSession, RetryCrashedMeasuresTheRecordsCrashedCandidatesOnAllRanks) {
  leave_crash(ranks[1]->store, to_config(Tile{1}).identity());
  const Space<Tile> space{{3}, {1}, {2}};
  {
    testing::Ranks group(k_ranks);
    EXPECT_EQ(call(space, group), std::vector<int>(k_ranks, 2));
  }
  std::filesystem::remove_all(ranks[2]->store);
  set("RETRY_CRASHED", "1");
  for (auto& r : ranks) r->blocks.clear();
  {
    testing::Ranks group(k_ranks);
    EXPECT_EQ(call(space, group), std::vector<int>(k_ranks, 1));
    for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
  }
  for (auto& r : ranks) {
    EXPECT_EQ(std::count(r->blocks.begin(), r->blocks.end(), 1), 15 + 1);
    EXPECT_EQ(std::count(r->blocks.begin(), r->blocks.end(), 2), 15);
    EXPECT_EQ(std::count(r->blocks.begin(), r->blocks.end(), 3), 0);
    r->blocks.clear();
  }
  testing::Ranks group(k_ranks);
  EXPECT_EQ(call(space, group), std::vector<int>(k_ranks, 1));
  for (auto& r : ranks) EXPECT_EQ(r->blocks.size(), 1u) << "nothing is left to be tried again";
}

TEST_F(RankSession, ModeFirstLeavesOutOnAllRanksWhatEndedOneOfThem) {
  leave_crash(ranks[1]->store, to_config(Tile{3}).identity());
  set("MODE", "first");
  testing::Ranks group(k_ranks);
  EXPECT_EQ(call({{3}, {1}, {2}}, group), std::vector<int>(k_ranks, 1));
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
}

TEST_F(RankSession, RetryCrashedUnderOtherVersionsMeasuresAllAnew) {
  std::string version = "1";
  detail::set_software_provider([&] { return Value::dict({{Value("compiler"), Value(version)}}); });
  leave_crash(ranks[1]->store, to_config(Tile{1}).identity());
  const Space<Tile> space{{3}, {1}, {2}};
  {
    testing::Ranks group(k_ranks);
    call(space, group);
  }
  version = "2";
  set("RETRY_CRASHED", "1");
  for (auto& r : ranks) r->blocks.clear();
  testing::Ranks group(k_ranks);
  EXPECT_EQ(call(space, group), std::vector<int>(k_ranks, 1));
  for (auto& r : ranks) EXPECT_EQ(r->blocks.size(), 3 * 15 + 1u);
  detail::set_software_provider({});
}

TEST_F(RankSession, UnifyGivesAllRanksTheLowestRanksRecords) {
  rank_cost = [](int r, int block) { return r == block - 1 ? 1000 : 9000; };
  for (const int n : {8, 9})
    for (int r = n == 8 ? 0 : 1; r < k_ranks; ++r) launcher(r, {{1}, {2}, {3}})(n);
  const auto winner = [&](int r, int n) {
    const auto record = launcher(r, {{1}, {2}, {3}}).result(n);
    return record ? *record->tunings.front().winner : Value();
  };
  ASSERT_EQ(winner(2, 8), to_config(Tile{3}).identity());
  ASSERT_EQ(winner(0, 9), Value()) << "rank 0 has not met this one";

  testing::Ranks group(k_ranks);
  std::vector<std::vector<std::string>> changed(k_ranks);
  const auto unify_all = [&] {
    errors = group.run([&](ProcessGroup& g) {
      const auto r = static_cast<std::size_t>(g.rank());
      changed[r] = unify(g, {.store = ranks[r]->store});
    });
    for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
  };
  unify_all();
  const std::vector<std::string> scale{"scale"};
  EXPECT_EQ(changed, (std::vector<std::vector<std::string>>{scale, scale, scale}));
  for (int r = 0; r < k_ranks; ++r) {
    EXPECT_EQ(winner(r, 8), to_config(Tile{1}).identity()) << r;
    EXPECT_EQ(winner(r, 9), to_config(Tile{2}).identity()) << r;
    ranks[static_cast<std::size_t>(r)]->blocks.clear();
    launcher(r, {{1}, {2}, {3}})(9);
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)]->blocks, std::vector<int>{2}) << "nobody tuned";
  }
  unify_all();
  EXPECT_EQ(changed, (std::vector<std::vector<std::string>>(k_ranks)));
}

TEST_F(RankSession, UnifyLeavesDamageAndOtherFunctionsAlone) {
  for (int r = 0; r < k_ranks; ++r) {
    rank_cost = [r](int, int block) { return r == 0 ? 1000 * block : 9000 / block; };
    launcher(r, {{1}, {2}})(8);
  }
  for (const auto& f : std::filesystem::recursive_directory_iterator(ranks[0]->store))
    if (f.path().extension() == ".json") std::filesystem::resize_file(f.path(), 40);
  std::filesystem::create_directories(root / "1" / "other");
  std::ofstream(root / "1" / "other" / "note.json") << "{}";
  testing::Ranks group(k_ranks);
  std::vector<std::vector<std::string>> changed(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    const auto r = static_cast<std::size_t>(g.rank());
    changed[r] = unify(g, {.store = ranks[r]->store, .name = "nothing of this name"});
    EXPECT_TRUE(changed[r].empty());
    changed[r] = unify(g, {.store = ranks[r]->store});
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
  for (int r = 0; r < k_ranks; ++r)
    EXPECT_EQ(*launcher(r, {{1}, {2}}).result(8)->tunings.front().winner,
              to_config(Tile{2}).identity());
  EXPECT_EQ(changed[0], std::vector<std::string>{"scale"}) << "its own could not be read";

  errors = group.run([&](ProcessGroup& g) {
    const auto r = static_cast<std::size_t>(g.rank());
    unify(g, {.store = ranks[r]->store, .name = r == 1 ? "this" : "that"});
  });
  for (const auto& e : errors)
    EXPECT_NE(testing::what(e).find("the name that unify was asked for"), std::string::npos)
        << testing::what(e);
}

TEST_F(RankSession, ACandidateThatFailsOnOneRankIsFailedOnAll) {
  fails = [](int r, int block) { return r == 1 && block == 1; };
  testing::Ranks group(k_ranks);
  EXPECT_EQ(call({{1}, {2}, {3}}, group), std::vector<int>(k_ranks, 2));
  for (auto& r : ranks)
    EXPECT_EQ(std::count(r->blocks.begin(), r->blocks.end(), 1), 1)
        << "voted out before it was timed";
}

TEST_F(RankSession, ARanksResultDoesNotWaitForTheFileThatAnotherWrites) {
  for (auto& r : ranks) r->store = (root / "shared").string();
  testing::Ranks group(k_ranks);
  std::barrier together(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    const auto tuned = launcher(g.rank(), {{3}, {1}});
    tuned.with({.group = &g})(8);
    together.arrive_and_wait();
    if (g.rank() == 0) std::filesystem::remove_all(root / "shared");  // as if not yet written
    together.arrive_and_wait();
    const auto record = tuned.with({.group = &g}).result(8);
    EXPECT_EQ(record.has_value(), g.rank() != 0);
    if (record) {
      EXPECT_EQ(record->tunings[0].candidates.size(), 2u);
    }
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
}

TEST_F(RankSession, NothingWorksIsTheSameErrorEverywhere) {
  fails = [](int r, int) { return r == 1; };
  testing::Ranks group(k_ranks);
  call({{1}, {2}}, group);
  for (const auto& e : errors) EXPECT_THROW(std::rethrow_exception(e), NoValidConfig);
  fails = nullptr;
  EXPECT_EQ(call({{1}, {2}}, group), std::vector<int>(k_ranks, 1)) << "the group goes on";
}

TEST_F(RankSession, DifferentKeysAreADisagreementOnAllRanksThatNamesTheKey) {
  testing::Ranks group(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    launcher(g.rank(), {{1}, {2}}).with({.group = &g})(g.rank() == 2 ? 9 : 8);
  });
  std::set<std::string> texts;
  for (const auto& e : errors) {
    EXPECT_THROW(std::rethrow_exception(e), Disagreement);
    texts.insert(testing::what(e));
  }
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_NE(texts.begin()->find("key"), std::string::npos);
}

TEST_F(RankSession, DifferentPruneResultsAreADisagreement) {
  testing::Ranks group(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    const bool strict = g.rank() == 0;
    launcher(g.rank(), {{1}, {2}})
        .prune([strict](const Tile& t, int) { return !strict || t.block == 2; })
        .with({.group = &g})(8);
  });
  for (const auto& e : errors) EXPECT_THROW(std::rethrow_exception(e), Disagreement);
  for (auto& r : ranks) EXPECT_TRUE(r->blocks.empty());
}

TEST_F(RankSession, AnExceptionOfOneRankIsPeerFailedOnTheOthers) {
  testing::Ranks group(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    const bool broken = g.rank() == 1;
    launcher(g.rank(), {{1}, {2}})
        .prune(
            [broken](const Tile&, int) { return broken ? throw std::domain_error("mine") : true; })
        .with({.group = &g})(8);
  });
  EXPECT_THROW(std::rethrow_exception(errors[1]), std::domain_error);
  EXPECT_THROW(std::rethrow_exception(errors[0]), PeerFailed);
  EXPECT_NE(testing::what(errors[2]).find("rank 1"), std::string::npos) << testing::what(errors[2]);
}

TEST_F(RankSession, S42_AnAbsentRankIsNamed) {
  testing::Ranks group(k_ranks);
  errors = group.run(
      [&](ProcessGroup& g) {
        launcher(g.rank(), {{1}, {2}}).with({.group = &g})(8);
      },
      {2});
  EXPECT_THROW(std::rethrow_exception(errors[0]), GroupTimeout);
  EXPECT_NE(testing::what(errors[0]).find("2"), std::string::npos);
}

TEST_F(RankSession, AColdCallMakesAFixedNumberOfReductionsAndAWarmCallNone) {
  testing::Ranks group(k_ranks);
  std::vector<std::uint64_t> first(k_ranks), cold(k_ranks), warm(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    const auto tuned = launcher(g.rank(), {{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}});
    const auto r = static_cast<std::size_t>(g.rank());
    tuned.with({.group = &g})(7);
    first[r] = group.reductions(g.rank());
    tuned.with({.group = &g})(8);
    cold[r] = group.reductions(g.rank()) - first[r];
    tuned.with({.group = &g})(8);
    warm[r] = group.reductions(g.rank()) - first[r] - cold[r];
  });
  for (const auto& e : errors) EXPECT_EQ(testing::what(e), "");
  // 5, one a batch, and one vote, since the launcher cannot be prepared
  for (const std::uint64_t n : cold) EXPECT_LE(n, 5u + 1u + 1u);
  EXPECT_EQ(warm, std::vector<std::uint64_t>(k_ranks, 0));
}

TEST_F(RankSession, AlwaysTuneOfOneRankHoldsForAll) {
  testing::Ranks group(k_ranks);
  call({{3}, {1}}, group);
  for (auto& r : ranks) r->blocks.clear();
  set("ALWAYS_TUNE", "1");
  call({{3}, {1}}, group);
  for (auto& r : ranks) EXPECT_EQ(r->blocks.size(), 2 * 15 + 1u);
}

TEST_F(RankSession, MeasureReducesBySampleAndNamesTheSlowestRank) {
  testing::Ranks group(k_ranks);
  std::vector<Measurement> seen(k_ranks);
  errors = group.run([&](ProcessGroup& g) {
    Rank& rank = *ranks[static_cast<std::size_t>(g.rank())];
    MeasureOptions options;
    options.repeat = 5;
    options.clock = rank.clock.reader();
    options.group = &g;
    seen[static_cast<std::size_t>(g.rank())] = measure(
        [&] { rank.clock.advance(std::chrono::nanoseconds(g.rank() == 1 ? 900 : 100)); }, options);
  });
  for (const auto& m : seen) {
    EXPECT_EQ(m.samples_ns, std::vector<std::int64_t>(5, 900));
    EXPECT_EQ(m.slowest_rank, 1);
    ASSERT_EQ(m.rank_medians.size(), 3u);
    EXPECT_EQ(m.rank_medians[0].median_ns, 100);
  }
}

}  // namespace
}  // namespace disttune::test
