// Ranks as people read them.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>

namespace disttune::core {

/// "rank 2", "ranks 0, 1, 5", "ranks 0-3, 7": runs of four and more are shortened. `ranks` sorted.
[[nodiscard]] inline std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t run = 1;
    while (i + run < ranks.size() && ranks[i + run] == ranks[i] + static_cast<int>(run)) ++run;
    if (i > 0) text += ", ";
    if (run >= 4) {
      text += fmt::format("{}-{}", ranks[i], ranks[i + run - 1]);
      i += run;
    } else {
      text += std::to_string(ranks[i++]);
    }
  }
  return text;
}

}  // namespace disttune::core
