// A five-point stencil on a grid, with OpenMP where the compiler has it and threads where not.
// Tiles and threads are chosen together: what is best alone need not be best in company.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "disttune/disttune.hpp"
#include "report.hpp"

namespace {

struct Tiling {
  int threads = 1;
  int rows = 8;
  int columns = 8;
  static constexpr auto tuned = disttune::fields(disttune::field("THREADS", &Tiling::threads),
                                                 disttune::field("ROWS", &Tiling::rows),
                                                 disttune::field("COLUMNS", &Tiling::columns));
};

struct Grid {
  std::span<const float> in;
  std::span<float> out;
  std::size_t height = 0, width = 0;
};

void relax(const Grid& g, std::size_t row_begin, std::size_t row_end, std::size_t column_begin,
           std::size_t column_end) {
  const std::size_t w = g.width;
  for (std::size_t i = row_begin; i < row_end; ++i) {
    const float* here = g.in.data() + i * w;
    float* out = g.out.data() + i * w;
    for (std::size_t j = column_begin; j < column_end; ++j)
      out[j] =
          0.5f * here[j] + 0.125f * (here[j - 1] + here[j + 1] + *(here + j - w) + *(here + j + w));
  }
}

/// Calls f(0) … f(count - 1) on `threads` threads, each a contiguous part of them.
template <class F>
void in_parallel(int threads, std::size_t count, const F& f) {
#ifdef _OPENMP
#  pragma omp parallel for num_threads(threads) schedule(static)
  for (std::size_t i = 0; i < count; ++i) f(i);
#else
  const auto workers = static_cast<std::size_t>(threads);
  std::vector<std::thread> others;
  const auto part = [&](std::size_t w) {
    for (std::size_t i = count * w / workers; i < count * (w + 1) / workers; ++i) f(i);
  };
  for (std::size_t w = 1; w < workers; ++w) others.emplace_back(part, w);
  part(0);
  for (std::thread& t : others) t.join();
#endif
}

void sweep(const Tiling& t, const Grid& g) {
  const auto rows = static_cast<std::size_t>(t.rows), columns = static_cast<std::size_t>(t.columns);
  const std::size_t bands = (g.height - 2 + rows - 1) / rows;
  in_parallel(t.threads, bands, [&](std::size_t band) {
    const std::size_t begin = 1 + band * rows, end = std::min(begin + rows, g.height - 1);
    for (std::size_t j = 1; j < g.width - 1; j += columns)
      relax(g, begin, end, j, std::min(j + columns, g.width - 1));
  });
}

bool same(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::abs(x - y) < 1e-5f; });
}

}  // namespace

int main() {
  using disttune::grid;
  constexpr std::size_t height = 1024, width = 1024;
  std::vector<float> in(height * width), out(height * width), expected(height * width);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i * 2654435761u % 1000);
  relax({in, expected, height, width}, 1, height - 1, 1, width - 1);  // plain: no tiles, no threads

  int launches = 0;
  const int cores = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
  const auto step =
      disttune::autotune(
          "example_stencil",
          disttune::Space<Tiling>{Tiling{}} + grid(&Tiling::threads, {1, 2, 4, 8}) *
                                                  grid(&Tiling::rows, {4, 32}) *
                                                  grid(&Tiling::columns, {128, 1024}),
          [](const Grid& g) { return std::tuple(g.height, g.width); },
          [&launches](const Tiling& t, const Grid& g) {
            ++launches;
            sweep(t, g);
          })
          .source(DISTTUNE_SOURCE_DIGEST)
          .prune([cores](const Tiling& t, const Grid&) { return t.threads <= cores; })
          .check([&expected](const Tiling&, const Grid& g) -> std::optional<std::string> {
            if (same(g.out, expected)) return std::nullopt;
            return "differs from the plain sweep";
          });

  const Grid g{in, out, height, width};
  const disttune::Explanation before = step.explain(g);
  step(g);
  std::printf("five-point stencil on %zu x %zu\n", height, width);
  print_report(before, step.result(g), launches);
  if (same(out, expected)) return EXIT_SUCCESS;
  std::puts("wrong: differs from the plain sweep");
  return EXIT_FAILURE;
}
