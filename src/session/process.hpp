// What the whole process shares: one measuring at a time per device, who is tuning what in which
// thread, and the hooks of the front end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "disttune/device.hpp"
#include "disttune/value.hpp"

namespace disttune::session {

/// Versions of the libraries above the device, merged with the device's own.
[[nodiscard]] Value software_of(const Device& device);
/// Calls the front end's hook; may throw.
void check_for_interrupt();

/// When the run at hand of a tuning thread began, for those who wait for that thread.
class RunClock {
 public:
  RunClock() = default;
  RunClock(const RunClock&) = delete;
  RunClock& operator=(const RunClock&) = delete;
  /// Until `stop`, this thread's runs show here.
  void watch_this_thread();
  void stop() noexcept;
  /// The run at hand has taken longer than `patience`: it may be waiting for who waits for it, and
  /// nobody waits for this thread any more.
  [[nodiscard]] bool overdue(std::chrono::nanoseconds patience) noexcept;

  /// This thread begins a run; `in_run` until it says that it is between runs again.
  static void run_begins() noexcept;
  static void runs_end() noexcept;
  [[nodiscard]] static bool in_run() noexcept;
  /// Of who waits for a device: ten seconds; tests take less.
  static std::chrono::nanoseconds& patience() noexcept;

 private:
  std::atomic<std::int64_t> m_began_ns{0};  ///< 0: between runs
  std::atomic<bool> m_overdue{false};
  RunClock* m_outer = nullptr;  ///< the next one of this thread
};

/// The right to measure on a device, held by one thread of the process; a nested tuning in the same
/// thread shares it. Ranks of a group do without: they measure at the same time on purpose, and two
/// of them may be threads of one process, where one would wait for the other for ever.
class DeviceTurn {
 public:
  DeviceTurn() = default;
  ~DeviceTurn();
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;

  /// Waits for the turn. Null when another thread has it and `may_wait` is false, or one run of
  /// that thread is overdue (RunClock): it may be waiting for this thread, and who
  /// holds up others once is not waited for again in that turn. `hardware`: the device's
  /// fingerprint, which costs a host several files to read.
  [[nodiscard]] static std::unique_ptr<DeviceTurn> take(const Device& device, const Value& hardware,
                                                        bool may_wait, bool alone);
  /// Another process of this user was tuning on the device when the turn began: times may be
  /// spoiled.
  [[nodiscard]] bool contended() const noexcept { return m_contended; }

 private:
  struct Seat;
  void lock_among_processes(const Device& device, const Value& hardware);

  std::shared_ptr<Seat> m_seat;
  int m_lock = -1;  ///< holds an advisory lock on a file of this user and device
  bool m_contended = false;
};

/// Marks that this thread is tuning `what` (a launcher and key), innermost last.
class TuningMark {
 public:
  /// `what` tells tunings apart, `shown` names this one to people. Both outlive the mark.
  TuningMark(std::string_view what, std::string_view shown) noexcept;
  ~TuningMark();
  TuningMark(const TuningMark&) = delete;
  TuningMark& operator=(const TuningMark&) = delete;
  /// Whether this thread is tuning exactly this already.
  [[nodiscard]] static bool holds(std::string_view what) noexcept;
  /// What this thread is tuning, as shown; empty: nothing.
  [[nodiscard]] static std::string_view innermost() noexcept;

 private:
  std::string_view m_what;
  std::string_view m_shown;
  const TuningMark* m_outer;
};

}  // namespace disttune::session
