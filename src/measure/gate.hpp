// The gate of one stream with its watchdog.
#pragma once

#include <chrono>
#include <utility>

#include "disttune/device.hpp"
#include "measure/gate_watchdog.hpp"

namespace disttune::timing {

/// Closed: what is queued waits on the device, so the host's launch time is not in a sample.
/// Between `close` and `open` nothing of ours may wait for the device (with one hardware queue a
/// held stream holds all others too).
class Gate {
 public:
  Gate(StreamTimer& timer, Now now) : m_timer(timer), m_watchdog(std::move(now)) {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// False: this stream cannot be held, or nobody could watch it. `bound`: how long the host may
  /// queue nothing before the gate opens by itself.
  [[nodiscard]] bool close(std::chrono::nanoseconds bound);
  /// Idempotent.
  void open() noexcept;
  /// What has been queued so far may go ahead, where the stream can do that: StreamTimer::advance.
  void advance() {
    if (m_closed) m_timer.advance();
  }
  [[nodiscard]] bool closed() const noexcept { return m_closed; }
  /// Whether any gate has been closed so far.
  [[nodiscard]] bool used() const noexcept { return m_used; }
  /// The host has queued something, or is about to.
  void progress() noexcept {
    if (m_closed) m_watchdog.progress();
  }
  /// Whether a gate had to be opened by the watchdog since the last call.
  [[nodiscard]] bool take_stalled() noexcept { return std::exchange(m_stalled, false); }

 private:
  StreamTimer& m_timer;
  GateWatchdog m_watchdog;
  bool m_closed = false;
  bool m_used = false;
  bool m_stalled = false;
};

}  // namespace disttune::timing
