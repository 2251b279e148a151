// Random worlds for the agreement: ranks as threads on a scripted clock, with records on some of
// them, candidates that fail, ranks that are slow, raise, leave or differ. All of a world follows
// from its seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "disttune/record.hpp"
#include "disttune/testing/ranks.hpp"

namespace disttune::agree::test {

/// Where in a cold call a rank raises, or is slow.
enum class Moment {
  before_call,   ///< as a key function does
  before_hello,  ///< as a prune function does
  after_hello,
  preparing,
  measuring,
  before_finish,
  after_finish,
};
inline constexpr int k_moments = 7;

struct Trouble {
  enum class Kind { raise, interrupt, slow, silent, vanish, disconnect, warm, differs };
  Kind kind = Kind::raise;
  int rank = 0;  ///< −1: all ranks
  int call = 0;
  Moment moment = Moment::measuring;
  std::chrono::nanoseconds time{};
};

struct World {
  std::uint64_t seed = 0;
  int ranks = 2;
  int calls = 1;
  int candidates = 2;
  std::string strategy = "fixed";
  std::optional<std::chrono::nanoseconds> budget;
  std::vector<std::uint64_t> store_of;         ///< by rank; 0: cannot write
  std::map<std::uint64_t, std::string> found;  ///< records that are there beforehand, by store
  std::vector<std::vector<Status>> prepare;    ///< rank × candidate
  std::vector<std::vector<int>> fails_at;      ///< rank × candidate: which run fails; −1: none
  std::vector<bool> always_tune;               ///< by rank
  std::vector<Trouble> troubles;

  [[nodiscard]] static World random(std::uint64_t seed);
  [[nodiscard]] std::string text() const;
};

/// How one cold call ended on one rank.
struct End {
  enum class Kind { never_began, well, none_valid, disagreement, peer_failed, timeout, own, died };
  Kind kind = Kind::never_began;
  std::uint64_t sequence = 0;  ///< 0: it never got its turn (closed, or raised before)
  std::optional<std::uint32_t> winner;
  bool tuned = false;
  std::uint64_t batches = 0;
  std::uint64_t reductions = 0;  ///< without the exchange at the group's first use
  bool first_use = false;
  std::string text;
};

struct History {
  std::vector<std::vector<End>> ends;                          ///< rank × call
  std::map<std::uint64_t, std::map<int, std::string>> stored;  ///< store → key → record
  std::chrono::nanoseconds took{};                             ///< scripted
};

[[nodiscard]] History simulate(const World& world);
/// What the history of this world breaks; empty: nothing.
[[nodiscard]] std::string broken_invariant(const World& world, const History& history);

}  // namespace disttune::agree::test
