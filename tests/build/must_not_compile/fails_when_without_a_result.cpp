// A launch that returns nothing has no status to look at.
// expect: fails_when
// expect: constraints not satisfied
#include <optional>
#include <string>

#include "tile.hpp"

auto launcher = disttune::autotune(
                    "no_result", tiles, [](int n) { return n; }, [](const Tile&, int) {})
                    .fails_when([](int) -> std::optional<std::string> { return std::nullopt; });
