#include <cstdio>

#include "kernel.hpp"

int main() {
  std::puts(DISTTUNE_SOURCE_DIGEST);
  return kernel() - 1;
}
