// Contextual tuning with ranks that are threads: what its tests share.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "disttune/testing/ranks.hpp"
#include "session/rig.hpp"

namespace disttune::test {

/// Every rank has a clock and launches of its own.
class KernelsOnRanks : public Session {
 protected:
  static constexpr int k_ranks = 2;
  struct Rank {
    testing::ScriptedClock clock;
    std::map<std::string, std::vector<int>> launches;
    int passes = 0;
  };
  Rank& at(int r) { return ranks[static_cast<std::size_t>(r)]; }

  std::array<Rank, k_ranks> ranks;
  testing::Ranks group{k_ranks};
};

}  // namespace disttune::test
