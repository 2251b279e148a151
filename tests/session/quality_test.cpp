// What a record says of the device that was measured on.
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "disttune/testing/ranks.hpp"
#include "session/rig.hpp"

namespace disttune::test {
namespace {

using Words = std::vector<std::string>;

/// The host under another name. It counts how often it is asked whether it has slowed down.
struct Asked final : Device {
  explicit Asked(bool is_hot = true) : hot(is_hot) {}
  [[nodiscard]] Value fingerprint() const override { return Value("asked"); }
  [[nodiscard]] bool throttled() const noexcept override {
    ++asked;
    return hot;
  }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void*, std::size_t samples) override {
    return host().device->open(nullptr, samples);
  }
  bool hot;
  mutable std::atomic<int> asked{0};
};

class Quality : public Session {
 protected:
  auto on(const std::shared_ptr<Device>& device, const std::string& name = "scale") {
    return scale({{3}, {1}}, name).on([device](int) { return Stream{device, nullptr}; });
  }
};

TEST_F(Quality, ADeviceThatIsThrottledAfterMeasuringIsSaidToBe) {
  const auto device =
      std::make_shared<testing::ScriptedDevice>(std::make_shared<testing::ScriptedClock>());
  const auto tuned = on(device);
  tuned(1);
  EXPECT_EQ(tuned.result(1)->tunings[0].quality, Words{});
  device->set_throttled(true);
  tuned(2);
  EXPECT_EQ(tuned.result(2)->tunings[0].quality, Words{"throttled"});
  device->set_throttled(false);
  tuned(3);
  EXPECT_EQ(tuned.result(3)->tunings[0].quality, Words{});
  EXPECT_EQ(on(device).result(2)->tunings[0].quality, Words{"throttled"}) << "it is stored";
}

TEST_F(Quality, ATuningThatIsAlsoCutShortSaysBoth) {
  set("BUDGET", "0.000001");
  const auto tuned = on(std::make_shared<Asked>());
  tuned(8);
  EXPECT_EQ(tuned.result(8)->tunings[0].quality, (Words{"throttled", "budget"}));
}

TEST_F(Quality, TheDeviceIsAskedOnceATuningAndNotWithoutOne) {
  const auto device = std::make_shared<Asked>();
  const auto tuned = on(device);
  tuned(8);
  EXPECT_EQ(device->asked, 1);
  tuned(8);       // warm
  on(device)(8);  // stored
  set("MODE", "off");
  on(device)(16);
  unset("MODE");
  on_run = [](const Tile&, int) { throw std::runtime_error("fails"); };
  EXPECT_THROW(on(device)(32), NoValidConfig);
  EXPECT_EQ(device->asked, 1);
}

TEST_F(Quality, ContextualCallsAskOnceAKernel) {
  const auto device = std::make_shared<Asked>();
  const auto kernel = [&](const std::string& name) {
    return tuned_kernel(
               name, Space<Tile>{{4}, {2}}, [](int n) { return n; },
               [this](const Tile& t, int n) { run(t, n); })
        .on([device](int) {
          return Stream{device, nullptr};
        });
  };
  const auto first = kernel("first"), second = kernel("second");
  std::vector<Words> said;
  const auto call = [&] {
    detail::run_contextual(
        "step", {.n_warmup = 1, .n_repeat = 2, .cache = "hot", .clock = clock.reader()},
        [&](detail::Pass&) {
          first(1);
          second(1);
        },
        [&](const detail::Launcher&, const Value&, const TuningRecord& tuning, std::size_t) {
          said.push_back(tuning.quality);
        });
  };
  call();
  EXPECT_EQ(said, std::vector<Words>(2, Words{"throttled"}));
  EXPECT_EQ(device->asked, 2);
}

TEST_F(Quality, EachRankSpeaksForItsOwnDevice) {
  testing::Ranks ranks(2);
  std::vector<testing::ScriptedClock> clocks(2);
  std::vector<Words> said(2);
  const auto errors = ranks.run([&](ProcessGroup& group) {
    const auto r = static_cast<std::size_t>(group.rank());
    const auto device = std::make_shared<Asked>(r == 1);
    const auto tuned =
        autotune(
            "scale", Space<Tile>{{2}, {1}}, [](int n) { return n; },
            [&](const Tile& t, int) { clocks[r].advance(std::chrono::nanoseconds(t.block)); })
            .version("1")
            .store((root / std::to_string(r)).string())
            .timer(clocks[r].reader())
            .on([device](int) {
              return Stream{device, nullptr};
            });
    tuned.with({.group = &group})(8);
    said[r] = tuned.with({.group = &group}).result(8)->tunings[0].quality;
  });
  for (const auto& error : errors) EXPECT_EQ(testing::what(error), "");
  EXPECT_EQ(said, (std::vector<Words>{{}, {"throttled"}}));
}

}  // namespace
}  // namespace disttune::test
