// A launcher of a user's own, built against nothing but the installed package.
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
                       .source(DISTTUNE_SOURCE_DIGEST);
  std::printf("%d\n", add(3));
}
