// Who waits for a tuning thread looks here: a run that takes too long may be waiting for them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace disttune::core {

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

  /// The run at hand, if there is one, counts from now: it is getting on. From any thread.
  void goes_on() noexcept;
  /// Whether one run has taken longer than `patience` and is not over; decides nothing.
  [[nodiscard]] bool in_one_run_for(std::chrono::nanoseconds patience) const noexcept;

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

}  // namespace disttune::core
