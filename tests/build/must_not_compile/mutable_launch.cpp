// expect: disttune: a launcher runs concurrently and many times, so its call operator must be const
#include "tile.hpp"

auto launcher = disttune::autotune(
    "mutable_launch", tiles, [](int n) { return n; },
    [calls = 0](const Tile&, int n) mutable { return n + ++calls; });
