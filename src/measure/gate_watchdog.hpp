// Opens a gate behind which the host itself has got stuck.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "disttune/device.hpp"

namespace disttune::timing {

/// Reads a monotonic clock. Called from the watchdog's thread too. Empty: std::chrono's.
using Now = std::function<Deadline()>;

/// A launcher that waits for the device behind a closed gate would wait for ever: only another
/// thread can open it. The thread is native, starts with the process's first gate, sleeps while
/// none is closed, and serves one watchdog after the other until the process ends (where two live
/// at a time, the second has one of its own, which is joined unless it is the first to be free).
/// After a fork the child, which has no such thread, starts its own.
///
/// It takes the locks that the timer's `release` takes: the devices here take none, a timer written
/// in Python the interpreter's. A launcher that keeps that one while it waits for such a device is
/// beyond help.
///
/// All methods are for the thread that measures.
class GateWatchdog {
 public:
  struct Runner;  ///< the thread

  explicit GateWatchdog(Now now = {});
  ~GateWatchdog();
  GateWatchdog(const GateWatchdog&) = delete;
  GateWatchdog& operator=(const GateWatchdog&) = delete;

  /// From here on `timer` is released once `bound` has passed without `progress`. Throws
  /// std::system_error when no thread can be had.
  void arm(StreamTimer& timer, std::chrono::nanoseconds bound);
  /// The host is getting on. One clock reading and one store; no lock.
  void progress() noexcept;
  /// Stops watching; the timer is not touched after this returns. True: it had been released.
  [[nodiscard]] bool disarm() noexcept;

 private:
  Now m_now;
  std::unique_ptr<Runner> m_runner;
};

}  // namespace disttune::timing
