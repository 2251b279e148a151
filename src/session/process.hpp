// What the whole process shares: one measuring at a time per device, who is tuning what in which
// thread, and the software that the front end adds to the device's.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/interrupt.hpp"
#include "core/run_clock.hpp"
#include "disttune/device.hpp"
#include "disttune/value.hpp"

namespace disttune::session {

/// Versions of the libraries above the device, merged with the device's own.
[[nodiscard]] Value software_of(const Device& device);
using core::check_for_interrupt;
using core::RunClock;

/// The right to measure on a device, held by one thread of the process; a nested tuning in the same
/// thread shares it. Ranks of a group do without: they measure at the same time on purpose, and two
/// of them may be threads of one process, where one would wait for the other for ever.
class DeviceTurn {
 public:
  DeviceTurn();
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
  void lock_among_processes(const std::string& file);

  std::shared_ptr<Seat> m_seat;  ///< null: measures without a turn
  std::uint64_t m_owner;         ///< the process, by its fork_count
  int m_lock = -1;               ///< holds an advisory lock on a file of this user and device
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
