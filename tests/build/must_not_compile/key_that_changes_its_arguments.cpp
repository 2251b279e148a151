// expect: disttune: the key function takes the launcher's parameters without the configuration, by
// value or const reference
#include <string>

#include "tile.hpp"

auto launcher = disttune::autotune(
    "key_that_changes", tiles, [](std::string& s) { return s.size(); },
    [](const Tile&, const std::string& s) { return s.size(); });
