// A device that exists only in a script: one stream with a queue, a gate, marks, graphs and a
// cache, whose work takes as long as the test says, and which can misbehave as real ones do. It
// simulates time by a ScriptedClock, so that device time, host time and the gate's effect on a
// sample come out exact to the nanosecond.
//
//   auto clock  = std::make_shared<testing::ScriptedClock>();
//   auto device = std::make_shared<testing::ScriptedDevice>(clock);
//   // a launcher: 20 µs of host time to launch a kernel of 5 µs
//   device->launch(5us, 20us);
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "disttune/device.hpp"
#include "disttune/testing/scripted_clock.hpp"
#include "disttune/value.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace testing {

/// What a scripted device can do and is called.
struct ScriptedDeviceOptions {
  bool gate = true;                        ///< `hold` works
  bool graphs = true;                      ///< `begin_capture` works
  std::size_t queue_capacity = 1000;       ///< launches that fit behind a closed gate
  std::chrono::nanoseconds flush_time{0};  ///< how long a cache flush takes
  std::string kind = "scripted";           ///< Device::kind
  std::string clock = "device";            ///< Device::clock
  Value fingerprint = Value::from_canonical("\"scripted\"");  ///< Device::fingerprint
};

/// Thread-safe. All streams of one device are one queue.
class ScriptedDevice final : public Device {
 public:
  /// A work of this length never ends.
  static constexpr std::chrono::nanoseconds k_never = std::chrono::nanoseconds::max();

  explicit ScriptedDevice(std::shared_ptr<ScriptedClock> clock, ScriptedDeviceOptions options = {});
  ~ScriptedDevice() override;

  // ---- what a launcher does
  /// Spends `host` on the clock, then queues `work`. Behind a closed gate with a full queue it
  /// blocks, as drivers do. Throws DeviceLost after `break_context`.
  void launch(std::chrono::nanoseconds work, std::chrono::nanoseconds host = {});
  /// Waits for the queued work, as a launcher that reads a result back. Behind a closed gate it
  /// moves the clock on, 10 ms at a time, until somebody opens the gate; std::logic_error after a
  /// minute of real time. Error during capture.
  void block_until_released();

  // ---- what goes wrong
  /// From now on: a sticky error. `fault` says `why`; `launch` and `synchronize` throw DeviceLost.
  void break_context(std::string why);
  /// The next samples read give these numbers instead (zero and negative ones are bad).
  void give_samples(std::vector<std::int64_t> ns);
  /// Every sample read gives `ns`.
  void give_always(std::int64_t ns);
  /// From now on it says that it is too hot (or no longer).
  void set_throttled(bool throttled);

  /// The caller has begun (or ended) a capture of the stream.
  void set_capturing(bool capturing);

  // ---- what a test looks at
  /// The primitives called, in order: "hold", "release", "flush", "start 0", "stop 0", "launch",
  /// "block", "synchronize", "elapsed 0", "begin_capture", "end_capture", "replay". A release of an
  /// open gate is not noted.
  [[nodiscard]] std::vector<std::string> log() const;
  void clear_log();
  /// Timers that are open: memory that a tuning holds on the device.
  [[nodiscard]] std::size_t open_timers() const;
  [[nodiscard]] bool held() const;

  // ---- Device
  [[nodiscard]] std::string_view kind() const noexcept override;
  [[nodiscard]] std::string_view clock() const noexcept override;
  [[nodiscard]] Value fingerprint() const override;
  [[nodiscard]] bool capturing(void* stream) const override;
  [[nodiscard]] bool throttled() const noexcept override;
  /// Any handle is the one stream.
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void* stream, std::size_t samples) override;

  struct State;

 private:
  std::shared_ptr<State> m_state;
};

}  // namespace testing
DISTTUNE_NAMESPACE_END
