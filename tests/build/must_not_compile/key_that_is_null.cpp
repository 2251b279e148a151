// expect: disttune: a key is made of integers
#include "tile.hpp"

auto launcher = disttune::autotune(
    "null", tiles, [](int) { return nullptr; }, [](const Tile&, int n) { return n; });
