// Slips of a user's strategy.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "disttune/error.hpp"
#include "disttune/selector.hpp"

namespace {

using namespace disttune;

/// What the page of extension points asks for, and nothing more: no `stop`.
class Scripted final : public Selector {
 public:
  Scripted(std::vector<Visit> batch, Decision decision)
      : m_batch(std::move(batch)), m_decision(std::move(decision)) {}
  std::span<const Visit> next() override { return m_batch; }
  void report(std::span<const std::int64_t>) override { m_batch.clear(); }
  Decision decision() const override { return m_decision; }

 private:
  std::vector<Visit> m_batch;
  Decision m_decision;
};

/// Runs the strategy to its end with samples of 100 ns (candidate 1 fails); its decision or error.
std::string outcome(const std::string& name, std::vector<Visit> batch, Decision decision) {
  register_strategy(name,
                    [=](const Problem&) { return std::make_unique<Scripted>(batch, decision); });
  const auto selector = make_selector(name, Problem{.candidates = 3});
  try {
    for (auto visits = selector->next(); !visits.empty(); visits = selector->next()) {
      std::vector<std::int64_t> samples;
      for (const Visit& v : visits)
        samples.insert(samples.end(), v.timed, v.candidate == 1 ? k_failed + 1 : 100);
      selector->report(samples);
    }
    const Decision made = selector->decision();
    return std::to_string(made.winner.value_or(99)) + " of " + std::to_string(made.scores.size());
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(CheckedStrategy, MissingScoresAreInfinite) {
  EXPECT_EQ(outcome("user_no_scores", {{0, 1, 2}, {2, 0, 1}}, {2, {}}), "2 of 3");
}

TEST(CheckedStrategy, AVisitBeyondTheCandidatesIsAnError) {
  EXPECT_EQ(outcome("user_beyond", {{3, 1, 2}}, {0, {}}),
            "disttune: the search strategy 'user_beyond' asked for a visit of candidate 3 of 3");
}

TEST(CheckedStrategy, AWinnerThatCannotBeIsAnError) {
  const std::vector<Visit> batch{{0, 0, 1}, {1, 0, 1}};
  EXPECT_EQ(
      outcome("user_outside", batch, {7, {}}),
      "disttune: the search strategy 'user_outside' chose candidate 7 of 3, which does not exist");
  EXPECT_EQ(outcome("user_failed", batch, {1, {}}),
            "disttune: the search strategy 'user_failed' chose candidate 1 of 3, which failed");
  EXPECT_EQ(
      outcome("user_untimed", batch, {2, {}}),
      "disttune: the search strategy 'user_untimed' chose candidate 2 of 3, which was never timed");
}

}  // namespace
