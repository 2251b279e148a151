// expect: disttune: the space's configurations are of another type than the launch's first
// parameter
#include "tile.hpp"

struct Other {
  int block = 1;
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Other::block));
};
auto launcher = disttune::autotune(
    "other", tiles, [](int n) { return n; }, [](const Other&, int n) { return n; });
