#include "agree/agreement.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "agree/rank_test.hpp"
#include "agree/unify.hpp"
#include "core/group_state.hpp"
#include "core/run_clock.hpp"
#include "disttune/detail/attempt.hpp"

namespace disttune::agree::test {
namespace {

using namespace std::chrono_literals;
using testing::Fault;
using testing::Ranks;
using testing::Time;

TEST(Agreement, AloneEveryStepIsLocal) {
  const auto one = local();
  for (ProcessGroup* group : {static_cast<ProcessGroup*>(nullptr), one.get()}) {
    Agreement call(group, k_timeout, "gemm");
    EXPECT_TRUE(call.alone());
    EXPECT_EQ(Value(), call.shape(Value("h100")));
    Hello mine = hello();
    mine.record = "{}";
    const Agreed agreed = call.handshake(mine);
    EXPECT_EQ(0, agreed.record_rank);
    EXPECT_TRUE(agreed.record_everywhere);
    EXPECT_TRUE(agreed.writer);
    EXPECT_EQ("{}", call.adopt(agreed, "{}"));
    std::vector<std::int64_t> block{3, 4};
    call.reduce(block);
    EXPECT_EQ((std::vector<std::int64_t>{3, 4}), block);
    const auto medians = call.finish("a", 12);
    ASSERT_EQ(1u, medians.size());
    EXPECT_EQ(12, medians[0].median_ns);
    EXPECT_EQ(0u, call.reductions());
  }
}

TEST(Agreement, AloneAWishForTuningHidesTheRecord) {
  Agreement call(nullptr, k_timeout, "gemm");
  Hello mine = hello();
  mine.record = "{}";
  mine.always_tune = true;
  EXPECT_FALSE(call.handshake(mine).record_rank);
  mine.always_tune = false;
  mine.version_check = true;
  mine.record_fits_versions = false;
  EXPECT_FALSE(call.handshake(mine).record_rank);
}

TEST(Agreement, ATuningCostsAtMostFiveReductionsAndItsBatches) {
  Ranks ranks(8, Time::scripted, {4, 4});
  std::uint64_t counted[2] = {};
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    for (int turn = 0; turn < 2; ++turn) {
      Agreement call(&g, k_timeout, "gemm");
      call.run([&] {
        const Value shape = call.shape(Value(g.rank() < 4 ? "a" : "b"));
        EXPECT_EQ(R"({"hardware": ["a", "b"], "ranks_per_node": (4, 4), "size": 8})", shape.text());
        const auto before = call.reductions();
        Hello mine = hello(turn);
        mine.crashed = g.rank() == 3;
        mine.store_id = g.rank() < 4 ? 70 : 90;
        const Agreed agreed = call.handshake(mine);
        EXPECT_EQ(g.rank() == 0 || g.rank() == 4, agreed.writer);
        EXPECT_TRUE(agreed.crashed);
        std::vector<std::int64_t> crashed{0, g.rank() == 3};
        call.unite(crashed);
        EXPECT_EQ((std::vector<std::int64_t>{0, 1}), crashed);
        std::vector<Status> votes{g.rank() == 6 ? Status::compile_failed : Status::ok, Status::ok};
        call.vote(votes);
        EXPECT_EQ((std::vector<Status>{Status::compile_failed, Status::ok}), votes);
        for (int batch = 0; batch < 3; ++batch) {
          std::vector<std::int64_t> block{g.rank(), 100 - g.rank()};
          call.reduce(block);
          EXPECT_EQ((std::vector<std::int64_t>{7, 100}), block);
        }
        const auto medians = call.finish("b", 100 + g.rank());
        EXPECT_EQ(8u, medians.size());
        EXPECT_EQ(103, medians[3].median_ns);
        if (g.rank() == 0) counted[turn] = call.reductions() - before;
      });
    }
  }));
  EXPECT_EQ(5u + 3u, counted[0]);
  EXPECT_EQ(4u + 3u, counted[1]);  // who writes where was known
}

TEST(Agreement, MessagesDoNotGrowWithRanks) {
  std::uint64_t words[2] = {};
  for (const int i : {0, 1}) {
    Ranks ranks(i == 0 ? 2 : 64);
    expect_all_well(ranks.run([&](ProcessGroup& g) {
      Agreement call(&g, k_timeout, "gemm");
      call.shape(Value("h100"));
      static_cast<void>(call.handshake(hello()));
      std::vector<Status> votes(2, Status::ok);
      call.vote(votes);
      std::vector<std::int64_t> block(22);
      call.reduce(block);
      call.finish("a", 5);
    }));
    words[i] = ranks.words(0);
  }
  EXPECT_EQ(words[0], words[1]);
}

TEST(Agreement, TheLowestRankWithARecordIsAdopted_S36_S44) {
  for (const std::vector<int>& holders : {std::vector<int>{1, 3}, {2}, {0, 1, 2, 3}}) {
    Ranks ranks(4);
    expect_all_well(ranks.run([&](ProcessGroup& g) {
      Agreement call(&g, k_timeout, "gemm");
      const bool holds = std::ranges::find(holders, g.rank()) != holders.end();
      Hello mine = hello();
      mine.store_id = static_cast<std::uint64_t>(100 + g.rank());  // node-local stores
      if (holds) mine.record = "record of rank " + std::to_string(g.rank());
      const Agreed agreed = call.handshake(mine);
      EXPECT_EQ(holders.front(), agreed.record_rank);
      EXPECT_FALSE(agreed.record_everywhere);
      EXPECT_TRUE(agreed.writer);
      EXPECT_EQ("record of rank " + std::to_string(holders.front()),
                call.adopt(agreed, mine.record));
      call.finish("winner");
      EXPECT_EQ(5u, call.reductions());  // handshake, stores, two of the broadcast, decision
    }));
  }
}

TEST(Agreement, ARecordThatAllHoldIsNotSent) {
  Ranks ranks(4);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "gemm");
    Hello mine = hello();
    mine.record = "the same";
    const Agreed agreed = call.handshake(mine);
    EXPECT_TRUE(agreed.record_everywhere);
    EXPECT_EQ("the same", call.adopt(agreed, mine.record));
    call.finish("winner");
    EXPECT_EQ(2u, call.reductions());
  }));
}

TEST(Agreement, OneRanksWishHoldsForAll) {
  for (const int wish : {0, 1, 2}) {
    Ranks ranks(3);
    expect_all_well(ranks.run([&](ProcessGroup& g) {
      Agreement call(&g, k_timeout, "gemm");
      Hello mine = hello();
      mine.record = "r";
      mine.record_fits_versions = g.rank() == 2;
      const bool wishes = g.rank() == 1;
      mine.always_tune = wishes && wish == 0;
      mine.version_check = wishes && wish == 1;
      mine.retry_crashed = wishes && wish == 2;
      const Agreed agreed = call.handshake(mine);
      EXPECT_EQ(wish == 0, agreed.always_tune);
      EXPECT_EQ(wish == 1, agreed.version_check);
      EXPECT_EQ(wish == 2, agreed.retry_crashed);
      const std::optional<int> holder[] = {std::nullopt, 2, 0};
      EXPECT_EQ(holder[wish], agreed.record_rank);
      EXPECT_EQ(wish == 2, agreed.record_everywhere);
      call.finish("winner");
    }));
  }
}

TEST(Agreement, ResumedSamplesComeFromTheLowestRankThatHasThem) {
  Ranks ranks(4);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "gemm");
    std::string samples =
        g.rank() >= 2 ? std::string(static_cast<std::size_t>(9 + g.rank()), 'x') : "";
    Hello mine = hello();
    mine.resumable = samples.size();
    const Agreed agreed = call.handshake(mine);
    ASSERT_EQ(2, agreed.resume_rank);
    ASSERT_EQ(11u, agreed.resume_bytes);
    call.broadcast(samples, *agreed.resume_rank, agreed.resume_bytes);
    EXPECT_EQ(std::string(11, 'x'), samples);
    call.finish("winner");
    EXPECT_EQ(3u, call.reductions());
  }));
}

TEST(Agreement, InEachStoreTheLowestRankThatCanWriteWrites) {
  const std::vector<std::vector<std::uint64_t>> stores{{5, 5, 5, 5}, {0, 5, 5, 5}, {0, 0, 0, 0},
                                                       {5, 6, 5, 6}, {0, 6, 5, 6}, {1, 2, 3, 4}};
  const std::vector<std::vector<bool>> writers{
      {true, false, false, false}, {false, true, false, false}, {false, false, false, false},
      {true, true, false, false},  {false, true, true, false},  {true, true, true, true}};
  Ranks ranks(4);  // one group for all: stores change from call to call
  for (std::size_t i = 0; i < stores.size(); ++i)
    expect_all_well(ranks.run([&](ProcessGroup& g) {
      Agreement call(&g, k_timeout, "gemm");
      const auto r = static_cast<std::size_t>(g.rank());
      Hello mine = hello();
      mine.store_id = stores[i][r];
      EXPECT_EQ(writers[i][r], call.handshake(mine).writer) << i << ", rank " << r;
      call.finish("winner");
    }));
}

TEST(Agreement, LongBytesAreBroadcastWhole) {
  Ranks ranks(3);
  std::string bytes("\xff\xfe\0 record", 10);
  while (bytes.size() < 1300001) bytes += static_cast<char>(bytes.size() * 7);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "gemm");
    for (const std::string& sent : {bytes, std::string(), std::string("x")}) {
      std::string mine = g.rank() == 1 ? sent : "something else";
      call.broadcast(mine, 1);
      EXPECT_EQ(sent, mine);
    }
    call.ended_alike();
  }));
}

// ── Disagreement ────────────────────────────────────────────────────────────────────────────────

std::string disagreement(const std::function<void(Hello&)>& change) {
  Ranks ranks(4);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    {
      Agreement call(&g, k_timeout, "gemm");
      call.shape(Value("h100"));
      call.run([&] {
        Hello mine = hello();
        if (g.rank() == 2) change(mine);
        EXPECT_THROW(static_cast<void>(call.handshake(mine)), Disagreement);
      });
    }
    // The group is in step and can be used again.
    Agreement call(&g, k_timeout, "gemm");
    static_cast<void>(call.handshake(hello()));
    call.finish("a");
    Agreement again(&g, k_timeout, "gemm");
    Hello mine = hello();
    if (g.rank() == 2) change(mine);
    again.run([&] { static_cast<void>(again.handshake(mine)); });
  });
  const std::string text = same_error<Disagreement>(ends);
  EXPECT_TRUE(contains(text, "ranks 0, 1, 3")) << text;
  EXPECT_TRUE(contains(text, "rank 2")) << text;
  return text;
}

TEST(Disagreement, NamesTheFieldBothValuesAndTheRanks) {
  std::string text = disagreement([](Hello& h) { h.key = Value::tuple({16, "float16"}); });
  EXPECT_TRUE(contains(text, "the key")) << text;
  EXPECT_TRUE(contains(text, "(8, \"float16\")") && contains(text, "(16, \"float16\")")) << text;

  text = disagreement([](Hello& h) { h.mode = "strict"; });
  EXPECT_TRUE(contains(text, "MODE") && contains(text, "strict")) << text;

  text = disagreement([](Hello& h) { h.overwritten = Value::dict({{"BLOCK", 1}}); });
  EXPECT_TRUE(contains(text, "overwritten") && contains(text, "BLOCK")) << text;

  text = disagreement([](Hello& h) {
    h.policy = Value::dict({{"strategy", "fixed"}, {"warmup", 5}, {"repeat", 50}});
  });
  EXPECT_TRUE(contains(text, "\"repeat\": 10 | 50")) << text;

  text = disagreement([](Hello& h) { h.candidates = Value::list({"a"}); });
  EXPECT_TRUE(contains(text, "candidates") && contains(text, "only in the first: \"b\"")) << text;

  text = disagreement([](Hello& h) { h.candidates = Value::list({"b", "a"}); });
  EXPECT_TRUE(contains(text, "another order")) << text;

  text = disagreement([](Hello& h) {
    h.identity = Value::dict({{"name", "gemm"}, {"version", "2"}});
  });
  EXPECT_TRUE(contains(text, "identity") && contains(text, "\"version\": \"1\" | \"2\"")) << text;
}

TEST(Disagreement, OfTwoCallsInDifferentOrderNamesBothKeys) {
  const std::string text = disagreement([](Hello& h) {
    h.function = "all_gather";
    h.key = Value(4096);
  });
  EXPECT_TRUE(contains(text, "gemm (8, \"float16\")")) << text;
  EXPECT_TRUE(contains(text, "all_gather 4096")) << text;
}

TEST(Disagreement, ManySidesAreCounted) {
  Ranks ranks(7);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "gemm");
    call.run([&] { static_cast<void>(call.handshake(hello(g.rank()))); });
  });
  const std::string text = same_error<Disagreement>(ends);
  EXPECT_TRUE(contains(text, "rank 3, calling gemm (3, \"float16\")")) << text;
  EXPECT_TRUE(contains(text, "3 more groups of ranks differ")) << text;
}

TEST(Disagreement, OfTheDecisionIsFoundBeforeAnythingIsStored_S34) {
  Ranks ranks(3);
  std::atomic<int> stored{0};
  const auto ends = ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "gemm");
    call.run([&] {
      static_cast<void>(call.handshake(hello()));
      call.finish(g.rank() == 1 ? "b" : "a");
      ++stored;
    });
  });
  EXPECT_TRUE(contains(same_error<Disagreement>(ends), "decision"));
  EXPECT_EQ(0, stored);
}

TEST(Disagreement, OfAnyValueThatAModeCompares) {
  Ranks ranks(3);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "step");
    call.run([&] {
      call.same("kernels that were launched", Value::dict({{"gemm", 2}}));
      call.same("kernels that were launched", Value::dict({{"gemm", g.rank() == 0 ? 2 : 1}}));
    });
  });
  EXPECT_TRUE(contains(same_error<Disagreement>(ends), "\"gemm\": 2 | 1"));
}

// ── Beside tuning ───────────────────────────────────────────────────────────────────────────────

TEST(Unify, AllHoldTheLowestRanksRecordOfEveryKey_S46) {
  Ranks ranks(4);
  std::vector<std::map<std::string, std::string>> shelves(4);
  shelves[0] = {{"a", "a of 0"}, {"b", "b of all"}};
  shelves[1] = {{"b", "b of all"}, {"c", "c of 1"}};
  shelves[2] = {{"a", "a of 2"}, {"b", "b of all"}, {"c", "c of 2"}};
  shelves[3] = {{"b", "b of all"}};
  std::vector<std::size_t> adopted(4);
  std::vector<std::uint64_t> reductions(4);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    const auto r = static_cast<std::size_t>(g.rank());
    Shelf shelf;
    for (const auto& [key, record] : shelves[r]) shelf.keys.push_back(key);
    shelf.read = [&](const std::string& key) { return shelves[r].at(key); };
    shelf.adopt = [&](const std::string& record) { shelves[r][record.substr(0, 1)] = record; };
    Agreement call(&g, k_timeout, "unify");
    adopted[r] = call.run([&] { return unify(call, shelf); });
    reductions[r] = call.reductions();
    Agreement after(&g, k_timeout, "gemm");
    static_cast<void>(after.handshake(hello()));
    after.finish("a");
  }));
  const std::map<std::string, std::string> all{{"a", "a of 0"}, {"b", "b of all"}, {"c", "c of 1"}};
  for (const auto& shelf : shelves) EXPECT_EQ(all, shelf);
  EXPECT_EQ((std::vector<std::size_t>{1, 1, 2, 2}), adopted);
  for (const auto n : reductions) EXPECT_EQ(3u * 2 + 2 * 2 + 1, n);
}

TEST(Barrier, ARankThatTunesMeetsNoBarrierOfAnother_S38) {
  Ranks ranks(3);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    barrier(g);
    if (g.rank() == 1) return barrier(g, k_timeout);  // warm there, cold elsewhere
    Agreement call(&g, k_timeout, "gemm");
    call.run([&] { static_cast<void>(call.handshake(hello())); });
  });
  const std::string text = same_error<Disagreement>(ends);
  EXPECT_TRUE(contains(text, "ranks 0, 2 in handshake") || contains(text, "in handshake")) << text;
  EXPECT_TRUE(contains(text, "rank 1 in barrier")) << text;
}

// ── Errors of one rank ──────────────────────────────────────────────────────────────────────────

TEST(Agreement, AnExceptionOfOneRankIsNamedOnTheOthersAndClosesTheGroup) {
  Ranks ranks(3);
  std::vector<std::string> later(3);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    const auto attempt = [&](bool fails) {
      Agreement call(&g, k_timeout, "gemm");
      call.run([&] {
        static_cast<void>(call.handshake(hello()));
        if (fails) throw std::runtime_error("KeyError: 'M'");
        std::vector<Status> votes(2, Status::ok);
        call.vote(votes);
        call.finish("a");
      });
    };
    try {
      attempt(g.rank() == 1);
    } catch (...) {
      try {
        attempt(false);
      } catch (const PeerFailed& e) {
        later[static_cast<std::size_t>(g.rank())] = e.what();
      }
      throw;
    }
  });
  EXPECT_EQ("KeyError: 'M'", testing::what(ends[1]));
  const std::string text = same_error<PeerFailed>(ends, {1});
  EXPECT_TRUE(contains(text, "rank 1 ended") && contains(text, "KeyError: 'M'")) << text;
  for (const std::string& l : later) EXPECT_TRUE(contains(l, "KeyError: 'M'")) << l;
}

TEST(Agreement, AnInterruptIsAnnouncedToo) {
  Ranks ranks(2);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "gemm");
    call.run([&] {
      static_cast<void>(call.handshake(hello()));
      if (g.rank() == 0) throw 2;  // as an interrupt, no std::exception
      call.meet();
    });
  });
  EXPECT_EQ("not a std::exception", testing::what(ends[0]));
  EXPECT_TRUE(contains(testing::what(ends[1]), "rank 0 ended cold call 1"));
}

TEST(Agreement, WhereAllRanksRaiseTheNextCallIsFine) {
  Ranks ranks(4);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    for (const bool early : {true, false, true, true, false}) {
      Agreement call(&g, k_timeout, "gemm");
      EXPECT_THROW(call.run([&] {
        if (!early) static_cast<void>(call.handshake(hello()));
        throw std::runtime_error("the same mistake");
      }),
                   std::runtime_error);
    }
    Agreement call(&g, k_timeout, "gemm");
    static_cast<void>(call.handshake(hello()));
    call.finish("a");
  }));
}

TEST(Agreement, NothingWorksIsNoReasonToClose) {
  Ranks ranks(3);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    {
      Agreement call(&g, k_timeout, "gemm");
      EXPECT_THROW(call.run([&] {
        static_cast<void>(call.handshake(hello()));
        call.ended_alike();
        throw NoValidConfig("none");
      }),
                   NoValidConfig);
    }
    Agreement call(&g, k_timeout, "gemm");
    EXPECT_EQ(2u, call.sequence());
    static_cast<void>(call.handshake(hello()));
    call.finish("a");
  }));
}

TEST(Agreement, AKeyThatCannotBeMadeEndsTheOthersCall) {
  Ranks ranks(3);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    if (g.rank() == 1) return abandon_call(g, "TypeError: a lock in the key");
    Agreement call(&g, k_timeout, "gemm");
    call.run([&] { static_cast<void>(call.handshake(hello())); });
  });
  EXPECT_TRUE(contains(same_error<PeerFailed>(ends, {1}), "TypeError: a lock in the key"));
}

TEST(Agreement, AKeyThatFailedWhereOthersWereWarmSpoilsNothing) {
  Ranks ranks(3);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    if (g.rank() == 1) abandon_call(g, "TypeError in a call that was warm elsewhere");
    Agreement call(&g, k_timeout, "gemm");
    static_cast<void>(call.handshake(hello()));
    call.finish("a");
  }));
}

TEST(Agreement, ARankThatIsWarmIsNamedByTheOthersTimeout_S42) {
  Ranks ranks(3);
  const auto ends = ranks.run(
      [&](ProcessGroup& g) {
        Agreement call(&g, k_timeout, "gemm");
        call.run([&] { static_cast<void>(call.handshake(hello())); });
      },
      {1});
  const std::string text = same_error<GroupTimeout>(ends, {1});
  EXPECT_TRUE(contains(text, "rank 1 ") && contains(text, "handshake") && contains(text, "lost"))
      << text;
}

TEST(Agreement, ARankThatLeavesSilentlyIsNamed) {
  for (const auto kind : {Fault::Kind::vanish, Fault::Kind::disconnect}) {
    Ranks ranks(4);
    ranks.inject({.rank = 3, .reduction = 2, .kind = kind});
    const auto ends = ranks.run([&](ProcessGroup& g) {
      Agreement call(&g, k_timeout, "gemm");
      call.run([&] {
        static_cast<void>(call.handshake(hello()));
        std::vector<std::int64_t> block(12);
        call.reduce(block);
        call.finish("a");
      });
    });
    const std::string text = same_error<GroupTimeout>(ends, {3});
    EXPECT_TRUE(contains(text, "rank 3 ") && contains(text, "batch")) << text;
  }
}

// ── A candidate that fails while peers are in its communication ─────────────────────────────────

TEST(Agreement, AStreamThatDrainsAfterAPeersFailureGoesOn_S43) {
  Ranks ranks(2);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "gemm");
    call.run([&] {
      static_cast<void>(call.handshake(hello()));
      call.visiting(1, "BLOCK=8");
      if (g.rank() == 0) call.candidate_failed(1);
      for (int i = 0; g.rank() == 1 && i < 9; ++i) {
        call.poll();
        ranks.sleep(1, 1s);
      }
      std::vector<std::int64_t> block{g.rank() == 0 ? 100 : 5};
      call.reduce(block);
      EXPECT_EQ(100, block[0]);
      call.finish("a");
    });
  }));
}

TEST(Agreement, AStreamThatNeverDrainsEndsTheCallOnAllNamingTheCandidate_S43) {
  Ranks ranks(3);
  const auto begin = ranks.now();
  const auto ends = ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "gemm");
    call.run([&] {
      static_cast<void>(call.handshake(hello()));
      call.visiting(1, "BLOCK=8");
      if (g.rank() == 0) call.candidate_failed(1);
      while (g.rank() != 0) {
        call.poll();
        ranks.sleep(g.rank(), 500ms);
      }
      std::vector<std::int64_t> block{1};
      call.reduce(block);
    });
  });
  const std::string text = testing::what(ends[0]);
  for (const auto& end : ends) {
    EXPECT_THROW(std::rethrow_exception(end), PeerFailed);
    EXPECT_TRUE(contains(testing::what(end), "BLOCK=8 failed on rank 0")) << testing::what(end);
  }
  EXPECT_LE(ranks.now() - begin, 12s);
}

// ── Threads of one rank ─────────────────────────────────────────────────────────────────────────

TEST(Agreement, ACallInsideACallIsPartOfIt) {
  Ranks ranks(3, Time::scripted);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    for (int turn = 0; turn < 2; ++turn) {
      Agreement call(&g, k_timeout, "outer");
      static_cast<void>(call.handshake(hello(1)));
      {
        Agreement inner(&g, k_timeout, "inner");
        static_cast<void>(inner.handshake(hello(2)));
        std::vector<std::int64_t> block{g.rank()};
        inner.reduce(block);
        EXPECT_EQ(block[0], 2);
        inner.finish("b");
      }
      EXPECT_EQ(g.state().owner_call, "outer");
      std::vector<std::int64_t> block{10 * g.rank()};
      call.reduce(block);
      EXPECT_EQ(block[0], 20);
      call.finish("a");
    }
    EXPECT_EQ(g.state().sequence, 3u);
  }));
}

TEST(Agreement, AnInnerDisagreementLeavesTheOuterCallInStep) {
  Ranks ranks(2, Time::scripted);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "outer");
    static_cast<void>(call.handshake(hello(1)));
    {
      Agreement inner(&g, k_timeout, "inner");
      EXPECT_THROW(static_cast<void>(inner.handshake(hello(g.rank()))), Disagreement);
    }
    call.finish("a");
  }));
}

TEST(Agreement, AnInnerCallThatOneRankAbandonsEndsTheOuterOneOnAll) {
  Ranks ranks(3, Time::scripted);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    Agreement call(&g, k_timeout, "outer");
    call.run([&] {
      static_cast<void>(call.handshake(hello(1)));
      if (g.rank() == 1) {
        abandon_call(g, "no key inside");
      } else {
        Agreement inner(&g, k_timeout, "inner");
        EXPECT_THROW(static_cast<void>(inner.handshake(hello(2))), PeerFailed);
      }
      call.finish("a");
    });
  });
  for (const std::size_t r : {0, 2}) {
    EXPECT_THROW(std::rethrow_exception(ends[r]), PeerFailed);
    EXPECT_TRUE(contains(testing::what(ends[r]), "no key inside")) << testing::what(ends[r]);
  }
  EXPECT_THROW(std::rethrow_exception(ends[1]), PeerFailed);
}

/// The owner of the turn is in a run; `waiter` is called in another thread of the rank meanwhile.
void while_a_run_lasts(ProcessGroup& g, const std::function<void()>& waiter) {
  Agreement call(&g, k_timeout, "outer");
  static_cast<void>(call.handshake(hello(1)));
  core::RunClock::run_begins();
  std::thread(waiter).join();
  core::RunClock::runs_end();
  call.finish("a");
}

void expect_turns_go_on(ProcessGroup& g) {
  std::thread([&] {
    Agreement call(&g, k_timeout, "later");
    static_cast<void>(call.handshake(hello(3)));
    call.finish("a");
  }).join();
}

TEST(Agreement, ACallThatTheOwnerOfTheTurnWaitsForEndsInAnErrorThatNamesBoth) {
  Ranks ranks(2, Time::real);
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    while_a_run_lasts(g, [&] {
      try {
        Agreement inner(&g, 1ns, "inner 2");
        ADD_FAILURE();
      } catch (const Error& e) {
        EXPECT_TRUE(contains(e.what(), "inner 2") && contains(e.what(), "outer")) << e.what();
      }
    });
    expect_turns_go_on(g);
  }));
}

TEST(Agreement, AnInterruptReachesWhoWaitsForTheTurn) {
  Ranks ranks(2, Time::real);
  struct Stop {};
  static thread_local bool stop = false;
  disttune::detail::set_interrupt_hook([] {
    if (stop) throw Stop{};
  });
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    while_a_run_lasts(g, [&] {
      stop = true;
      EXPECT_THROW(Agreement(&g, k_timeout, "inner"), Stop);
    });
    expect_turns_go_on(g);
  }));
  disttune::detail::set_interrupt_hook(nullptr);
}

TEST(Agreement, ASecondThreadWaitsItsTurn) {
  Ranks ranks(3, Time::real);
  std::atomic<int> inside[3] = {};
  expect_all_well(ranks.run([&](ProcessGroup& g) {
    const auto tune = [&](int key) {
      Agreement call(&g, 60s, "gemm");
      const auto r = static_cast<std::size_t>(g.rank());
      EXPECT_EQ(1, ++inside[r]);
      static_cast<void>(call.handshake(hello(key)));
      std::vector<std::int64_t> block{1};
      call.reduce(block);
      --inside[r];
      call.finish("a");
    };
    // The same key in both threads: whichever comes first, ranks agree.
    std::thread other([&] {
      for (int i = 0; i < 20; ++i) tune(1);
    });
    for (int i = 0; i < 20; ++i) tune(1);
    other.join();
    EXPECT_EQ(41u, g.state().sequence);
  }));
}

TEST(Agreement, TwoColdKeysInDifferentOrderEndInOneErrorThatNamesBoth) {
  Ranks ranks(2, Time::real);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    const auto tune = [&](int key) {
      Agreement call(&g, 60s, "gemm");
      call.run([&] {
        static_cast<void>(call.handshake(hello(key)));
        call.finish("a");
      });
    };
    std::exception_ptr first;
    try {
      tune(g.rank() == 0 ? 1 : 2);
    } catch (const Disagreement&) {
      first = std::current_exception();
    }
    EXPECT_THROW(tune(g.rank() == 0 ? 2 : 1), Disagreement);
    if (first) std::rethrow_exception(first);
  });
  const std::string text = same_error<Disagreement>(ends);
  EXPECT_TRUE(contains(text, "gemm (1, \"float16\")") || contains(text, "(1, \"float16\")"))
      << text;
  EXPECT_TRUE(contains(text, "(2, \"float16\")")) << text;
}

TEST(Agreement, ACallThatEndsEarlyOnABusyGroupIsAnnouncedAfterwards) {
  Ranks ranks(2, Time::real);
  const auto ends = ranks.run([&](ProcessGroup& g) {
    {
      Agreement call(&g, 60s, "gemm");
      static_cast<void>(call.handshake(hello()));
      if (g.rank() == 1) std::thread([&] { abandon_call(g, "TypeError: second thread"); }).join();
      call.meet();
      call.finish("a");  // not spoiled
    }
    if (g.rank() == 1) return;
    Agreement call(&g, 60s, "gemm");
    call.run([&] { static_cast<void>(call.handshake(hello(2))); });
  });
  EXPECT_TRUE(contains(testing::what(ends[0]), "TypeError: second thread"));
}

}  // namespace
}  // namespace disttune::agree::test
