// expect: disttune: the key function takes the launcher's parameters without the configuration, by
// value or const reference
#include "tile.hpp"

auto launcher = disttune::autotune(
    "key_of_other_parameters", tiles, [](int n, int) { return n; },
    [](const Tile&, int n) { return n; });
