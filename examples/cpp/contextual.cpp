// Two kernels that depend on each other inside one step: sums over blocks, then an exclusive scan
// of the sums that moves the data by them. The second works on what the first left in the cache, so
// each is tuned inside the step and not by itself.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "disttune/contextual.hpp"
#include "disttune/disttune.hpp"
#include "prefix_sum.hpp"

int main() {
  using disttune::grid;
  constexpr std::size_t blocks = 1024;
  std::vector<std::int32_t> in(blocks * k_block);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<std::int32_t>(i * 2654435761u % 7);
  std::vector<std::int64_t> sums(blocks), out(in.size());

  const auto space = grid(&Split::threads, {1, 2}) * grid(&Split::chunk, {64, 256});
  const auto key = [](std::size_t n) { return n; };
  int sum_launches = 0, scan_launches = 0, runs = 0;
  const auto sum = disttune::tuned_kernel(
      "example_sum", space, [&](Data d, Sums) { return key(d.size()); },
      [&](const Split& s, Data d, Sums o) {
        ++sum_launches;
        sum_blocks(s, d, o);
      });
  const auto scan = disttune::tuned_kernel(
      "example_scan", space, [&](Data d, Sums, Sums) { return key(d.size()); },
      [&](const Split& s, Data d, Sums b, Sums o) {
        ++scan_launches;
        scan_blocks(s, d, b, o);
      });
  const auto prefix_sum =
      disttune::contextual("prefix_sum", {.n_warmup = 1, .n_repeat = 3}, [&](Data d) {
        ++runs;
        sum(d, sums);
        std::exclusive_scan(sums.begin(), sums.end(), sums.begin(), std::int64_t{0});
        scan(d, sums, out);
        return out.back();
      });

  const std::int64_t total = prefix_sum(in);
  std::printf("first call: %d runs of the step, %d + %d launches\n", runs, sum_launches,
              scan_launches);
  const bool tuned = runs == 4 * 4 + 1;
  runs = 0;
  prefix_sum(in);
  std::printf("second call: %d run\n", runs);

  const auto expected = std::accumulate(in.begin(), in.end(), std::int64_t{0});
  std::printf("sum of all: %lld\n", static_cast<long long>(total));
  if (!tuned || runs != 1 || total != expected) {
    std::puts("wrong");
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
