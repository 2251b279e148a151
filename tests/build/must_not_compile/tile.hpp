// What all cases share.
#pragma once

#include "disttune/function.hpp"

struct Tile {
  int block = 1;
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Tile::block));
};
inline const disttune::Space<Tile> tiles{{.block = 1}, {.block = 2}};
