// One process, function-level: what runs, how often, in which order, and what is kept.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "session/rig.hpp"

namespace disttune::test {
namespace {

class Function : public Session {
 protected:
  /// Candidate 1 is wrong by half, and the reference says so.
  auto half(const Space<Tile>& space) {
    return autotune(
               "half", space, [](int n) { return n; },
               [this](const Tile& t, int n) {
                 run(t, n);
                 return t.block == 1 ? n / 2 : n;
               })
        .timer(clock.reader())
        .check([](const Tile&, int result, int n) {
          return result == n ? std::nullopt : std::optional<std::string>("half of it");
        });
  }
};

TEST_F(Function, RunsFivePlusTenACandidateInListOrderThenTheWinnerOnce) {
  const auto tuned = scale({{3}, {1}, {2}});
  tuned(8);
  ASSERT_EQ(runs.size(), 3 * 15 + 1u);
  for (std::size_t i = 0; i < 45; ++i)
    EXPECT_EQ(runs[i].first, (std::vector{3, 1, 2})[i / 15]) << i;
  EXPECT_EQ(runs.back().first, 1);
  EXPECT_EQ(clock.readings(), 3 * 10 * 2);
  tuned(8);
  EXPECT_EQ(runs.size(), 3 * 15 + 2u);
}

TEST_F(Function, S32_AnotherLauncherObjectIsServedFromTheStore) {
  scale({{3}, {1}})(8);
  runs.clear();
  scale({{3}, {1}})(8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 1);
}

TEST_F(Function, S16_AReorderedListFindsTheSameConfiguration) {
  scale({{3}, {1}, {2}})(8);
  runs.clear();
  scale({{2}, {1}, {3}})(8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 1);
}

TEST_F(Function, S06_EachKeyKeepsItsOwnWinner) {
  cost = [&](int block) {
    return std::int64_t{1000} * (runs.back().second == 1 ? block : 10 - block);
  };
  const auto tuned = scale({{1}, {9}});
  for (int round = 0; round < 2; ++round) {
    for (const int n : {1, 2}) {
      tuned(n);
      EXPECT_EQ(runs.back().first, n == 1 ? 1 : 9);
    }
  }
}

TEST_F(Function, EqualCandidatesAreTimedOnce) {
  scale({{2}, {1}, {2}, {1}})(8);
  EXPECT_EQ(runs.size(), 2 * 15 + 1u);
}

TEST_F(Function, S53_PrunedToNothingListsEveryCandidateWithItsReason) {
  const auto tuned = scale({{2}, {1}}).prune([](const Tile&, int) { return false; });
  try {
    tuned(8);
    FAIL();
  } catch (const NoValidConfig& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("scale"), text.npos);
    EXPECT_NE(text.find("BLOCK=2"), text.npos);
    EXPECT_NE(text.find("BLOCK=1"), text.npos);
    EXPECT_NE(text.find("prune"), text.npos);
  }
  EXPECT_TRUE(runs.empty());
}

TEST_F(Function, S23_OneCandidateLeftIsAnOrdinaryHitTheSecondTime) {
  const auto tuned = scale({{2}, {1}}).prune([](const Tile& t, int) { return t.block == 2; });
  tuned(8);
  runs.clear();
  tuned(8);
  EXPECT_EQ(runs.size(), 1u);
}

TEST_F(Function, S48_S49_AFailingDefaultGivesWayAndIsRecorded) {
  on_run = [](const Tile& t, int) {
    if (t.block == 1) throw std::runtime_error("no such tile");
  };
  const auto tuned = scale({{1}, {2}});
  tuned(8);
  EXPECT_EQ(runs.back().first, 2);
  const auto record = tuned.result(8);
  ASSERT_TRUE(record);
  const CandidateRecord& failed = record->tunings[0].candidates[0];
  EXPECT_EQ(failed.status, Status::launch_failed);
  EXPECT_NE(failed.reason.find("no such tile"), std::string::npos);
  EXPECT_FALSE(failed.score_ns);
  EXPECT_EQ(runs_of(1), 1u);
}

TEST_F(Function, AllFailingIsNoValidConfigAndTheNextCallTriesAgain) {
  bool broken = true;
  on_run = [&](const Tile&, int) {
    if (broken) throw std::runtime_error("not today");
  };
  const auto tuned = scale({{1}, {2}});
  EXPECT_THROW(tuned(8), NoValidConfig);
  broken = false;
  tuned(8);
  EXPECT_EQ(runs.back().first, 1);
}

TEST_F(Function, S65_AClockThatNeverMovesEndsInNoValidConfigThatNamesIt) {
  cost = [](int) { return 0; };
  const auto tuned = scale({{1}, {2}});
  try {
    tuned(8);
    FAIL();
  } catch (const NoValidConfig& e) {
    EXPECT_NE(std::string(e.what()).find("clock"), std::string::npos) << e.what();
  }
}

TEST_F(Function, S65_ABadSampleIsTakenAgain) {
  int left = 1;
  cost = [&](int block) { return block == 1 && runs_of(1) == 8 && left-- > 0 ? 0 : 1000 * block; };
  const auto tuned = scale({{1}, {2}});
  tuned(8);
  EXPECT_EQ(runs.back().first, 1);
  EXPECT_EQ(tuned.result(8)->tunings[0].candidates[0].samples_ns.size(), 10u);
}

TEST_F(Function, ModeOffRunsEntryZeroAndKeepsNothing) {
  set("MODE", "off");
  const auto tuned = scale({{3}, {1}});
  tuned(8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 3);
  EXPECT_FALSE(tuned.result(8));
}

TEST_F(Function, ModeStrictRaisesOnAMissAndServesAHit) {
  set("MODE", "strict");
  EXPECT_THROW(scale({{3}, {1}})(8), NotTuned);
  set("MODE", "tune");
  scale({{3}, {1}})(8);
  runs.clear();
  set("MODE", "strict");
  scale({{3}, {1}})(8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 1);
}

TEST_F(Function, ModeCachedRunsTheDefaultAndRemembersTheMiss) {
  set("MODE", "cached");
  const auto tuned = scale({{3}, {1}});
  tuned(8);
  set("MODE", "tune");
  tuned(8);
  EXPECT_EQ(runs_of(3), 2u);
  EXPECT_EQ(runs.size(), 2u);
}

TEST_F(Function, S69_ModeFirstTakesTheFirstThatWorksWithoutTiming) {
  scale({{3}, {1}})(7);
  const auto stored = scale({{3}, {1}}).result(7);
  runs.clear();
  const auto before = clock.readings();
  set("MODE", "first");
  on_run = [](const Tile& t, int) {
    if (t.block == 3) throw std::runtime_error("no");
  };
  scale({{3}, {2}, {1}})(7);
  EXPECT_EQ(runs.back().first, 2);
  EXPECT_EQ(clock.readings(), before);
  EXPECT_EQ(runs_of(1), 0u);
  set("MODE", "tune");
  EXPECT_EQ(scale({{3}, {1}}).result(7)->tunings[0].created, stored->tunings[0].created);
}

TEST_F(Function, ModeFirstLeavesOutWhatEndedAProcess) {
  const auto dying = [&](const char* mode) {
    if (const pid_t child = ::fork(); child == 0) {
      set("MODE", mode);
      on_run = [](const Tile& t, int) {
        if (t.block == 3) ::_exit(9);
      };
      scale({{3}, {1}})(7);
      ::_exit(runs_of(1) > 0 ? 0 : 1);
    } else {
      int status = 0;
      ::waitpid(child, &status, 0);
      return WEXITSTATUS(status);
    }
  };
  EXPECT_EQ(dying("first"), 9);
  EXPECT_EQ(dying("first"), 0) << "the journal says so";
  scale({{3}, {1}})(7);  // decides, and takes the journal away
  runs.clear();
  set("MODE", "first");
  scale({{3}, {1}})(7);
  EXPECT_EQ(runs_of(3), 0u) << "the record says so";
  set("RETRY_CRASHED", "1");
  scale({{3}, {1}})(7);
  EXPECT_GT(runs_of(3), 0u);
}

TEST_F(Function, ModeFirstTakesTheFirstWithARightResult) {
  set("MODE", "first");
  const auto tuned = half({{1}, {2}, {3}});
  EXPECT_EQ(tuned(8), 8);
  EXPECT_EQ(runs_of(1), 1u);
  EXPECT_EQ(runs_of(2), 2u);
  EXPECT_EQ(runs_of(3), 0u);
}

TEST_F(Function, AlwaysTuneTunesOnceAProcessAndKey) {
  scale({{3}, {1}})(8);
  runs.clear();
  set("ALWAYS_TUNE", "1");
  const auto tuned = scale({{3}, {1}});
  tuned(8);
  tuned(8);
  EXPECT_EQ(runs.size(), 2 * 15 + 2u);
}

TEST_F(Function, S21_ANewCandidateIsMeasuredAgainstTheBestOfTheOld) {
  scale({{3}, {2}, {4}})(8);
  runs.clear();
  const auto tuned = scale({{3}, {2}, {4}, {1}});
  tuned(8);
  EXPECT_EQ(runs_of(1), 15 + 1u);
  EXPECT_EQ(runs_of(2), 15u);
  EXPECT_EQ(runs.size(), 31u);
  const auto record = tuned.result(8);
  EXPECT_EQ(record->tunings[0].candidates.size(), 4u);
  EXPECT_EQ(record->tunings.size(), 1u);
  runs.clear();
  scale({{3}, {2}, {4}, {1}})(8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 1);
}

TEST_F(Function, SamplesOfOtherVersionsAreNoPartOfATuning) {
  std::string version = "1.0";
  detail::set_software_provider([&] { return Value::dict({{Value("compiler"), Value(version)}}); });
  scale({{3}, {2}})(8);
  version = "2.0";
  runs.clear();
  const auto tuned =
      scale({{3}, {2}, {4}, {1}}).prune([](const Tile& t, int) { return t.block != 4; });
  tuned(8);
  for (const int block : {3, 2}) EXPECT_EQ(runs_of(block), 15u);
  EXPECT_EQ(runs_of(4), 0u);
  EXPECT_EQ(runs_of(1), 15 + 1u);
  const auto record = tuned.result(8);
  ASSERT_EQ(record->tunings.size(), 2u);
  EXPECT_EQ(record->tunings[1].candidates.size(), 2u);
  detail::set_software_provider({});
}

TEST_F(Function, ATieGoesToTheEarlierWinnerWhereAKeyIsTunedAnew) {
  std::string version = "1.0";
  detail::set_software_provider([&] { return Value::dict({{Value("compiler"), Value(version)}}); });
  scale({{1}, {2}, {3}}).prune([](const Tile& t, int) { return t.block == 3; })(8);
  cost = [](int) { return 1000; };
  set("ALWAYS_TUNE", "1");
  scale({{1}, {2}, {3}})(8);
  EXPECT_EQ(runs.back().first, 3);
  unset("ALWAYS_TUNE");
  set("VERSION_CHECK", "1");
  version = "2.0";
  runs.clear();
  scale({{1}, {2}, {3}})(8);
  EXPECT_EQ(runs.size(), 3 * 15 + 1u);
  EXPECT_EQ(runs.back().first, 3);
  detail::set_software_provider({});
}

TEST_F(Function, AStoredWinnerThatLeftTheListGivesWayToTheNextBest) {
  scale({{3}, {1}, {2}})(8);
  runs.clear();
  scale({{3}, {2}})(8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 2);
}

TEST_F(Function, S09_S18_AStoredWinnerIsValidatedByThePruneFunction) {
  scale({{3}, {1}, {2}})(8);
  runs.clear();
  int asked = 0;
  scale({{3}, {1}, {2}}).prune([&](const Tile& t, int) { return ++asked, t.block != 1; })(8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 2);
  EXPECT_EQ(asked, 2);
}

TEST_F(Function, OnAHitThePruneFunctionIsAskedAboutTheWinnerAlone) {
  scale({{3}, {1}, {2}})(8);
  int asked = 0;
  scale({{3}, {1}, {2}}).prune([&](const Tile&, int) { return ++asked, true; })(8);
  EXPECT_EQ(asked, 1);
}

TEST_F(Function, WhatAPruneFunctionThrowsReachesTheCaller) {
  const auto tuned =
      scale({{1}}).prune([](const Tile&, int) -> bool { throw std::domain_error("mine"); });
  EXPECT_THROW(tuned(8), std::domain_error);
  EXPECT_TRUE(runs.empty());
}

TEST_F(Function, S13_OtherVersionsServeWithAWarningOrTuneAgainAndNothingIsLost) {
  std::string version = "1.0";
  detail::set_software_provider([&] { return Value::dict({{Value("compiler"), Value(version)}}); });
  scale({{3}, {1}})(8);
  version = "2.0";
  runs.clear();
  scale({{3}, {1}})(8);
  EXPECT_EQ(runs.size(), 1u);
  set("VERSION_CHECK", "1");
  scale({{3}, {1}})(8);
  EXPECT_EQ(runs.size(), 1 + 2 * 15 + 1u);
  EXPECT_EQ(scale({{3}, {1}}).result(8)->tunings.size(), 2u);
  version = "1.0";
  runs.clear();
  scale({{3}, {1}})(8);
  EXPECT_EQ(runs.size(), 1u);
  detail::set_software_provider({});
}

TEST_F(Function, S67_TheBudgetEndsTheTuningAndTheRecordSaysSo) {
  set("BUDGET", "0.000001");
  const auto tuned = scale({{3}, {1}, {2}});
  tuned(8);
  EXPECT_EQ(runs.size(), 15 + 1u);
  const auto tuning = tuned.result(8)->tunings[0];
  EXPECT_EQ(tuning.candidates[1].status, Status::skipped);
  EXPECT_NE(tuning.candidates[1].reason.find("budget"), std::string::npos);
  EXPECT_EQ(tuning.quality, std::vector<std::string>{"budget"});
}

TEST_F(Function, S67_TheBudgetEndsNoTuningBeforeACandidateHasWorked) {
  set("BUDGET", "0.000001");
  on_run = [](const Tile& t, int) {
    if (t.block == 3) throw std::runtime_error("no such block");
  };
  const auto tuned = scale({{3}, {1}, {2}});
  tuned(8);
  const auto tuning = tuned.result(8)->tunings[0];
  EXPECT_EQ(tuning.candidates[0].status, Status::launch_failed);
  EXPECT_EQ(tuning.candidates[1].status, Status::ok);
  EXPECT_EQ(tuning.candidates[2].status, Status::skipped);
}

TEST_F(Function, ReasonsAreBoundedSoThatTheRecordCanBeReadAgain) {
  const std::string long_text = "begin " + std::string(1'000'000, 'x') + " end";
  on_run = [&](const Tile& t, int) {
    if (t.block == 3) throw std::runtime_error(long_text);
  };
  const auto tuned = scale({{3}, {1}});
  tuned(8);
  const std::string reason = tuned.result(8)->tunings[0].candidates[0].reason;
  EXPECT_LE(reason.size(), 8192u);
  EXPECT_NE(reason.find("begin"), std::string::npos);
  EXPECT_TRUE(reason.ends_with(" end"));
}

TEST_F(Function, PreparationThatCallsTheLauncherRunsItsDefault) {
  set("WORKERS", "2");
  std::function<int(int)> again;
  std::atomic<int> prepared{0};
  const auto tuned = autotune(
                         "prepared", Space<Tile>{{3}, {1}, {2}}, [](int n) { return n; },
                         [](const Tile& t, int) { return t.block; })
                         .version("1")
                         .prepare([&](const Tile&, int n) {
                           EXPECT_EQ(again(n), 3);
                           ++prepared;
                         });
  again = [&](int n) { return tuned(n); };
  tuned(8);
  EXPECT_EQ(prepared, 3);
}

TEST_F(Function, ACandidateWhosePreparationEndsTheProcessIsFoundAndSkipped) {
  set("WORKERS", "2");
  const auto make = [] {
    return autotune(
               "prepared", Space<Tile>{{3}, {1}, {2}, {4}}, [](int n) { return n; },
               [](const Tile& t, int) { return t.block; })
        .version("1")
        .prepare([](const Tile& t, int) {
          if (t.block == 2) ::_exit(9);
        });
  };
  // The first process does not know which of two it was, the second prepares one at a time.
  for (int process = 0; process < 2; ++process) {
    if (const pid_t child = ::fork(); child == 0) {
      make()(8);
      ::_exit(0);
    } else {
      int status = 0;
      ::waitpid(child, &status, 0);
      ASSERT_EQ(WEXITSTATUS(status), 9);
    }
  }
  const auto tuned = make();
  tuned(8);
  const auto candidates = tuned.result(8)->tunings[0].candidates;
  EXPECT_EQ(candidates[2].status, Status::crashed);
  for (const std::size_t i : {0, 1, 3}) EXPECT_EQ(candidates[i].status, Status::ok);
}

TEST_F(Function, ALauncherMayMeetANewKeyWhileTheProcessEnds) {
  if (const pid_t child = ::fork(); child == 0) {
    static auto& late = *new auto(autotune(
        "late", Space<Tile>{{3}, {1}}, [](int n) { return n; },
        [](const Tile&, int n) { return n; }));
    late(1);
    std::atexit([] { ::_exit(late(2) == 2 && late(1) == 1 ? 3 : 4); });
    std::exit(0);
  } else {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 3);
  }
}

TEST_F(Function, AChildThatOutlivesATuningLeavesTheDeviceFree) {
  pid_t child = 0;
  const auto tuned = autotune(
      "forks", Space<Tile>{{1}, {2}}, [](int n) { return n; },
      [&](const Tile& t, int) {
        if (child == 0) {
          child = ::fork();
          if (child == 0)
            for (;;) ::pause();
        }
        return t.block;
      });
  for (const int n : {1, 2}) {
    tuned(n);
    EXPECT_EQ(tuned.result(n)->tunings[0].quality, std::vector<std::string>{});
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(Function, WhatACheckThrowsIsTheCallersException) {
  const auto tuned = autotune(
                         "checked", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                         [](const Tile& t, int) { return t.block; })
                         .check([](const Tile&, const int&, int) -> std::optional<std::string> {
                           throw std::domain_error("the reference is broken");
                         });
  EXPECT_THROW(tuned(8), std::domain_error);
}

TEST_F(Function, AFolderIsTheOneThatWasMeantWhenItWasFirstNamed) {
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directory(root / "below");
  std::filesystem::current_path(root);
  set("HOME", "here-" + root.filename().string());
  const auto tuned = scale({{3}, {1}});
  tuned(8);
  std::filesystem::current_path(root / "below");
  tuned(9);
  std::filesystem::current_path(before);
  EXPECT_FALSE(std::filesystem::exists(root / "below" / ("here-" + root.filename().string())));
  EXPECT_TRUE(tuned.result(9).has_value());
  EXPECT_TRUE(std::filesystem::path(tuned.folder()).is_absolute());
}

TEST_F(Function, S59_AWrongResultNeverWinsAndCostsOneMoreRun) {
  const auto tuned = half({{1}, {2}});
  EXPECT_EQ(tuned(8), 8);
  EXPECT_EQ(runs_of(1), 1u);
  EXPECT_EQ(runs_of(2), 1 + 15 + 1u);
  EXPECT_EQ(tuned.result(8)->tunings[0].candidates[0].status, Status::wrong_result);
}

TEST_F(Function, ARecordTunedUncheckedDoesNotServeACheckedCall) {
  scale({{3}, {1}})(8);
  runs.clear();
  scale({{3}, {1}}).check([](const Tile&, int) { return std::optional<std::string>{}; })(8);
  EXPECT_EQ(runs.size(), 2 * 16 + 1u);
}

TEST_F(Function, S56_S58_BeforeEachPutsBackWhatARunChanges) {
  int y = 0;
  const auto tuned = autotune(
                         "add", Space<Tile>{{1}, {2}}, [](const int&) { return 0; },
                         [this](const Tile& t, int& out) {
                           run(t, 0);
                           out += 1;
                         })
                         .timer(clock.reader())
                         .before_each([](int& out) { out = 0; });
  tuned(y);
  EXPECT_EQ(y, 1);
  tuned(y);  // a warm call is left alone
  EXPECT_EQ(y, 2);
}

TEST_F(Function, S30_AStoreThatCannotBeWrittenLosesNothingInTheProcess) {
  std::filesystem::remove_all(root);
  {
    FILE* f = std::fopen(root.c_str(), "w");
    std::fclose(f);
  }  // a file where the folder should be
  const auto tuned = scale({{3}, {1}});
  tuned(8);
  EXPECT_EQ(runs.back().first, 1);
  EXPECT_TRUE(tuned.result(8));
  std::filesystem::remove(root);
}

TEST_F(Function, AStoreThatCannotBeReadIsOneWarning) {
  set("HOME", (root / std::string(300, 'x')).string());  // no file system has such names
  const Warnings heard;
  for (const std::string name : {"scale", "other"}) {
    const auto tuned = scale({{3}, {1}}, name);
    for (const int n : {8, 9}) tuned(n);
  }
  EXPECT_EQ(heard.with("cannot be read"), 1u);
  EXPECT_EQ(heard.with("cannot write the log"), 0u);
  EXPECT_LE(heard.with(""), 2u) << "the other one: what is tuned stays in memory";
}

TEST_F(Function, S68_TheRecordSaysHowItWasTuned) {
  const auto tuned = scale({{3}, {1}}).warmup(2).repeat(4);
  tuned(8);
  const auto t = tuned.result(8)->tunings[0];
  EXPECT_EQ(t.warmup, 2);
  EXPECT_EQ(t.repeat, 4);
  EXPECT_EQ(t.strategy, "fixed");
  EXPECT_EQ(t.candidates[1].samples_ns, std::vector<std::int64_t>(4, 1000));
  EXPECT_EQ(t.candidates[1].score_ns, 1000.0);
  EXPECT_EQ(t.default_config, to_config(Tile{3}).identity());
  EXPECT_EQ(runs.size(), 2 * 6 + 1u);
}

TEST_F(Function, ExplainNamesTheSourceAndTheFieldThatDiffers) {
  const auto tuned = scale({{3}, {1}});
  EXPECT_EQ(tuned.explain(8).source, "none");
  tuned(8);
  EXPECT_EQ(tuned.explain(8).source, "memory");
  EXPECT_EQ(tuned.explain(8).config->get<int>("BLOCK"), 1);
  EXPECT_EQ(scale({{3}, {1}}).explain(8).source, "store");
  const Explanation miss = scale({{3}, {1}}).explain(9);
  EXPECT_EQ(miss.source, "none");
  ASSERT_EQ(miss.differences.size(), 1u);
  EXPECT_NE(miss.differences[0].find("key"), std::string::npos);
}

TEST_F(Function, ExplainShowsWhatTheCallWouldRun) {
  scale({{3}, {1}, {2}})(8);
  const auto pruned = scale({{3}, {1}, {2}}).prune([](const Tile& t, int) { return t.block != 1; });
  EXPECT_EQ(pruned.explain(8).source, "store");
  EXPECT_EQ(pruned.explain(8).config->get<int>("BLOCK"), 2);
  const auto none =
      scale({{3}, {1}, {2}, {4}}).prune([](const Tile& t, int) { return t.block == 4; });
  EXPECT_EQ(none.explain(8).source, "none");
  EXPECT_NE(none.explain(8).miss_reason.find("refused by the prune function"), std::string::npos);
  set("ALWAYS_TUNE", "1");
  EXPECT_EQ(scale({{3}, {1}, {2}}).explain(8).source, "none");
  EXPECT_EQ(scale({{3}, {1}, {2}}).explain(8).miss_reason, "ALWAYS_TUNE is set");
  set("MODE", "cached");
  EXPECT_EQ(scale({{3}, {1}, {2}}).explain(8).source, "store") << "nothing is tuned in this mode";
  set("MODE", "off");
  EXPECT_EQ(scale({{3}, {1}, {2}}).explain(8).source, "default");
  EXPECT_EQ(scale({{3}, {1}, {2}}).explain(8).config->get<int>("BLOCK"), 3);
  EXPECT_NE(scale({{3}, {1}, {2}}).explain(8).miss_reason.find("MODE=off"), std::string::npos);
}

TEST_F(Function, S19_EqualNamesWithOtherVersionsShareNothing) {
  scale({{3}, {1}})(8);
  runs.clear();
  scale({{3}, {1}}).version("2")(8);
  EXPECT_EQ(runs.size(), 2 * 15 + 1u);
}

/// One long visit of each candidate: more timed runs than `repeat`.
class LongVisits final : public Selector {
 public:
  explicit LongVisits(const Problem& p) : m_candidates(p.candidates) {
    for (std::uint32_t c = 0; c < p.candidates; ++c)
      m_batch.push_back({c, 0, static_cast<std::uint16_t>(3 * p.timed)});
  }
  std::span<const Visit> next() override {
    return m_scores.empty() ? std::span<const Visit>(m_batch) : std::span<const Visit>{};
  }
  void report(std::span<const std::int64_t> samples) override {
    for (std::size_t c = 0; c < m_candidates; ++c)
      m_scores.push_back(static_cast<double>(samples[c * samples.size() / m_candidates]));
  }
  void stop() override {}
  Decision decision() const override {
    const auto best = std::min_element(m_scores.begin(), m_scores.end());
    return {static_cast<std::uint32_t>(best - m_scores.begin()), m_scores};
  }

 private:
  std::size_t m_candidates;
  std::vector<Visit> m_batch;
  std::vector<double> m_scores;
};

TEST_F(Function, AStrategyMayAskForLongerVisitsThanRepeat) {
  register_strategy("long visits",
                    [](const Problem& p) { return std::make_unique<LongVisits>(p); });
  const auto tuned = scale({{3}, {1}}).strategy("long visits").repeat(4);
  tuned(8);
  EXPECT_EQ(runs.size(), 2 * 12 + 1u);
  EXPECT_EQ(runs.back().first, 1);
  EXPECT_EQ(tuned.result(8)->tunings[0].candidates[0].samples_ns.size(), 12u);
}

/// Measures, and names nobody.
class Mute final : public Selector {
 public:
  explicit Mute(const Problem& p) : m_long(p) {}
  std::span<const Visit> next() override { return m_long.next(); }
  void report(std::span<const std::int64_t> samples) override { m_long.report(samples); }
  void stop() override {}
  Decision decision() const override { return {std::nullopt, m_long.decision().scores}; }

 private:
  LongVisits m_long;
};

TEST_F(Function, AStrategyThatNamesNoWinnerIsNotACaseOfNoValidConfig) {
  register_strategy("mute", [](const Problem& p) { return std::make_unique<Mute>(p); });
  try {
    scale({{3}, {1}}).strategy("mute")(8);
    FAIL();
  } catch (const NoValidConfig& e) {
    FAIL() << e.what();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("mute"), std::string::npos) << e.what();
  }
}

TEST_F(Function, AnUnknownStrategyIsRefusedWithTheKnownNames) {
  const auto tuned = scale({{1}}).strategy("magic");
  try {
    tuned(8);
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("fixed"), std::string::npos);
  }
}

TEST_F(Function, TuneFalseRunsEntryZeroWithoutLookingAnythingUp) {
  const auto tuned = scale({{3}, {1}});
  tuned(8);
  runs.clear();
  tuned.with({.tune = false})(8);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 3);
}

TEST_F(Function, S28_AKilledProcessLeavesItsSamplesAndItsCrash) {
  const pid_t child = ::fork();
  if (child == 0) {
    on_run = [this](const Tile& t, int) {
      if (t.block == 2 && runs_of(2) == 3) ::_exit(9);  // as a fault that takes the process down
    };
    scale({{3}, {2}, {1}})(8);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 9);
  const auto tuned = scale({{3}, {2}, {1}});
  tuned(8);
  EXPECT_EQ(runs_of(3), 0u) << "measured already";
  EXPECT_EQ(runs_of(2), 0u) << "in flight when the process died";
  EXPECT_EQ(runs_of(1), 15 + 1u);
  const auto t = tuned.result(8)->tunings[0];
  EXPECT_EQ(t.candidates[0].samples_ns.size(), 10u);
  EXPECT_EQ(t.candidates[1].status, Status::crashed);
  set("RETRY_CRASHED", "1");
  runs.clear();
  scale({{3}, {2}, {1}})(8);
  EXPECT_EQ(runs_of(2), 15u);
}

TEST_F(Function, CaptureIsRefusedBeforeAnythingIsDisturbed) {
  auto scripted = std::make_shared<testing::ScriptedClock>();
  auto device = std::make_shared<testing::ScriptedDevice>(scripted);
  const auto tuned = autotune(
                         "captured", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                         [&](const Tile&, int) { device->launch(std::chrono::microseconds(5)); })
                         .on([&](int) {
                           return Stream{device, nullptr};
                         });
  device->set_capturing(true);
  device->clear_log();
  EXPECT_THROW(tuned(8), CaptureError);
  EXPECT_TRUE(device->log().empty());
}

TEST_F(Function, DeviceTimeNotHostTimeDecides) {
  using std::chrono::microseconds;
  auto scripted = std::make_shared<testing::ScriptedClock>();
  auto device = std::make_shared<testing::ScriptedDevice>(scripted);
  const auto tuned = autotune(
                         "S64", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                         [&](const Tile& t, int) {
                           runs.emplace_back(t.block, 0);
                           // 1: cheap to launch, slow to run; 2: the reverse
                           device->launch(microseconds(t.block == 1 ? 20 : 5),
                                          microseconds(t.block == 1 ? 1 : 50));
                         })
                         .on([&](int) {
                           return Stream{device, nullptr};
                         });
  tuned(8);
  EXPECT_EQ(runs.back().first, 2);
  const auto t = tuned.result(8)->tunings[0];
  EXPECT_EQ(t.candidates[0].samples_ns[0], 20000);
  EXPECT_EQ(t.candidates[1].samples_ns[0], 5000);
  EXPECT_EQ(t.candidates[1].host_ns.size(), 10u);
  EXPECT_EQ(device->open_timers(), 0u);
}

}  // namespace
}  // namespace disttune::test
