// What a warm call costs in C++: a launcher with a key of three integers, against a bare look-up of
// the same three integers in std::unordered_map plus the same indirect call.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "disttune/function.hpp"
#include "turns.hpp"

namespace {
std::atomic<std::int64_t> allocations{0};
}
[[gnu::noinline]] void* operator new(std::size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

struct Tile {
  int block = 1;
  int warps = 4;
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Tile::block),
                                                 disttune::field("WARPS", &Tile::warps));
};
using Key = std::tuple<int, int, int>;

// What a user would write: the usual way to combine hashes.
struct Hash {
  std::size_t operator()(const Key& k) const noexcept {
    std::size_t h = 0;
    const auto add = [&](int v) { h ^= std::hash<int>{}(v) + 0x9e3779b9 + (h << 6) + (h >> 2); };
    add(std::get<0>(k)), add(std::get<1>(k)), add(std::get<2>(k));
    return h;
  }
};

[[gnu::noinline]] int body(const Tile& t, int a, int, int) {
  bench::keep(a);
  return t.block;
}
int (*volatile launch)(const Tile&, int, int, int) = body;

constexpr std::size_t k_calls = 1 << 18;

Key nth(int i) { return {128 * (i % 37 + 1), 4096 + 64 * i, 7168}; }
std::vector<Key> queries(int keys) {
  std::vector<Key> out;
  std::uint64_t state = 1;
  for (int i = 0; i < 4096; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    out.push_back(nth(static_cast<int>((state >> 33) % static_cast<std::uint64_t>(keys))));
  }
  return out;
}

// One candidate, one run: what matters here is the call after the tuning.
auto make_launcher(const std::string& store) {
  return disttune::autotune(
             "bench_call", disttune::Space<Tile>{Tile{}},
             [](int a, int b, int c) { return Key(a, b, c); },
             [](const Tile& t, int a, int b, int c) { return launch(t, a, b, c); })
      .version("1")
      .warmup(0)
      .repeat(1)
      .store(store);
}

template <class Launcher>
void call_all(const Launcher& launcher, const std::vector<Key>& asked) {
  for (std::size_t i = 0; i < k_calls; ++i) {
    const auto& [a, b, c] = asked[i & 4095];
    bench::keep(launcher(a, b, c));
  }
}

void alone(bench::Report& report, const std::string& store, int keys) {
  std::unordered_map<Key, Tile, Hash> map;
  const auto launcher = make_launcher(store);
  for (int i = 0; i < keys; ++i) {
    const auto [a, b, c] = nth(i);
    map[nth(i)] = Tile{};
    launcher(a, b, c);
  }
  const std::vector<Key> asked = queries(keys);
  std::int64_t allocated = 0;
  const std::vector<double> ns =
      bench::in_turns({[&] {
                         for (std::size_t i = 0; i < k_calls; ++i) {
                           const auto& [a, b, c] = asked[i & 4095];
                           bench::keep(launch(map.find(asked[i & 4095])->second, a, b, c));
                         }
                       },
                       [&] {
                         const std::int64_t before = allocations.load();
                         call_all(launcher, asked);
                         allocated += allocations.load() - before;
                       }},
                      k_calls);
  const std::string suffix = "_" + std::to_string(keys) + (keys == 1 ? "_key" : "_keys");
  report.limited("ratio_cpp_warm_call" + suffix, ns[1] / ns[0], 1.5);
  report.figure("ns_unordered_map" + suffix, ns[0]);
  report.figure("ns_warm_call" + suffix, ns[1]);
  report.limited("allocations" + suffix, static_cast<double>(allocated), 0);
}

// The same calls while another thread calls and a third tunes new keys, in turns with the same
// calls while both are parked.
void in_company(bench::Report& report, const std::string& store) {
  constexpr int keys = 64;
  const auto launcher = make_launcher(store);
  for (int i = 0; i < keys; ++i) {
    const auto [a, b, c] = nth(i);
    launcher(a, b, c);
  }
  const std::vector<Key> asked = queries(keys);
  std::atomic<bool> running{false}, over{false};
  std::atomic<std::int64_t> inserted{0};
  std::thread caller([&] {
    while (!over)
      if (running)
        call_all(launcher, asked);
      else
        std::this_thread::yield();
  });
  std::thread inserter([&] {
    for (int fresh = 1 << 20; !over;)
      if (running) {
        launcher(fresh, fresh, fresh);
        ++fresh, ++inserted;
      } else {
        std::this_thread::yield();
      }
  });
  const std::vector<double> ns = bench::in_turns({[&] {
                                                    running = false;
                                                    call_all(launcher, asked);
                                                  },
                                                  [&] {
                                                    running = true;
                                                    call_all(launcher, asked);
                                                    running = false;
                                                  }},
                                                 k_calls);
  over = true;
  caller.join(), inserter.join();
  report.limited("ratio_cpp_warm_call_in_company", ns[1] / ns[0], 1.2);
  report.figure("ns_warm_call_others_parked", ns[0]);
  report.figure("ns_warm_call_in_company", ns[1]);
  report.figure("keys_inserted_meanwhile", static_cast<double>(inserted.load()));
}

}  // namespace

int main() {
  namespace fs = std::filesystem;
  const fs::path store = bench::scratch();
  bench::Report report;
  for (const int keys : {1, 64, 4096}) alone(report, store, keys);
  in_company(report, store);
  fs::remove_all(store);
  report.print();
}
