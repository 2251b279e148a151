// expect: disttune: a launcher runs many times while it is tuned, so it cannot take T&&; take T& or
// const T&
#include <string>

#include "tile.hpp"

auto launcher = disttune::autotune(
    "rvalue_reference", tiles, [](const std::string& s) { return s.size(); },
    [](const Tile&, std::string&& s) { return s.size(); });
