// expect: disttune: the launcher's first parameter is the configuration: disttune::Config or a
// struct with a static constexpr member `tuned`
#include "tile.hpp"

auto launcher = disttune::autotune(
    "no_configuration", tiles, [](int n) { return n; }, [](int n) { return n; });
