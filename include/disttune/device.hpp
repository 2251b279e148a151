// What a device must be able to do: mark times on a stream, hold the stream closed, flush its
// cache, and say who it is. Both tuning modes are built from these primitives alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "disttune/value.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

using Deadline = std::chrono::steady_clock::time_point;

/// Marks, gate and flush buffer of one stream. Made when a tuning starts and gone when it ends, so
/// nothing stays allocated. Called by one thread at a time, except `release`. May throw Error where
/// not `noexcept`; DeviceLost for a sticky error.
class StreamTimer {
 public:
  StreamTimer() = default;
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;
  virtual ~StreamTimer() = default;

  /// Queue the first and the second mark of a sample, `sample` < the number given to `open`.
  virtual void start(std::size_t sample) = 0;
  virtual void stop(std::size_t sample) = 0;
  /// Nanoseconds between the marks; valid after `synchronize` returned true.
  virtual std::int64_t elapsed_ns(std::size_t sample) = 0;

  /// Closes the gate: what is queued from now on waits until `release`. False: this stream has
  /// none.
  virtual bool hold() { return false; }
  /// Opens the gate. Idempotent; callable from any thread (the watchdog).
  virtual void release() noexcept {}
  /// Between `hold` and `release`: what has been queued so far goes ahead, and what is queued from
  /// now on waits, so that the device works while the host queues more. Does nothing once
  /// `release` has been called, nor on a device that cannot: there all of it waits for `release`.
  virtual void advance() {}
  /// How `hold` works here, for the record: "none", "stream_wait", "value_wait", "user_event",
  /// "host_function".
  [[nodiscard]] virtual std::string_view gate() const noexcept { return "none"; }

  /// True while the stream is being captured into a graph: for devices that only a timer can ask
  /// (`Device::capturing` is asked first, and before a timer is opened). Then the call ends in
  /// CaptureError before anything is queued.
  [[nodiscard]] virtual bool capturing() const { return false; }

  /// Queues a flush of the device's cache.
  virtual void flush() {}
  /// Waits for all queued work. False: not done by the deadline. Throws DeviceLost.
  virtual bool synchronize(Deadline deadline) = 0;
  /// A text when the device has a sticky error (a poisoned context).
  [[nodiscard]] virtual std::optional<std::string> fault() { return std::nullopt; }

  /// Graphs (`timer="graph"`): what is queued between begin and end becomes one graph, replayed by
  /// `replay`. False from `begin_capture`: no graphs here.
  virtual bool begin_capture() { return false; }
  virtual void end_capture() {}
  virtual void replay() {}
};

/// A kind of device, stateless; shared by the launchers that run on it. Thread-safe.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// "host", "cuda", "hip", "opencl", "ascend", "torch.cuda" …: what messages call it.
  [[nodiscard]] virtual std::string_view kind() const noexcept { return "device"; }
  /// Whether samples are taken on the device's own clock ("device") or the host's ("host").
  [[nodiscard]] virtual std::string_view clock() const noexcept { return "device"; }
  /// Hardware of the device in use, as in the key: a dict value without software versions, clocks
  /// or addresses; memory rounded to GiB.
  [[nodiscard]] virtual Value fingerprint() const = 0;
  /// Driver, runtime and firmware versions: a dict value; goes into the record's `deps`.
  [[nodiscard]] virtual Value software() const { return Value::dict({}); }
  /// Nominal clocks and the like, for people: a dict value, part of no key and no comparison.
  [[nodiscard]] virtual Value information() const { return Value::dict({}); }
  /// Which of the process's devices this is, for the one-tuning-at-a-time lock and the log.
  [[nodiscard]] virtual int index() const { return 0; }
  /// True when all devices that this process can see have the same fingerprint: then a warm call
  /// need not ask which one it is on.
  [[nodiscard]] virtual bool uniform() const { return true; }
  /// True while `stream` is being captured into a graph; asked before anything is allocated.
  [[nodiscard]] virtual bool capturing(void* stream) const {
    static_cast<void>(stream);
    return false;
  }
  /// Whether the device runs slower now than it would, because it is too hot or short of power.
  /// Asked once a tuning, after measuring, for the record's `quality`; false where nothing is
  /// known.
  [[nodiscard]] virtual bool throttled() const noexcept { return false; }
  /// A timer for `samples` samples on `stream` of the current context.
  [[nodiscard]] virtual std::unique_ptr<StreamTimer> open(void* stream, std::size_t samples) = 0;
};

/// Where a call's work goes. `device` null means the host.
struct Stream {
  std::shared_ptr<Device> device;
  void* handle = nullptr;
};

/// The host itself: monotonic clock, no gate.
[[nodiscard]] Stream host();

DISTTUNE_NAMESPACE_END
