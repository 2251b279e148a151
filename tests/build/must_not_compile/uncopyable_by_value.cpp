// expect: disttune: a parameter taken by value is copied for each run, and this type cannot be
// copied; take it by reference
#include <memory>

#include "tile.hpp"

auto launcher = disttune::autotune(
    "uncopyable", tiles, [](const std::unique_ptr<int>& p) { return *p; },
    [](const Tile&, std::unique_ptr<int> p) { return *p; });
