// The typed front: argument passing, results, keys, groups of options, and no allocation when warm.
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "session/rig.hpp"

namespace {
std::atomic<std::size_t> allocations{0};
}
// A sanitizer has these for itself and knows better what belongs together: nothing is counted
// there.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Not inlined: the compiler would see malloc behind a deleted pointer and warn.
[[gnu::noinline]] void* operator new(std::size_t n) {
  ++allocations;
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace disttune::test {
namespace {

using Front = Session;

TEST_F(Front, AWarmCallAllocatesNothing) {
  const auto tuned =
      autotune(
          "three", Space<Tile>{{2}, {1}}, [](int a, int b, int c) { return std::tuple(a, b, c); },
          [this](const Tile& t, int, int, int) {
            clock.advance(std::chrono::nanoseconds(t.block));
            return t.block;
          })
          .timer(clock.reader());
  EXPECT_EQ(tuned(1, 2, 3), 1);
  const std::size_t before = allocations;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tuned(1, 2, 3), 1);
  EXPECT_EQ(allocations, before);
}

TEST_F(Front, ByValueIsCopiedForEachTuningRunAndMovedAtTheEnd) {
  const std::vector<int> sent{1, 2, 3};
  const int* data = nullptr;
  const auto tuned =
      autotune(
          "boxed", Space<Tile>{{1}, {2}}, [](const std::vector<int>& v) { return v.size(); },
          [&](const Tile& t, std::vector<int> v) {
            EXPECT_EQ(v, sent);
            data = v.data();
            clock.advance(std::chrono::nanoseconds(t.block));
            v.clear();
          })
          .timer(clock.reader());
  tuned(sent);
  std::vector<int> moved = sent;
  const int* const before = moved.data();
  tuned(std::move(moved));
  EXPECT_EQ(data, before) << "a warm call moves";
}

TEST_F(Front, MoveOnlyResultsReferencesAndConversions) {
  int target = 0;
  const auto unique = autotune(
                          "unique", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                          [this](const Tile& t, int n) {
                            clock.advance(std::chrono::nanoseconds(t.block));
                            return std::make_unique<int>(n);
                          })
                          .timer(clock.reader());
  EXPECT_EQ(*unique(7), 7);
  const auto reference = autotune(
                             "reference", Space<Tile>{{1}, {2}}, [](const int&) { return 0; },
                             [this](const Tile& t, int& n) -> int& {
                               clock.advance(std::chrono::nanoseconds(t.block));
                               return n;
                             })
                             .timer(clock.reader());
  EXPECT_EQ(&reference(target), &target);
  const auto text =
      autotune(
          "text", Space<Tile>{{1}}, [](const std::string& s) { return std::string_view(s); },
          [this](const Tile& t, const std::string& s) {
            clock.advance(std::chrono::nanoseconds(t.block));
            return s.size();
          })
          .timer(clock.reader());
  EXPECT_EQ(text("braces"), 6u);
  EXPECT_EQ(text({'a', 'b'}), 2u);
}

TEST_F(Front, LaunchesOfEveryLegalKind) {
  struct Qualified {
    int operator()(const Tile& t, int n) const& noexcept { return n * t.block; }
  };
  const auto qualified = autotune(
      "qualified", Space<Tile>{{2}}, [](int n) { return n; }, Qualified{});
  EXPECT_EQ(qualified(4), 8);
  int seen = 0;
  const auto dropped = autotune<void(const Tile&, int)>(
      "dropped", Space<Tile>{{2}}, [](int n) { return n; },
      [&](const Tile& t, int n) { return seen = n * t.block; });
  dropped(5);
  EXPECT_EQ(seen, 10);
  std::string text = "kept";
  const auto expiring = autotune(
      "expiring", Space<Tile>{{2}}, [](const std::string& s) { return s; },
      [](const Tile&, std::string& s) -> std::string&& { return std::move(s); });
  EXPECT_EQ(std::string(expiring(text)), "kept");
}

/// One of several devices that are not alike.
struct OneOfMany final : Device {
  explicit OneOfMany(std::string_view kind = "one") : m_kind(kind) {}
  [[nodiscard]] std::string_view kind() const noexcept override { return m_kind; }
  [[nodiscard]] std::string_view clock() const noexcept override { return "host"; }
  [[nodiscard]] bool uniform() const override { return false; }
  [[nodiscard]] Value fingerprint() const override { return Value::dict({{"kind", m_kind}}); }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void*, std::size_t samples) override {
    return host().device->open(nullptr, samples);
  }

 private:
  std::string_view m_kind;
};

TEST_F(Front, DevicesOfTwoKindsHaveChoicesOfTheirOwn) {
  const std::array devices{std::make_shared<OneOfMany>("one"), std::make_shared<OneOfMany>("two")};
  std::size_t at = 0;
  int runs_now = 0;
  const auto tuned = autotune(
                         "kinds", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                         [&](const Tile& t, int) {
                           ++runs_now;
                           return t.block;
                         })
                         .on([&](int) {
                           return Stream{devices[at], nullptr};
                         });
  for (const bool known : {false, true})
    for (at = 0; at < devices.size(); ++at) {
      runs_now = 0;
      tuned(1);
      EXPECT_EQ(runs_now, known ? 1 : 2 * 15 + 1);
    }
}

/// Does not open.
struct Shut final : Device {
  [[nodiscard]] std::string_view kind() const noexcept override { return "shut"; }
  [[nodiscard]] std::string_view clock() const noexcept override { return "host"; }
  [[nodiscard]] Value fingerprint() const override { return Value::dict({}); }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void*, std::size_t) override { return nullptr; }
};

TEST_F(Front, ADeviceThatOpensNoTimerIsAnError) {
  const auto tuned = autotune(
                         "shut", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                         [](const Tile& t, int) { return t.block; })
                         .on([](int) {
                           return Stream{std::make_shared<Shut>(), nullptr};
                         });
  EXPECT_THROW(tuned(1), Error);
}

TEST_F(Front, AStreamWithoutADeviceIsTheHosts) {
  const auto device = std::make_shared<OneOfMany>();
  bool on_device = true;
  const auto tuned = autotune(
                         "streams", Space<Tile>{{1}, {2}}, [](int n) { return n; },
                         [](const Tile& t, int) { return t.block; })
                         .on([&](int) {
                           return on_device ? Stream{device, nullptr} : Stream{};
                         });
  tuned(1);
  on_device = false;
  EXPECT_NO_THROW(tuned(1));
  EXPECT_NO_THROW(tuned(1));
}

struct Wide {
  int width = 1;
};
struct Deep : Wide {
  int depth = 1;
  static constexpr auto tuned = fields(field("WIDTH", &Deep::width), field("DEPTH", &Deep::depth));
};

TEST_F(Front, AGridTakesMembersThatTheConfigurationInherits) {
  const auto space = grid<Deep>(&Deep::width, {1, 2}) * grid(&Deep::depth, {3, 4});
  ASSERT_EQ(space.size(), 4u);
  EXPECT_EQ(space[3].width, 2);
  EXPECT_EQ(space[3].depth, 4);
}

TEST_F(Front, ResultsOfTimedRunsDieOutsideTheSample) {
  auto scripted = std::make_shared<testing::ScriptedClock>();
  auto device = std::make_shared<testing::ScriptedDevice>(scripted);
  struct Buffer {  // a destructor that waits for the device, as one that frees memory does
    explicit Buffer(testing::ScriptedDevice* d) : device(d) {}
    Buffer(Buffer&& other) noexcept : device(std::exchange(other.device, nullptr)) {}
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() {
      if (device != nullptr) device->block_until_released();
    }
    testing::ScriptedDevice* device;
  };
  const auto tuned =
      autotune(
          "owner", Space<Tile>{{2}, {1}}, [](int n) { return n; },
          [&](const Tile& t, int) {
            device->launch(std::chrono::microseconds(t.block), std::chrono::microseconds(3));
            return Buffer(device.get());
          })
          .on([&](int) {
            return Stream{device, nullptr};
          });
  static_cast<void>(tuned(8));
  const auto t = tuned.result(8)->tunings[0];
  EXPECT_EQ(t.candidates[0].samples_ns, std::vector<std::int64_t>(10, 2000));
  EXPECT_TRUE(t.quality.empty()) << "the gate held in every run";
}

TEST_F(Front, FailsWhenTurnsAStatusIntoAFailure) {
  enum class Code { ok, bad };
  const auto tuned =
      autotune(
          "status", Space<Tile>{{1}, {2}}, [](int n) { return n; },
          [this](const Tile& t, int n) {
            run(t, n);
            return t.block == 1 ? Code::bad : Code::ok;
          })
          .timer(clock.reader())
          .fails_when([](Code c) {
            return c == Code::ok ? std::nullopt : std::optional<std::string>("bad code");
          });
  EXPECT_EQ(tuned(8), Code::ok);
  EXPECT_EQ(tuned.result(8)->tunings[0].candidates[0].status, Status::launch_failed);
}

TEST_F(Front, RunTimeSpacesOfConfig) {
  const auto space = grid("BLOCK", {Value(4), Value(2)}) * grid("VEC", {Value(true), Value(false)});
  const auto tuned = autotune(
                         "dynamic", space, [](int n) { return n; },
                         [this](const Config& c, int) {
                           clock.advance(std::chrono::nanoseconds(c.get<int>("BLOCK") +
                                                                  (c.get<bool>("VEC") ? 0 : 1)));
                           return c.display();
                         })
                         .timer(clock.reader());
  EXPECT_EQ(tuned(8), "BLOCK=2, VEC=True");
}

TEST_F(Front, OptionsOutOfRangeAreRefusedAtOnce) {
  EXPECT_THROW(static_cast<void>(scale({{1}}).repeat(0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(scale({{1}}).warmup(-1)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(scale({{1}}).cache("tepid")), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(scale({{1}}).timer("sundial")), std::invalid_argument);
  EXPECT_THROW(scale({}), std::invalid_argument);
  EXPECT_THROW(scale({{1}}, ""), std::invalid_argument);
}

TEST_F(Front, MeasureGivesSamplesMedianAndCounts) {
  MeasureOptions options;
  options.warmup = 2;
  options.repeat = 9;
  options.clock = clock.reader();
  int n = 0;
  const Measurement m =
      measure([&] { clock.advance(std::chrono::nanoseconds(100 + n++)); }, options);
  EXPECT_EQ(n, 11);
  ASSERT_EQ(m.samples_ns.size(), 9u);
  EXPECT_EQ(m.samples_ns[0], 102);
  EXPECT_EQ(m.median_ns, 106);
  ASSERT_EQ(m.rank_medians.size(), 1u);
  EXPECT_THROW(static_cast<void>(measure([] { throw std::domain_error("mine"); }, options)),
               std::domain_error);
}

TEST_F(Front, MeasureHasTheHostTimeOfEachSample) {
  auto device_clock = std::make_shared<testing::ScriptedClock>();
  auto device = std::make_shared<testing::ScriptedDevice>(device_clock);
  device->give_samples({-5});
  MeasureOptions options;
  options.warmup = 0;
  options.repeat = 3;
  options.stream = Stream{device, nullptr};
  int n = 0;
  const Measurement m = measure([&] { device->launch(std::chrono::microseconds(++n)); }, options);
  EXPECT_GE(n, 4) << "one was taken again";  // and any that the gate's bound overtook
  ASSERT_EQ(m.samples_ns.size(), 3u);
  for (const std::int64_t ns : m.samples_ns) EXPECT_TRUE(ns >= 2000 && ns % 1000 == 0) << ns;
  EXPECT_EQ(m.host_ns.size(), m.samples_ns.size());
}

}  // namespace
}  // namespace disttune::test
