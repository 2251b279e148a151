// expect: disttune: a generic or overloaded function needs its signature as the first
// template argument
#include "tile.hpp"

auto launcher = disttune::autotune(
    "generic", tiles, [](int n) { return n; }, [](const auto&, int n) { return n; });
