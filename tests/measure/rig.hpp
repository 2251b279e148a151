// A launcher on a scripted device, for tests of measuring.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "disttune/testing/scripted_clock.hpp"
#include "disttune/testing/scripted_device.hpp"
#include "measure/stopwatch.hpp"

namespace disttune::timing {

using namespace std::chrono_literals;

/// The sample of a run whose gate had to be opened early.
inline const std::int64_t k_stalled = core::sample_of(core::Retry::stalled);

/// Counts what it is asked for; `launch(candidate)` is the launcher.
class ScriptedAttempt final : public detail::Attempt {
 public:
  explicit ScriptedAttempt(std::function<void(std::size_t)> launch) : m_launch(std::move(launch)) {}
  void begin_visit(std::size_t candidate, std::size_t reserved) override {
    began.emplace_back(candidate, reserved);
    if (on_begin) on_begin();
  }
  void before_run() override {
    ++befores;
    if (before) before();
  }
  void run(std::size_t candidate) override {
    ++runs;
    m_launch(candidate);
  }
  void drop_results() noexcept override {
    ++drops;
    if (on_drop) on_drop();
  }
  void decided(std::size_t) override {}

  std::vector<std::pair<std::size_t, std::size_t>> began;
  int befores = 0;
  int runs = 0;
  int drops = 0;
  std::function<void()> on_begin;
  std::function<void()> before;
  std::function<void()> on_drop;

 private:
  std::function<void(std::size_t)> m_launch;
};

struct Rig {
  explicit Rig(testing::ScriptedDeviceOptions options = {})
      : device(std::make_shared<testing::ScriptedDevice>(clock, std::move(options))) {}

  [[nodiscard]] Policy policy() const {
    Policy p;
    p.patience = 60s;
    p.now = [c = clock] { return c->steady(); };
    return p;
  }
  [[nodiscard]] Stopwatch watch(Policy p, std::size_t samples = 10) const {
    return Stopwatch({device, nullptr}, std::move(p), samples);
  }
  [[nodiscard]] Stopwatch watch() const { return watch(policy()); }

  std::shared_ptr<testing::ScriptedClock> clock = std::make_shared<testing::ScriptedClock>();
  std::shared_ptr<testing::ScriptedDevice> device;
};

/// One visit's outcome.
struct Taken {
  VisitEnd end;
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> host_ns;
};
inline Taken visit(Stopwatch& watch, detail::Attempt& attempt, Visit v) {
  Taken t{{}, std::vector<std::int64_t>(v.timed), std::vector<std::int64_t>(v.timed)};
  t.end = watch.visit(v, attempt, t.samples, t.host_ns);
  return t;
}

using Log = std::vector<std::string>;

}  // namespace disttune::timing
