// expect: disttune: the key function returns what decides the choice, not void
#include "tile.hpp"

auto launcher = disttune::autotune(
    "no_key", tiles, [](int) {}, [](const Tile&, int n) { return n; });
