// Two kernels that depend on each other inside one step: sums over blocks, then an exclusive scan
// of the sums that moves the data by them. The second works on what the first left in the cache, so
// each is tuned inside the step and not by itself.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "disttune/contextual.hpp"
#include "disttune/disttune.hpp"

namespace {

struct Split {
  int threads = 1;
  int chunk = 4096;  ///< elements that a thread takes at a time
  static constexpr auto tuned = disttune::fields(disttune::field("THREADS", &Split::threads),
                                                 disttune::field("CHUNK", &Split::chunk));
};

constexpr std::size_t k_block = 1024;
using Data = std::span<const std::int32_t>;
using Sums = std::span<std::int64_t>;

/// Calls f(begin, end) for chunks of [0, count), dealt to the threads in turn.
template <class F>
void in_parallel(const Split& s, std::size_t count, const F& f) {
  const auto threads = static_cast<std::size_t>(s.threads);
  const auto chunk = static_cast<std::size_t>(s.chunk);
  const auto part = [&](std::size_t t) {
    for (std::size_t begin = t * chunk; begin < count; begin += threads * chunk)
      f(begin, std::min(begin + chunk, count));
  };
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(part, t);
  part(0);
  for (std::thread& t : others) t.join();
}

void sum_blocks(const Split& s, Data in, Sums sums) {
  in_parallel(s, sums.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t b = begin; b < end; ++b) {
      const Data block = in.subspan(b * k_block, k_block);
      sums[b] = std::accumulate(block.begin(), block.end(), std::int64_t{0});
    }
  });
}

/// sums[b]: the sum of all elements before block b.
void scan_blocks(const Split& s, Data in, Sums sums, Sums out) {
  in_parallel(s, sums.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t b = begin; b < end; ++b) {
      std::int64_t sum = sums[b];
      for (std::size_t i = b * k_block; i < (b + 1) * k_block; ++i) out[i] = sum += in[i];
    }
  });
}

}  // namespace

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
