// A typo in a configuration's name does not compile, which is what a struct is for.
// expect: has no member named 'blok' || no member named 'blok' in 'Tile'
#include "tile.hpp"

auto launcher = disttune::autotune(
    "typo", tiles, [](int n) { return n; }, [](const Tile& t, int n) { return n + t.blok; });
