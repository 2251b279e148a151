// Two kernels of the contextual examples: sums over blocks, and the running sums that need them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "disttune/disttune.hpp"

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

inline void sum_blocks(const Split& s, Data in, Sums sums) {
  in_parallel(s, sums.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t b = begin; b < end; ++b) {
      const Data block = in.subspan(b * k_block, k_block);
      sums[b] = std::accumulate(block.begin(), block.end(), std::int64_t{0});
    }
  });
}

/// sums[b]: the sum of all elements before block b.
inline void scan_blocks(const Split& s, Data in, Sums sums, Sums out) {
  in_parallel(s, sums.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t b = begin; b < end; ++b) {
      std::int64_t sum = sums[b];
      for (std::size_t i = b * k_block; i < (b + 1) * k_block; ++i) out[i] = sum += in[i];
    }
  });
}
