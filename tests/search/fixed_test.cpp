#include "search/fixed.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/samples.hpp"
#include "search/choice.hpp"
#include "search/simulation.hpp"

namespace {

using namespace disttune;
using namespace disttune::search;

using Samples = std::vector<std::int64_t>;

/// The decision when every candidate's timed runs all take the given time.
Decision decided(Problem problem, const std::vector<std::int64_t>& times) {
  problem.candidates = times.size();
  FixedSelector selector(problem);
  Samples samples;
  for (const Visit& visit : selector.next())
    samples.insert(samples.end(), visit.timed, times[visit.candidate]);
  selector.report(samples);
  EXPECT_TRUE(selector.next().empty());
  return selector.decision();
}

TEST(Fixed, OneBatchOfAllInListOrderWithExactCounts) {
  FixedSelector selector({.candidates = 3, .untimed = 5, .timed = 10});
  const auto batch = selector.next();
  EXPECT_EQ(std::vector<Visit>(batch.begin(), batch.end()),
            (std::vector<Visit>{{0, 5, 10}, {1, 5, 10}, {2, 5, 10}}));
  EXPECT_EQ(selector.next().data(), batch.data()) << "asked again, the batch is the same";
  selector.report(Samples(30, 100));
  EXPECT_TRUE(selector.next().empty());
}

TEST(Fixed, TheFastestWins) {
  const Decision d = decided({.timed = 3}, {300, 100, 200});
  EXPECT_EQ(d.winner, 1U);
  EXPECT_EQ(d.scores, (std::vector<double>{300, 100, 200}));
}

TEST(Fixed, TheScoreIsTheMeanOfTheMiddleHalf) {
  FixedSelector selector({.candidates = 2, .untimed = 0, .timed = 4});
  static_cast<void>(selector.next());
  selector.report(Samples{1, 100, 110, 9000, 106, 106, 106, 106});
  EXPECT_DOUBLE_EQ(selector.decision().scores[0], 105);
  EXPECT_EQ(selector.decision().winner, 0U);
}

TEST(Fixed, OneByOneIsABatchACandidate) {
  FixedSelector selector({.candidates = 3, .untimed = 1, .timed = 2, .one_by_one = true});
  for (std::uint32_t c = 0; c < 3; ++c) {
    const auto batch = selector.next();
    ASSERT_EQ(batch.size(), 1U);
    EXPECT_EQ(batch[0], (Visit{c, 1, 2}));
    selector.report(Samples(2, 100 - static_cast<std::int64_t>(c)));
  }
  EXPECT_TRUE(selector.next().empty());
  EXPECT_EQ(selector.decision().winner, 2U);
}

TEST(Fixed, StopDecidesFromWhatIsKnown) {
  FixedSelector selector({.candidates = 3, .timed = 1, .one_by_one = true});
  static_cast<void>(selector.next());
  selector.report(Samples{50});
  static_cast<void>(selector.next());
  selector.report(Samples{40});
  selector.stop();
  EXPECT_TRUE(selector.next().empty());
  const Decision d = selector.decision();
  EXPECT_EQ(d.winner, 1U);
  EXPECT_TRUE(std::isinf(d.scores[2]));
}

TEST(Fixed, StopBeforeAnythingHasNoWinner) {
  FixedSelector selector({.candidates = 2});
  static_cast<void>(selector.next());
  selector.stop();
  EXPECT_TRUE(selector.next().empty());
  EXPECT_EQ(selector.decision().winner, std::nullopt);
}

TEST(Fixed, KnownCandidatesAreNotVisited) {
  FixedSelector selector(
      {.candidates = 4, .timed = 2, .known = {{}, {70, 70}, {core::sample_of(Status::crashed)}}});
  const auto batch = selector.next();
  ASSERT_EQ(batch.size(), 2U);
  EXPECT_EQ(batch[0].candidate, 0U);
  EXPECT_EQ(batch[1].candidate, 3U);
  selector.report(Samples{90, 90, 80, 80});
  const Decision d = selector.decision();
  EXPECT_EQ(d.winner, 1U);
  EXPECT_EQ(d.scores[1], 70);
  EXPECT_TRUE(std::isinf(d.scores[2]));
}

TEST(Fixed, AllKnownIsDecidedAtOnce) {
  FixedSelector selector({.candidates = 2, .known = {{90}, {80}}});
  EXPECT_TRUE(selector.next().empty());
  EXPECT_EQ(selector.decision().winner, 1U);
}

TEST(Fixed, AFailedRunFailsItsCandidate) {
  for (const std::int64_t bad :
       {core::sample_of(Status::launch_failed), core::sample_of(core::Retry::bad_clock),
        core::sample_of(core::Retry::stalled), std::numeric_limits<std::int64_t>::max(),
        std::int64_t{0}, std::int64_t{-5}}) {
    FixedSelector selector({.candidates = 2, .timed = 3});
    static_cast<void>(selector.next());
    selector.report(Samples{1, bad, 1, 100, 100, 100});
    EXPECT_EQ(selector.decision().winner, 1U) << bad;
    EXPECT_TRUE(std::isinf(selector.decision().scores[0]));
  }
}

TEST(Fixed, NothingWorksIsNoWinner) {
  const std::int64_t failed = core::sample_of(Status::wrong_result);
  EXPECT_EQ(decided({}, {failed, failed}).winner, std::nullopt);
}

TEST(Fixed, TiesGoToIncumbentThenDefaultThenLowestIndex) {
  const std::vector<std::int64_t> times = {20000, 10019, 10000, 10020, 10021};
  EXPECT_EQ(decided({.incumbent = 3}, times).winner, 3U);
  EXPECT_EQ(decided({.default_candidate = 3}, times).winner, 3U);
  EXPECT_EQ(decided({.default_candidate = 2, .incumbent = 3}, times).winner, 3U);
  EXPECT_EQ(decided({}, times).winner, 1U) << "the default is slower, 1 is the first in the band";
  EXPECT_EQ(decided({.default_candidate = 4, .incumbent = 0}, times).winner, 1U)
      << "0.21 % is outside of the band";
}

TEST(Fixed, ADefaultThatWasPrunedWinsNothing) {
  EXPECT_EQ(decided({.default_candidate = 99, .incumbent = 98}, {10, 10}).winner, 0U);
}

TEST(Fixed, ReportsMustMatchTheBatch) {
  FixedSelector selector({.candidates = 2, .timed = 3});
  EXPECT_THROW(selector.report(Samples(6, 1)), std::logic_error);
  static_cast<void>(selector.next());
  EXPECT_THROW(selector.report(Samples(5, 1)), std::invalid_argument);
  selector.report(Samples(6, 1));
  EXPECT_THROW(selector.report(Samples(6, 1)), std::logic_error);
}

TEST(Fixed, EqualReportsGiveEqualDecisions) {
  const Machine machine{.true_ns = {1000, 1001, 1002, 990, 5000}, .noise = 0.02, .outliers = 0.05};
  const Problem problem{.candidates = 5};
  FixedSelector a(problem);
  FixedSelector b(problem);
  const Decision first = run(a, machine).decision;
  const Decision second = run(b, machine).decision;
  EXPECT_EQ(first.winner, second.winner);
  EXPECT_EQ(first.scores, second.scores);
}

}  // namespace
