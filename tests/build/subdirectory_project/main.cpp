// A launcher of a user’s own, built inside a project that adds disttune as a subdirectory.
#include <cstdio>
#include <disttune/function.hpp>

struct Tile {
  int block = 1;
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Tile::block));
};

int main() {
  const auto add = disttune::autotune(
                       "add", disttune::grid(&Tile::block, {1, 2}), [](int n) { return n; },
                       [](const Tile&, int n) { return n + 4; })
                       .version("1");
  std::printf("%d\n", add(3));
}
