// expect: disttune: a launch takes the configuration first: launch(config, args...)
#include "tile.hpp"

auto launcher = disttune::autotune(
    "no_parameters", tiles, [] { return 0; }, [] { return 0; });
