#include "agree/simulator.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace disttune::agree::test {
namespace {

/// DISTTUNE_SOAK_RUNS and DISTTUNE_SOAK_SEED make it longer, or repeat one world.
std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(Simulator, RandomWorldsKeepTheInvariants_S34_S35_S36_S37) {
  const std::uint64_t first = from_environment("DISTTUNE_SOAK_SEED", 1);
  const std::uint64_t runs = from_environment("DISTTUNE_SOAK_RUNS", 1000);
  std::map<End::Kind, int> kinds;
  int broken = 0;
  for (std::uint64_t seed = first; seed < first + runs && broken < 5; ++seed) {
    const World world = World::random(seed);
    const History history = simulate(world);
    const std::string text = broken_invariant(world, history);
    EXPECT_EQ("", text) << world.text();
    broken += text.empty() ? 0 : 1;
    for (const auto& ends : history.ends)
      for (const End& end : ends) ++kinds[end.kind];
  }
  if (runs < 1000) return;
  // The worlds are worth the time only when every way to end is among them.
  for (const auto kind :
       {End::Kind::well, End::Kind::none_valid, End::Kind::disagreement, End::Kind::peer_failed,
        End::Kind::timeout, End::Kind::own, End::Kind::died})
    EXPECT_GT(kinds[kind], 50) << static_cast<int>(kind);
}

TEST(Simulator, OneSeedIsOneHistory) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const World world = World::random(seed);
    if (world.troubles.size() > 1) continue;
    const History a = simulate(world);
    const History b = simulate(world);
    for (std::size_t r = 0; r < a.ends.size(); ++r)
      for (std::size_t c = 0; c < a.ends[r].size(); ++c) {
        EXPECT_EQ(a.ends[r][c].winner, b.ends[r][c].winner) << world.text();
        EXPECT_EQ(a.ends[r][c].kind, b.ends[r][c].kind) << world.text();
        EXPECT_EQ(a.ends[r][c].reductions, b.ends[r][c].reductions) << world.text();
      }
    EXPECT_EQ(a.stored, b.stored) << world.text();
  }
}

TEST(Simulator, HundredKeysWithNoisyClocksAgree_S35) {
  World world = World::random(77);
  world.ranks = 4;
  world.calls = 100;
  world.candidates = 8;
  world.strategy = "race";
  world.budget.reset();
  world.troubles.clear();
  world.found.clear();
  world.store_of.assign(4, 1);
  world.always_tune.assign(4, false);
  world.prepare.assign(4, std::vector<Status>(8, Status::ok));
  world.fails_at.assign(4, std::vector<int>(8, -1));
  const History history = simulate(world);
  EXPECT_EQ("", broken_invariant(world, history));
  for (std::size_t c = 0; c < 100; ++c) {
    ASSERT_TRUE(history.ends[0][c].winner);
    for (const auto& ends : history.ends) EXPECT_EQ(history.ends[0][c].winner, ends[c].winner);
  }
}

}  // namespace
}  // namespace disttune::agree::test
