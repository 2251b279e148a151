// A named launcher cannot change under another thread: its setters are for temporaries alone.
// expect: discards qualifiers || 'this' argument to member function 'prune' is an lvalue
#include "tile.hpp"

auto launcher = disttune::autotune(
    "named", tiles, [](int n) { return n; }, [](const Tile&, int n) { return n; });
auto changed = launcher.prune([](const Tile&, int) { return true; });
