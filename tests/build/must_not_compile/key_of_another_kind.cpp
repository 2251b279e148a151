// expect: disttune: a key is made of integers, enums, bools, floating-point numbers, text, tuples
// and vectors of these, structs with a static constexpr member `tuned`
#include <set>

#include "tile.hpp"

auto launcher = disttune::autotune(
    "key_of_another_kind", tiles, [](int n) { return std::set<int>{n}; },
    [](const Tile&, int n) { return n; });
int result = launcher(1);
