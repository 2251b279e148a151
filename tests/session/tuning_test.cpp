// Steps, batches and repetitions, with a selector that reports what it was told.
#include "session/tuning.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace disttune::session {
namespace {

using core::Retry;

struct Heard {
  std::vector<std::vector<std::int64_t>> reports;
};
class OneBatch final : public Selector {
 public:
  OneBatch(Heard& heard, std::vector<Visit> batch) : m_heard(heard), m_batch(std::move(batch)) {}
  std::span<const Visit> next() override {
    return m_heard.reports.empty() ? std::span<const Visit>(m_batch) : std::span<const Visit>{};
  }
  void report(std::span<const std::int64_t> s) override {
    m_heard.reports.emplace_back(s.begin(), s.end());
  }
  void stop() override {}
  Decision decision() const override { return {}; }

 private:
  Heard& m_heard;
  std::vector<Visit> m_batch;
};

Tuning tuning_of(Heard& heard, std::vector<Visit> batch) {
  return Tuning(std::make_unique<OneBatch>(heard, std::move(batch)));
}

TEST(Tuning, HandsOutUntimedThenTimedStepsOfEachVisit) {
  Heard heard;
  auto t = tuning_of(heard, {{4, 1, 2}, {7, 0, 1}});
  std::vector<std::pair<std::uint32_t, bool>> seen;
  while (const auto s = t.next()) {
    seen.emplace_back(s->candidate, s->timed);
    t.finish(*s, 10 + static_cast<std::int64_t>(seen.size()));
  }
  EXPECT_EQ(seen, (std::vector<std::pair<std::uint32_t, bool>>{
                      {4, false}, {4, true}, {4, true}, {7, true}}));
  EXPECT_TRUE(t.batch_full());
  t.advance();
  EXPECT_TRUE(t.decided());
  EXPECT_EQ(heard.reports, (std::vector<std::vector<std::int64_t>>{{12, 13, 14}}));
}

TEST(Tuning, AFailedVisitHasNoFurtherStepsAndReportsItsStatusInAllItsSamples) {
  Heard heard;
  auto t = tuning_of(heard, {{0, 1, 2}, {1, 0, 1}});
  t.finish(*t.next(), core::sample_of(Status::launch_failed));
  const auto s = t.next();
  ASSERT_TRUE(s);
  EXPECT_EQ(s->candidate, 1u);
  t.finish(*s, 5);
  t.advance();
  const auto failed = core::sample_of(Status::launch_failed);
  EXPECT_EQ(heard.reports[0], (std::vector<std::int64_t>{failed, failed, 5}));
}

TEST(Tuning, BadSamplesComeBackInABatchOfTheirOwnInTheirPlaces) {
  Heard heard;
  auto t = tuning_of(heard, {{0, 2, 3}, {1, 0, 2}});
  std::int64_t n = 0;
  while (const auto s = t.next())
    t.finish(*s, s->timed && n++ % 3 == 1 ? core::sample_of(Retry::spoiled) : n);
  t.advance();
  ASSERT_FALSE(t.decided());
  EXPECT_TRUE(heard.reports.empty()) << "the selector sees times and failures only";
  ASSERT_EQ(t.visits().size(), 2u);
  EXPECT_EQ(t.visits()[0], (Visit{0, 1, 1}));
  EXPECT_EQ(t.visits()[1], (Visit{1, 0, 1}));
  while (const auto s = t.next()) t.finish(*s, 100);
  t.advance();
  EXPECT_TRUE(t.decided());
  EXPECT_EQ(heard.reports[0], (std::vector<std::int64_t>{1, 100, 3, 4, 100}));
}

TEST(Tuning, HostTimesAreThoseOfTheRunsThatTheSamplesAreOf) {
  Heard heard;
  auto t = tuning_of(heard, {{0, 0, 3}, {1, 0, 1}});
  std::vector<std::vector<std::int64_t>> reported;
  t.on_reported = [&](const Visit&, std::span<const std::int64_t>,
                      std::span<const std::int64_t> host_ns) {
    reported.emplace_back(host_ns.begin(), host_ns.end());
  };
  std::ranges::copy(std::array{1, 2, 3}, t.host_ns_of(0).begin());
  t.host_ns_of(1)[0] = 4;
  while (const auto s = t.next())
    t.finish(*s, s->sample == 1 ? core::sample_of(Retry::spoiled) : 100);
  t.advance();
  ASSERT_EQ(t.visits().size(), 1u);
  t.host_ns_of(0)[0] = 9;
  while (const auto s = t.next()) t.finish(*s, 100);
  t.advance();
  EXPECT_EQ(reported, (std::vector<std::vector<std::int64_t>>{{1, 9, 3}, {4}}));
}

TEST(Tuning, ASampleThatNeverComesGoodFailsItsVisitAfterThreeRepetitions) {
  Heard heard;
  auto t = tuning_of(heard, {{0, 0, 2}});
  int batches = 0;
  while (!t.decided()) {
    ++batches;
    while (const auto s = t.next())
      t.finish(*s, s->sample == 0 ? core::sample_of(Retry::bad_clock) : 5);
    t.advance();
  }
  EXPECT_EQ(batches, 1 + Tuning::k_repetitions);
  EXPECT_TRUE(core::is_failure(heard.reports[0][0]));
  EXPECT_TRUE(core::is_failure(heard.reports[0][1]));
}

TEST(Tuning, TheBlockEndsWithElapsedTimeAndMode) {
  Heard heard;
  auto t = tuning_of(heard, {{0, 0, 2}});
  t.elapsed_ns() = 11;
  t.mode() = 2;
  EXPECT_EQ(t.block().size(), 2 + core::k_trailer);
  EXPECT_EQ(t.block()[2], 11);
  EXPECT_EQ(t.block()[3], 2);
}

}  // namespace
}  // namespace disttune::session
