// Threads, nesting and re-entry: who waits, who runs the default, and what is timed again.
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "disttune/contextual.hpp"
#include "disttune/testing/scripted_device.hpp"
#include "session/process.hpp"
#include "session/rig.hpp"

namespace disttune::test {
namespace {

using Concurrency = Session;

/// Nobody waits for a device whose holder is in a run.
class Impatience {
 public:
  Impatience()
      : m_before(std::exchange(session::RunClock::patience(), std::chrono::nanoseconds(1))) {}
  ~Impatience() { session::RunClock::patience() = m_before; }
  Impatience(const Impatience&) = delete;
  Impatience& operator=(const Impatience&) = delete;

 private:
  std::chrono::nanoseconds m_before;
};

TEST_F(Concurrency, OneColdKeyIsTunedOnceWhileOthersWait) {
  std::mutex mutex;
  std::promise<void> started;
  std::shared_future<void> others_called;
  std::promise<void> go;
  others_called = go.get_future().share();
  bool first = true;
  std::vector<int> blocks;
  const auto tuned = autotune(
                         "shared", Space<Tile>{{2}, {1}}, [](int n) { return n; },
                         [&](const Tile& t, int) {
                           bool wait = false;
                           {
                             const std::lock_guard lock(mutex);
                             blocks.push_back(t.block);
                             wait = std::exchange(first, false);
                           }
                           if (wait) {
                             started.set_value();
                             others_called.wait();
                           }
                           clock.advance(std::chrono::nanoseconds(1000 * t.block));
                         })
                         .timer(clock.reader());
  std::thread tuner([&] { tuned(8); });
  started.get_future().wait();
  std::thread other([&] { tuned(8); });
  go.set_value();
  tuner.join();
  other.join();
  EXPECT_EQ(blocks.size(), 2 * 15 + 2u);
}

TEST_F(Concurrency, LaunchersOfManyThreadsAreTunedInTurnOnOneDevice) {
  constexpr int k_visits = 2 * 15;  // runs of a key while it is tuned; one more follows
  std::atomic<int> visitors{0};
  std::atomic<bool> met{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      testing::ScriptedClock own;
      int seen = 0;
      const auto tuned =
          autotune(
              "thread " + std::to_string(t), Space<Tile>{{2}, {1}}, [](int n) { return n; },
              [&](const Tile& tile, int) {
                own.advance(std::chrono::nanoseconds(1000 * tile.block));
                if (++seen > k_visits) return;
                if (visitors++ > 0) met = true;
                std::this_thread::yield();
                --visitors;
              })
              .timer(own.reader());
      for (int key = 0; key < 8; ++key) {
        seen = 0;
        tuned(key);
        EXPECT_EQ(seen, k_visits + 1);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_FALSE(met);
}

TEST_F(Concurrency, AnInterruptedWaiterDoesNotGiveBackTheTurnOfAnother) {
  struct Stop {};
  static thread_local bool stop = false;
  detail::set_interrupt_hook([] {
    if (stop) throw Stop{};
  });
  const auto make = [&](const char* name, std::function<void(int)> run) {
    return autotune(
               name, Space<Tile>{{2}, {1}}, [](int n) { return n; },
               [run = std::move(run)](const Tile& t, int) { run(t.block); })
        .timer(clock.reader());
  };
  std::promise<void> waited;
  std::promise<void> started;
  constexpr int k_visits = 2 * 15;  // runs of a key while it is tuned; one more follows
  int seen = 0;
  std::atomic<bool> tuning{true};
  const auto a = make("a", [&](int block) {
    if (++seen == 1) {
      started.set_value();
      waited.get_future().wait();
    }
    clock.advance(std::chrono::nanoseconds(1000 * block));
    if (seen == k_visits) tuning = false;
  });
  std::atomic<bool> beside{false};
  const auto b = make("b", [&](int block) {
    beside = beside || tuning;
    clock.advance(std::chrono::nanoseconds(1000 * block));
  });
  std::thread tuner([&] { a(8); });
  started.get_future().wait();
  std::thread([&] {
    stop = true;
    EXPECT_THROW(b(8), Stop);
  }).join();
  std::thread next([&] { b(9); });
  waited.set_value();
  tuner.join();
  next.join();
  EXPECT_FALSE(beside);
  detail::set_interrupt_hook(nullptr);
}

TEST_F(Concurrency, WaitersGetTheSameError) {
  std::promise<void> started;
  std::promise<void> go;
  auto gone = go.get_future().share();
  std::once_flag once;
  const auto tuned = autotune(
                         "broken", Space<Tile>{{1}}, [](int n) { return n; },
                         [&](const Tile&, int) {
                           std::call_once(once, [&] {
                             started.set_value();
                             gone.wait();
                           });
                           throw std::runtime_error("never works");
                         })
                         .timer(clock.reader());
  auto call = [&] { return std::async(std::launch::async, [&] { tuned(8); }); };
  auto a = call();
  started.get_future().wait();
  auto b = call();
  go.set_value();
  EXPECT_THROW(a.get(), NoValidConfig);
  EXPECT_THROW(b.get(), NoValidConfig);
}

TEST_F(Concurrency, ALauncherThatWaitsForAThreadWithAColdKeyIsNotWaitedForInTurn) {
  const Impatience impatience;
  const auto inner = scale({{2}, {1}}, "inner");
  const auto nested = scale({{2}, {1}}, "nested");
  int outer_runs = 0;
  const auto outer = autotune(
                         "outer", Space<Tile>{{5}, {4}}, [](int n) { return n; },
                         [&](const Tile& t, int n) {
                           nested(n);  // its own runs end, the one around it goes on
                           std::thread([&] { inner(n); }).join();
                           ++outer_runs;
                           clock.advance(std::chrono::nanoseconds(1000 * t.block));
                         })
                         .timer(clock.reader());
  outer(8);
  EXPECT_EQ(outer_runs, 2 * 15 + 1);
  EXPECT_EQ(outer.choice(8)->block, 4);
  inner(8);
  EXPECT_EQ(inner.choice(8)->block, 1) << "tuned when the device was free";
}

TEST_F(Concurrency, ALauncherThatWaitsForAThreadWithItsOwnKeyGetsTheDefaultThere) {
  set("TIMEOUT", "0.01");
  std::function<void(bool)> again;
  std::vector<int> inside;
  int outside = 0;
  const auto launcher = autotune(
                            "pool", Space<Tile>{{5}, {4}}, [](bool) { return 0; },
                            [&](const Tile& t, bool first) {
                              if (first) {
                                ++outside;
                                std::thread([&] { again(false); }).join();
                              } else {
                                inside.push_back(t.block);
                              }
                              clock.advance(std::chrono::nanoseconds(1000 * t.block));
                            })
                            .timer(clock.reader());
  again = [&](bool first) { launcher(first); };
  launcher(true);
  EXPECT_EQ(launcher.choice(true)->block, 4);
  EXPECT_EQ(outside, 2 * 15 + 1);
  EXPECT_EQ(inside.front(), 5) << "the default, while the key is being tuned";
  EXPECT_EQ(inside.back(), 4) << "the last run is one of a decided key";
}

TEST_F(Concurrency, WhatIsMeasuredMayWaitForAThreadWithAColdKey) {
  const Impatience impatience;
  const auto inner = scale({{2}, {1}}, "inner");
  MeasureOptions options;
  options.warmup = 1;
  options.repeat = 2;
  options.clock = clock.reader();
  static_cast<void>(measure([&] { std::thread([&] { inner(8); }).join(); }, options));
  EXPECT_EQ(runs, (std::vector<std::pair<int, int>>(3, {2, 8}))) << "the default, untuned";
}

TEST_F(Concurrency, AnOuterFunctionMayWaitForAThreadWithAColdKey) {
  const Impatience impatience;
  const auto inner = scale({{2}, {1}}, "inner");
  const auto kernel = tuned_kernel(
      "kernel", Space<Tile>{{5}, {4}}, [](int n) { return n; },
      [&](const Tile& t, int) { clock.advance(std::chrono::nanoseconds(1000 * t.block)); });
  int passes = 0;
  ContextualOptions options;
  options.n_warmup = options.n_repeat = 1;
  options.clock = clock.reader();
  contextual("step", options, [&] {
    kernel(1);
    if (++passes == 2) std::thread([&] { inner(8); }).join();
  })();
  EXPECT_EQ(runs, (std::vector<std::pair<int, int>>{{2, 8}})) << "the default, untuned";
  EXPECT_EQ(passes, 2 * 2 + 1);
}

TEST_F(Concurrency, TheFirstThatWorksMayWaitForAThreadWithItsOwnKey) {
  set("MODE", "first");
  set("TIMEOUT", "0.01");
  std::function<void(bool)> again;
  std::vector<std::pair<bool, int>> calls;
  const auto launcher = autotune(
      "pool", Space<Tile>{{5}, {4}}, [](bool) { return 0; },
      [&](const Tile& t, bool outside) {
        calls.emplace_back(outside, t.block);
        if (outside && calls.size() == 1) std::thread([&] { again(false); }).join();
      });
  again = [&](bool outside) { launcher(outside); };
  launcher(true);
  EXPECT_EQ(calls, (std::vector<std::pair<bool, int>>{{true, 5}, {false, 5}, {true, 5}}));
}

TEST_F(Concurrency, PruningMayWaitForAThreadWithItsOwnKey) {
  set("TIMEOUT", "0.01");
  std::function<int(int)> again;
  std::atomic<int> asked{0};
  const auto make = [&] {
    return autotune(
               "pruned", Space<Tile>{{5}, {4}}, [](int n) { return n; },
               [&](const Tile& t, int) {
                 clock.advance(std::chrono::nanoseconds(1000 * t.block));
                 return t.block;
               })
        .version("1")
        .timer(clock.reader())
        .prune([&](const Tile&, int n) {
          if (asked++ == 0) std::thread([&] { EXPECT_EQ(again(n), 5); }).join();
          return true;
        });
  };
  for (int process = 0; process < 2; ++process) {  // the second one finds it in the store
    asked = 0;
    const auto launcher = make();
    again = [&](int n) { return launcher(n); };
    EXPECT_EQ(launcher(8), 4);
  }
}

TEST_F(Concurrency, PreparationMayWaitForAThreadWithItsOwnKey) {
  set("TIMEOUT", "0.01");
  set("WORKERS", "2");
  std::function<int(int)> again;
  std::atomic<int> prepared{0};
  const auto launcher = autotune(
                            "prepared", Space<Tile>{{5}, {4}, {3}}, [](int n) { return n; },
                            [&](const Tile& t, int) {
                              clock.advance(std::chrono::nanoseconds(1000 * t.block));
                              return t.block;
                            })
                            .timer(clock.reader())
                            .prepare([&](const Tile&, int n) {
                              std::thread([&] { EXPECT_EQ(again(n), 5); }).join();
                              ++prepared;
                            });
  again = [&](int n) { return launcher(n); };
  EXPECT_EQ(launcher(8), 3);
  EXPECT_EQ(prepared, 3);
}

TEST_F(Concurrency, AKeyThatAnotherThreadTunesInEveryTimedRunIsTakenForWhatItIs) {
  set("TIMEOUT", "0.01");
  std::promise<void> busy, done;
  const auto gone = done.get_future().share();
  std::atomic<bool> first{true};
  const auto inner = autotune(
                         "inner", Space<Tile>{{2}}, [](int n) { return n; },
                         [&](const Tile&, int) {
                           if (first.exchange(false)) {
                             busy.set_value();
                             gone.wait();
                           }
                           clock.advance(std::chrono::nanoseconds(1000));
                         })
                         .timer(clock.reader());
  // On a device of its own, so that it need not wait for the other's turn.
  const auto device =
      std::make_shared<testing::ScriptedDevice>(std::make_shared<testing::ScriptedClock>());
  auto other = std::async(std::launch::async, [&] { inner(8); });
  busy.get_future().wait();
  const auto outer = autotune(
                         "outer", Space<Tile>{{5}, {4}}, [](int n) { return n; },
                         [&](const Tile& t, int n) {
                           inner(n);  // never decided while this is tuned
                           clock.advance(std::chrono::nanoseconds(1000 * t.block));
                         })
                         .timer(clock.reader())
                         .on([device](int) {
                           return Stream{device, nullptr};
                         });
  outer(8);
  EXPECT_EQ(outer.choice(8)->block, 4);
  done.set_value();
  other.get();
}

TEST_F(Concurrency, ATunedLauncherInsideATunedLauncherTunesInAnUntimedRun) {
  const auto inner = scale({{2}, {1}}, "inner");
  std::vector<int> outer_runs;
  const auto outer = autotune(
                         "outer", Space<Tile>{{5}, {4}}, [](int n) { return n; },
                         [&](const Tile& t, int n) {
                           outer_runs.push_back(t.block);
                           inner(n);
                           clock.advance(std::chrono::nanoseconds(1000 * t.block));
                         })
                         .timer(clock.reader());
  outer(8);
  EXPECT_EQ(outer_runs.size(), 2 * 15 + 1u);
  EXPECT_EQ(outer_runs.back(), 4);
  EXPECT_EQ(runs.size(), 2 * 15 + outer_runs.size());
  EXPECT_EQ(runs.back().first, 1);
  const auto samples = outer.result(8)->tunings[0].candidates[0].samples_ns;
  EXPECT_EQ(samples, std::vector<std::int64_t>(10, 6000)) << "no sample holds the inner tuning";
}

TEST_F(Concurrency, AnInnerTuningInATimedRunSpoilsThatSampleOnly) {
  const auto inner = scale({{2}, {1}}, "inner");
  const auto outer = autotune(
                         "outer", Space<Tile>{{5}}, [](int n) { return n; },
                         [&](const Tile& t, int n) {
                           runs.emplace_back(t.block, n);
                           if (runs_of(5) == 8) inner(n);  // first met in the third timed run
                           clock.advance(std::chrono::nanoseconds(1000 * t.block));
                         })
                         .timer(clock.reader());
  outer(8);
  const auto samples = outer.result(8)->tunings[0].candidates[0].samples_ns;
  EXPECT_EQ(samples, std::vector<std::int64_t>(10, 5000));
  EXPECT_EQ(runs.back().first, 5);
}

TEST_F(Concurrency, AKeyMetAgainInTheThreadThatTunesItRunsTheDefault) {
  std::function<void(int)> again;
  int depth = 0;
  const auto tuned = autotune(
                         "recursive", Space<Tile>{{2}, {1}}, [](int n) { return n; },
                         [&](const Tile& t, int n) {
                           runs.emplace_back(t.block, n);
                           clock.advance(std::chrono::nanoseconds(1000 * t.block));
                           if (depth == 0 && runs.size() == 1) {
                             ++depth;
                             again(n);
                             --depth;
                           }
                         })
                         .timer(clock.reader());
  again = [&](int n) { tuned(n); };
  tuned(8);
  EXPECT_EQ(runs[1].first, 2) << "entry 0 stood in";
  EXPECT_EQ(runs.back().first, 1);
}

TEST_F(Concurrency, S76_AWarmKeyIsServedWhileAnotherThreadTunes) {
  std::promise<void> started;
  std::promise<void> go;
  auto gone = go.get_future().share();
  std::once_flag once;
  bool block_on = false;
  const auto tuned = autotune(
                         "busy", Space<Tile>{{2}, {1}}, [](int n) { return n; },
                         [&](const Tile& t, int n) {
                           clock.advance(std::chrono::nanoseconds(1000 * t.block));
                           if (n == 9 && block_on)
                             std::call_once(once, [&] {
                               started.set_value();
                               gone.wait();
                             });
                           return t.block;
                         })
                         .timer(clock.reader());
  EXPECT_EQ(tuned(8), 1);
  block_on = true;
  std::thread tuner([&] { tuned(9); });
  started.get_future().wait();
  EXPECT_EQ(tuned(8), 1);
  go.set_value();
  tuner.join();
}

}  // namespace
}  // namespace disttune::test
