#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>

#include "disttune/testing/ranks.hpp"

namespace disttune::testing {
namespace {

using namespace std::chrono_literals;

Wait waiting(const ProcessGroup& g, std::uint64_t sequence, std::string_view phase = "batch",
             bool first = false) {
  return {g.now() + 600s, 600s, sequence, phase, first};
}
bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
template <class E>
void expect(const std::exception_ptr& end, std::initializer_list<std::string_view> parts) {
  ASSERT_TRUE(end);
  EXPECT_THROW(std::rethrow_exception(end), E) << what(end);
  for (const auto part : parts) EXPECT_TRUE(contains(what(end), part)) << what(end);
}

TEST(ProcessGroup, RefusesSeatsThatCannotBe) {
  EXPECT_THROW(Ranks(0), std::invalid_argument);
  EXPECT_THROW(Ranks(4, Time::scripted, {3}), std::invalid_argument);
  EXPECT_THROW(Ranks(4, Time::scripted, {5, -1}), std::invalid_argument);
  Ranks ranks(6, Time::scripted, {4, 2});
  EXPECT_EQ((std::vector<int>{2, 4}), ranks[3].ranks_per_node());
  EXPECT_EQ(3, ranks[3].rank());
}

TEST(ProcessGroup, LocalIsOneRankAndNeverWaits) {
  const auto g = local();
  EXPECT_EQ(1, g->size());
  EXPECT_EQ(g, local());
  std::int64_t word = -5;
  g->all_reduce_max({&word, 1}, waiting(*g, 1));
  EXPECT_EQ(-5, word);
}

TEST(ThreadRanks, MaximumIsExactOnAll) {
  Ranks ranks(64);
  const auto ends = ranks.run([](ProcessGroup& g) {
    for (std::uint64_t round = 1; round <= 20; ++round) {
      std::vector<std::int64_t> v{g.rank(), -g.rank(), std::numeric_limits<std::int64_t>::min(),
                                  g.rank() == 5 ? (std::int64_t{1} << 62) + 1 : 0};
      g.all_reduce_max(v, waiting(g, round));
      const std::vector<std::int64_t> all{63, 0, std::numeric_limits<std::int64_t>::min(),
                                          (std::int64_t{1} << 62) + 1};
      if (v != all) throw std::logic_error("wrong maximum");
    }
  });
  for (const auto& end : ends) EXPECT_EQ("", what(end));
  EXPECT_EQ(20u, ranks.reductions(63));
  EXPECT_EQ(80u, ranks.words(0));
}

TEST(ThreadRanks, AbsentRanksAreNamed_S42) {
  Ranks ranks(6);
  const auto begin = ranks.now();
  const auto ends = ranks.run(
      [](ProcessGroup& g) {
        std::int64_t word = 0;
        g.all_reduce_max({&word, 1}, waiting(g, 3, "handshake", true));
      },
      {2, 5});
  for (const int r : {0, 1, 3, 4})
    expect<GroupTimeout>(ends[static_cast<std::size_t>(r)],
                         {"ranks 2, 5", "600 s", "handshake of cold call 3", "lost"});
  EXPECT_EQ(begin + 600s, ranks.now());
}

TEST(ThreadRanks, OnlySilenceEndsAWait_S45) {
  Ranks ranks(3);
  const auto begin = ranks.now();
  const auto ends = ranks.run([&](ProcessGroup& g) {
    if (g.rank() == 1) ranks.sleep(1, 2160s);
    std::int64_t word = g.rank();
    g.all_reduce_max({&word, 1}, waiting(g, 1));
    EXPECT_EQ(2, word);
  });
  for (const auto& end : ends) EXPECT_EQ("", what(end));
  EXPECT_EQ(begin + 2160s, ranks.now());
}

TEST(ThreadRanks, ASilentRankEndsTheWaitAndFindsTheOthersGone_S37) {
  Ranks ranks(3);
  ranks.inject({.rank = 1, .reduction = 2, .kind = Fault::Kind::hang, .time = 2160s});
  const auto ends = ranks.run([&](ProcessGroup& g) {
    std::int64_t word = 0;
    try {
      for (int i = 0; i < 2; ++i) g.all_reduce_max({&word, 1}, waiting(g, 1, "vote"));
    } catch (const GroupTimeout& e) {
      g.abandon(k_closed_by_timeout, e.what());
      throw;
    }
  });
  for (const auto& end : ends) expect<GroupTimeout>(end, {"rank 1 ", "vote of cold call 1"});
}

TEST(ThreadRanks, ABrokenConnectionEndsTheWaitAtOnce) {
  Ranks ranks(3);
  ranks.inject({.rank = 2, .reduction = 2, .kind = Fault::Kind::disconnect});
  const auto begin = ranks.now();
  const auto ends = ranks.run([&](ProcessGroup& g) {
    std::int64_t word = 0;
    for (int i = 0; i < 2; ++i) g.all_reduce_max({&word, 1}, waiting(g, 1));
  });
  expect<InjectedFault>(ends[2], {"rank 2"});
  for (const int r : {0, 1})
    expect<GroupTimeout>(ends[static_cast<std::size_t>(r)], {"rank 2 is gone"});
  EXPECT_EQ(begin, ranks.now());
}

TEST(ThreadRanks, AMixedSequenceIsReportedWithBothNumbers_S38_S39) {
  for (const int what_differs : {0, 1, 2}) {
    Ranks ranks(4);
    const auto ends = ranks.run([&](ProcessGroup& g) {
      const bool odd = g.rank() == 2;
      std::vector<std::int64_t> v(odd && what_differs == 2 ? 12 : 7);
      g.all_reduce_max(v, waiting(g, odd && what_differs == 0 ? 13 : 1,
                                  odd && what_differs == 1 ? "meeting" : "batch"));
    });
    // Whoever came before the difference was seen raises it; nobody was paired.
    int told = 0;
    for (const auto& end : ends) {
      if (!end) continue;
      try {
        std::rethrow_exception(end);
      } catch (const Disagreement&) {
        ++told;
        const char* numbers[3][2] = {
            {"cold call 13", "cold call 1 "}, {"meeting", "batch"}, {"12 words", "7 words"}};
        for (const char* part : numbers[what_differs])
          EXPECT_TRUE(contains(what(end), part)) << what(end);
        EXPECT_TRUE(contains(what(end), "rank 2")) << what(end);
      } catch (const GroupTimeout&) {
      }
    }
    EXPECT_GE(told, 2);
    for (const auto& end : ends) EXPECT_TRUE(end);
  }
}

TEST(ThreadRanks, AnAnnouncementEndsWaitsUpToItsSequenceOnly) {
  Ranks ranks(3);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    std::int64_t word = 0;
    if (g.rank() == 1) g.abandon(4, "KeyError: 'BLOCK'");
    g.all_reduce_max({&word, 1}, waiting(g, 5));
    if (g.rank() == 1) {
      g.abandon(6, "KeyError: 'WARPS'");
      return;
    }
    g.all_reduce_max({&word, 1}, waiting(g, 6));
  });
  EXPECT_FALSE(ends[1]);
  for (const std::size_t r : {0u, 2u})
    expect<PeerFailed>(ends[r], {"rank 1 ended cold call 6", "KeyError: 'WARPS'"});
}

TEST(ThreadRanks, AnOldAnnouncementMayBeTakenBack) {
  Ranks ranks(2);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    std::int64_t word = 0;
    if (g.rank() == 1) g.abandon(1, "ValueError in a call that was warm elsewhere");
    ranks.sleep(g.rank(), 1ms);  // whatever is announced now has been announced
    if (g.rank() == 1) {
      ranks.sleep(1, 900ms);
      g.withdraw(1);
    }
    g.all_reduce_max({&word, 1}, waiting(g, 1, "handshake", true));
  });
  for (const auto& end : ends) EXPECT_EQ("", what(end));
}

TEST(ThreadRanks, AnAnnouncementThatStandsEndsTheFirstWaitWithinTwoSeconds) {
  Ranks ranks(2);
  Deadline raised;
  const auto begin = ranks.now();
  const auto ends = ranks.run([&](ProcessGroup& g) {
    if (g.rank() == 1) return g.abandon(1, "ValueError: key");
    std::int64_t word = 0;
    try {
      g.all_reduce_max({&word, 1}, waiting(g, 1, "handshake", true));
    } catch (const PeerFailed&) {
      raised = g.now();
      throw;
    }
  });
  expect<PeerFailed>(ends[0], {"rank 1", "ValueError: key"});
  EXPECT_LE(raised - begin, 2s);
}

TEST(ThreadRanks, WhereAllFailedAlikeNobodyIsBlamed) {
  Ranks ranks(3);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    g.abandon(1, "the same mistake everywhere");
    std::int64_t word = 0;
    ranks.sleep(g.rank(), 1ms);               // whatever is announced now has been announced
    if (g.rank() == 1) ranks.sleep(1, 100s);  // its announcement stands long after the others came
    g.withdraw(1);
    g.all_reduce_max({&word, 1}, waiting(g, 1, "handshake", true));
  });
  for (const auto& end : ends) EXPECT_EQ("", what(end));
}

TEST(ThreadRanks, PollRaisesWhatIsDueAndWaitsForNobody) {
  Ranks ranks(3);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    std::int64_t word = 0;
    g.all_reduce_max({&word, 1}, waiting(g, 2));
    if (g.rank() == 1) return g.abandon(2, "out of memory");
    for (int i = 0; i < 1000; ++i) {
      g.poll(waiting(g, 2, "measuring"));
      ranks.sleep(g.rank(), 10ms);
    }
  });
  for (const std::size_t r : {0u, 2u}) expect<PeerFailed>(ends[r], {"rank 1", "out of memory"});
}

TEST(ThreadRanks, NotesAreSeenByTheOthersWithinTheirCall) {
  Ranks ranks(3);
  ranks[2].note(4, 17);
  EXPECT_EQ(2, ranks[0].noted(4, 17).value_or(-1));
  EXPECT_FALSE(ranks[2].noted(4, 17));
  EXPECT_FALSE(ranks[0].noted(4, 18));
  EXPECT_FALSE(ranks[0].noted(5, 17));
  ranks[2].note(5, 1);
  EXPECT_FALSE(ranks[0].noted(4, 17));
}

TEST(ThreadRanks, RealTimeWorksToo) {
  Ranks ranks(4, Time::real);
  std::atomic<int> sum{0};
  const auto ends = ranks.run([&](ProcessGroup& g) {
    for (int i = 0; i < 100; ++i) {
      std::int64_t word = g.rank();
      g.all_reduce_max({&word, 1}, waiting(g, 1));
      sum += static_cast<int>(word);
    }
  });
  for (const auto& end : ends) EXPECT_EQ("", what(end));
  EXPECT_EQ(1200, sum);
}

}  // namespace
}  // namespace disttune::testing
