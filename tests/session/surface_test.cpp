// Programs as users write them: each compiles against the public headers alone and uses the surface
// as it is documented, with classes of their own where there are extension points.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "disttune/cuda.hpp"
#include "session/rig.hpp"

namespace disttune::test {

enum class Layout { row, column };
struct Shape {
  int rows = 0;
  std::string_view dtype;
  static constexpr auto tuned = disttune::fields(disttune::field("rows", &Shape::rows),
                                                 disttune::field("dtype", &Shape::dtype));
};
/// A user type that describes itself.
struct Matrix {
  int rows;
  int columns;
  const void* data;
};
void disttune_describe(TextWriter& w, const Matrix& m) {
  w.begin_named("Matrix");
  w.field("rows");
  w.value(Value(m.rows));
  w.field("columns");
  w.value(Value(m.columns));
  w.end();
}

namespace {

using Span = std::span<float>;
struct FakeStream;
using stream_t = FakeStream*;
enum error_t { success, invalid };

struct TileW {
  int block = 256;
  int warps = 4;
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &TileW::block),
                                                 disttune::field("WARPS", &TileW::warps));
};

/// A stream whose marks are a scripted clock.
class OwnTimer final : public StreamTimer {
 public:
  OwnTimer(testing::ScriptedClock& clock, std::size_t samples, bool captured)
      : m_clock(clock), m_marks(samples), m_captured(captured) {}
  void start(std::size_t i) override { m_marks[i][0] = m_clock.now_ns(); }
  void stop(std::size_t i) override { m_marks[i][1] = m_clock.now_ns(); }
  std::int64_t elapsed_ns(std::size_t i) override { return m_marks[i][1] - m_marks[i][0]; }
  bool hold() override { return true; }
  void release() noexcept override {}
  void flush() override {}
  bool capturing() const override { return m_captured; }
  bool synchronize(Deadline) override { return true; }

 private:
  testing::ScriptedClock& m_clock;
  std::vector<std::array<std::int64_t, 2>> m_marks;
  bool m_captured;
};
class OwnDevice final : public Device {
 public:
  explicit OwnDevice(testing::ScriptedClock& clock, bool captured = false)
      : m_clock(clock), m_captured(captured) {}
  Value fingerprint() const override { return Value("own device"); }
  std::unique_ptr<StreamTimer> open(void*, std::size_t samples) override {
    return std::make_unique<OwnTimer>(m_clock, samples, m_captured);
  }

 private:
  testing::ScriptedClock& m_clock;
  bool m_captured;
};

/// Each candidate once; the fastest wins.
class Once final : public Selector {
 public:
  explicit Once(std::size_t candidates) {
    for (std::uint32_t i = 0; i < candidates; ++i) m_batch.push_back({i, 0, 1});
  }
  std::span<const Visit> next() override {
    return m_samples.empty() ? std::span<const Visit>(m_batch) : std::span<const Visit>{};
  }
  void report(std::span<const std::int64_t> samples) override {
    m_samples.assign(samples.begin(), samples.end());
  }
  Decision decision() const override {
    Decision d;
    std::int64_t best = k_failed;
    for (std::uint32_t i = 0; i < m_samples.size(); ++i)
      if (m_samples[i] < best) best = m_samples[i], d.winner = i;
    return d;
  }

 private:
  std::vector<Visit> m_batch;
  std::vector<std::int64_t> m_samples;
};

/// Two threads meet at a mutex: the least that a group needs.
class OwnGroup final : public ProcessGroup {
 public:
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::int64_t> block, result;  ///< of the round that fills, of the last full one
    int arrived = 0;
    std::uint64_t round = 0;
  };
  OwnGroup(int rank, int size, Meeting& meeting) : ProcessGroup(rank, size), m_meeting(meeting) {}
  void all_reduce_max(std::span<std::int64_t> values, const Wait& wait) override {
    std::unique_lock lock(m_meeting.mutex);
    if (m_meeting.arrived == 0)
      m_meeting.block.assign(values.size(), std::numeric_limits<std::int64_t>::min());
    for (std::size_t i = 0; i < values.size(); ++i)
      m_meeting.block[i] = std::max(m_meeting.block[i], values[i]);
    const std::uint64_t round = m_meeting.round;
    if (++m_meeting.arrived == size()) {
      m_meeting.result = m_meeting.block;
      m_meeting.arrived = 0;
      ++m_meeting.round;
      m_meeting.changed.notify_all();
    } else if (!m_meeting.changed.wait_until(lock, wait.deadline,
                                             [&] { return m_meeting.round != round; })) {
      throw GroupTimeout("own group: a rank is missing in " + std::string(wait.phase));
    }
    std::copy_n(m_meeting.result.begin(), values.size(), values.begin());
  }
  void abandon(std::uint64_t, std::string_view) noexcept override {}

 private:
  Meeting& m_meeting;
};

class Counting final : public Observer {
 public:
  void visit_done(const VisitDone& v) noexcept override { visits += v.status == Status::ok; }
  void decided(const Decided& d) noexcept override { winner = d.tuning.winner->text(); }
  int visits = 0;
  std::string winner;
};

using Surface = Session;

TEST_F(Surface, TheLauncherOfTheFirstPage) {
  auto space = (grid(&TileW::block, {256, 512, 1024}) * grid(&TileW::warps, {4, 8}))
                   .where([](const TileW& t) { return t.block * t.warps < 8192; });
  ASSERT_EQ(space.size(), 5U);
  int resets = 0, prepared = 0;
  auto scale =
      autotune(
          "scale", space,
          [](Span x, Span, float, stream_t) { return std::tuple(x.size(), "float32"); },
          [this](const TileW& t, Span x, Span y, float a, stream_t) -> error_t {
            y[0] = a * x[0];
            clock.advance(std::chrono::nanoseconds(t.block * 100 / t.warps));
            return t.block == 512 ? invalid : success;
          })
          .version("3")
          .on([device = std::make_shared<OwnDevice>(clock)](Span, Span, float, stream_t s) {
            return Stream{device, s};
          })
          .prune([](const TileW& t, Span x, Span, float, stream_t) {
            return t.block <= int(x.size());
          })
          .fails_when(
              [](error_t e) { return e ? std::optional<std::string>("invalid") : std::nullopt; })
          .prepare([&](const TileW&, Span, Span, float, stream_t) {
            static std::mutex mutex;
            const std::lock_guard lock(mutex);
            ++prepared;
          })
          .before_each([&](Span&, Span& y, float&, stream_t&) {
            y[0] = -1;
            ++resets;
          })
          .check([](const TileW&, const error_t&, Span& x, Span& y, float& a,
                    stream_t&) -> std::optional<std::string> {
            return y[0] == a * x[0] ? std::nullopt : std::optional<std::string>("wrong");
          })
          .strategy("race");
  std::vector<float> x(512, 2.F), y(512);
  EXPECT_EQ(scale(x, y, 2.5F, nullptr), success);
  EXPECT_EQ(y[0], 5.F);
  EXPECT_EQ(prepared, 4);  // 1024 was pruned
  const int cold = resets;
  scale(x, y, 2.5F, nullptr);
  EXPECT_EQ(resets, cold) << "warm calls are left alone";
  scale.with({.group = nullptr, .verbose = false})(x, y, 2.5F, nullptr);
  scale.with({.tune = false})(x, y, 2.5F, nullptr);
  const auto record = scale.result(x, y, 2.5F, nullptr);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->tunings[0].winner->text(), R"({"BLOCK": 256, "WARPS": 8})");
  EXPECT_EQ(record->tunings[0].candidates[2].status, Status::launch_failed);
  EXPECT_EQ(record->key.key.text(), R"((512, "float32"))");
  EXPECT_EQ(scale.explain(x, y, 2.5F, nullptr).source, "memory");
}

TEST_F(Surface, SpacesOfStructsAndOfNames) {
  const Space<TileW> listed{{.block = 256}, {.block = 512, .warps = 8}};
  EXPECT_EQ(to_config(listed[1]).display(), "BLOCK=512, WARPS=8");
  EXPECT_EQ((listed + grid(&TileW::warps, {16})).size(), 3U);
  const Space<Config> named{{{"BLOCK", 256}, {"MODE", "a"}}, {{"BLOCK", 512}, {"MODE", "b"}}};
  ASSERT_EQ(named.size(), 2U);
  EXPECT_EQ(named[1].get<std::string>("MODE"), "b");
  EXPECT_EQ((grid("BLOCK", {256, 512}) * grid("VEC", {true, false})).size(), 4U);
}

TEST_F(Surface, KeysOfEveryKind) {
  int number = 0;  // some kinds have the same text
  const auto tuned = [&](auto key) {
    return autotune("kind " + std::to_string(++number), Space<Tile>{{2}, {1}}, key,
                    [this](const Tile& t, int n) { run(t, n); })
        .version("1")
        .timer(clock.reader());
  };
  const auto check = [&](auto key, const std::string& text) {
    runs.clear();
    const auto launcher = tuned(key);
    launcher(1);
    EXPECT_EQ(runs.size(), 31U) << text;
    launcher(1);
    EXPECT_EQ(runs.size(), 32U) << text << " is warm the second time";
    EXPECT_EQ(launcher.result(1)->key.key.text(), text);
  };
  check([](int n) { return n; }, "1");
  check([](int) { return true; }, "True");
  check([](int) { return Layout::column; }, "1");
  check([](int) { return 0.5; }, "0.5");
  check([](int) { return "text"; }, "\"text\"");
  check([](int n) { return std::string(std::size_t(n) + 20, 'x'); },
        "\"" + std::string(21, 'x') + "\"");
  check([](int n) { return std::tuple(n, std::pair("a", true), std::tuple<>()); },
        R"((1, ("a", True), ()))");
  check([](int n) { return std::vector<std::int64_t>{n, 128}; }, "[1, 128]");
  check([](int n) { return std::tuple(n, named("torch.float16")); }, "(1, torch.float16())");
  check([](int n) { return Matrix{n, 4, nullptr}; }, "Matrix(rows=1, columns=4)");
  check([](int n) { return Shape{n, "float32"}; }, R"({"dtype": "float32", "rows": 1})");
}

TEST_F(Surface, TextInsideAStructKeyIsOwnedByTheTable) {
  std::string dtype = "float32";
  const auto launcher = autotune(
                            "owned", Space<Tile>{{1}},
                            [&](int n) {
                              return Shape{n, dtype};
                            },
                            [this](const Tile& t, int n) { run(t, n); })
                            .timer(clock.reader());
  launcher(1);
  const std::size_t cold = runs.size();
  dtype.replace(0, 7, "float64");  // the same bytes in memory
  launcher(1);
  EXPECT_EQ(runs.size(), cold + 16U) << "another dtype is another key";
  dtype.replace(0, 7, "float32");
  launcher(1);
  EXPECT_EQ(runs.size(), cold + 17U);
}

TEST_F(Surface, ConstantsAndGenericLambdas) {
  const auto generic =
      autotune<float(const TileW&, Span)>(
          "generic", grid(&TileW::block, {512, 256}), [](Span s) { return s.size(); },
          [this](const auto& t, auto) {
            return with_constant<256, 512, 1024>(t.block, [&](auto b) {
              std::array<char, b> buffer{};
              clock.advance(std::chrono::nanoseconds(buffer.size()));
              return static_cast<float>(buffer.size());
            });
          })
          .timer(clock.reader());
  std::vector<float> x(8);
  EXPECT_EQ(generic(x), 256.F);
  EXPECT_THROW((with_constant<1, 2>(3, [](auto v) { return int{v}; })), Error);
}

TEST_F(Surface, AStrategyOfTheUsers) {
  register_strategy("surface_once",
                    [](const Problem& p) { return std::make_unique<Once>(p.candidates); });
  const auto tuned = autotune(
                         "once", Space<Tile>{{3}, {1}, {2}}, [](int n) { return n; },
                         [this](const Tile& t, int n) {
                           run(t, n);
                           if (t.block == 2) throw std::runtime_error("no");
                         })
                         .timer(clock.reader())
                         .strategy("surface_once");
  tuned(8);
  EXPECT_EQ(runs.size(), 4U) << "three visits and the caller's run";
  EXPECT_EQ(tuned.choice(8)->block, 1);
  EXPECT_EQ(tuned.result(8)->tunings[0].candidates[2].status, Status::launch_failed);
}

TEST_F(Surface, ADeviceOfTheUsersWithNothingButTheEssentials) {
  const auto device = std::make_shared<OwnDevice>(clock);
  const auto launcher = autotune(
                            "own", Space<Tile>{{2}, {1}}, [](int n) { return n; },
                            [this](const Tile& t, int n) { run(t, n); })
                            .on([&](int) {
                              return Stream{device, nullptr};
                            });
  launcher(8);
  EXPECT_EQ(launcher.choice(8)->block, 1);
  EXPECT_EQ(launcher.result(8)->key.hardware.text(), "\"own device\"");
}

TEST_F(Surface, ATimerThatSaysCapturingEndsTheCallBeforeAnythingRuns) {
  const auto device = std::make_shared<OwnDevice>(clock, true);
  const auto launcher = autotune(
                            "captured", Space<Tile>{{2}, {1}}, [](int n) { return n; },
                            [this](const Tile& t, int n) { run(t, n); })
                            .on([&](int) {
                              return Stream{device, nullptr};
                            });
  EXPECT_THROW(launcher(8), CaptureError);
  EXPECT_TRUE(runs.empty());
}

TEST_F(Surface, AGroupOfTheUsersWithNothingButTheEssentials) {
  OwnGroup::Meeting meeting;
  std::array<int, 2> chosen{};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      OwnGroup group(rank, 2, meeting);
      testing::ScriptedClock own;
      // Block 1 is slow on rank 1 only: the slowest rank decides.
      const auto launcher =
          autotune(
              "grouped", Space<Tile>{{1}, {2}}, [](int n) { return n; },
              [&](const Tile& t, int) {
                own.advance(std::chrono::nanoseconds(t.block == 1 ? 10 + 1000 * rank : 500));
              })
              .timer(own.reader());
      launcher.with({.group = &group})(8);
      chosen[std::size_t(rank)] =
          launcher.with({.group = &group}).explain(8).config->get<int>("BLOCK");
    });
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(chosen, (std::array{2, 2}));
}

TEST_F(Surface, AnObserverOfTheUsers) {
  const auto seen = std::make_shared<Counting>();
  const auto token = add_observer(seen);
  scale({{2}, {1}})(8);
  remove_observer(token);
  EXPECT_EQ(seen->visits, 2);
  EXPECT_EQ(seen->winner, R"({"BLOCK": 1})");
}

TEST_F(Surface, ContextualCallsOfTunedKernels) {
  auto gemm = tuned_kernel(
                  "gemm", Space<Tile>{{2}, {1}}, [](Span x) { return x.size(); },
                  [this](const Tile& t, Span x) { run(t, int(x.size())); })
                  .timer(clock.reader());
  auto step =
      contextual("step", {.n_warmup = 3, .n_repeat = 5, .clock = clock.reader()}, [&](Span x) {
        gemm(x);
        return x[0];
      });
  std::vector<float> x(8, 3.F);
  EXPECT_EQ(step(x), 3.F);
  EXPECT_EQ(gemm.choice(x)->block, 1);
  const std::size_t cold = runs.size();
  EXPECT_EQ(step(x), 3.F);
  EXPECT_EQ(runs.size(), cold + 1);
}

TEST_F(Surface, ForgettingAsksTheStoreAgain) {
  const auto launcher = scale({{2}, {1}});
  launcher(8);
  launcher(9);
  const std::size_t cold = runs.size();
  launcher.erase(8);
  EXPECT_EQ(launcher.choice(8), nullptr);
  EXPECT_NE(launcher.choice(9), nullptr);
  launcher.clear();
  EXPECT_EQ(launcher.choice(9), nullptr);
  launcher(8);
  EXPECT_EQ(runs.size(), cold + 1) << "the record serves";
  EXPECT_EQ(launcher.choice(8)->block, 1);
}

TEST_F(Surface, AVersionAloneIsTheIdentity) {
  const auto launcher = autotune(
                            "who", Space<Tile>{{1}}, [](int n) { return n; },
                            [this](const Tile& t, int n) { run(t, n); })
                            .timer(clock.reader())
                            .source("digest")
                            .version("2");
  launcher(8);
  EXPECT_EQ(launcher.result(8)->key.identity.text(), R"({"name": "who", "version": "2"})");
}

TEST_F(Surface, ACheckOfALaunchWithoutAResult) {
  const auto launcher =
      autotune(
          "void", Space<Tile>{{1}, {2}}, [](int n) { return n; },
          [this](const Tile& t, int n) { run(t, n); })
          .timer(clock.reader())
          .check([](const Tile& t, int&) {
            return t.block == 1 ? std::optional<std::string>("off by one") : std::nullopt;
          });
  launcher(8);
  EXPECT_EQ(launcher.choice(8)->block, 2);
  EXPECT_EQ(launcher.result(8)->tunings[0].candidates[0].status, Status::wrong_result);
}

// Namespace scope: no environment, no I/O, no driver while the program starts.
const auto at_namespace_scope = autotune(
                                    "static", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                                    [](const Tile& t, int) { return t.block; })
                                    .version("1")
                                    .on([](int) { return disttune::cuda(nullptr); });

TEST_F(Surface, LaunchersAtNamespaceScope) { EXPECT_EQ(at_namespace_scope.space().size(), 2U); }

}  // namespace
}  // namespace disttune::test
