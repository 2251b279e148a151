// A clock that moves only when told to: every test of time becomes exact.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "disttune/device.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace testing {

/// Nanoseconds since its making, moved by hand. Thread-safe. Starts at one second, so that no
/// reading is zero by accident, and yet none is later than a deadline by the steady clock of a
/// machine that has just started.
class ScriptedClock {
 public:
  [[nodiscard]] std::int64_t now_ns() const noexcept { return m_now.load(); }
  /// `by` < 0 moves it back, as a broken clock would.
  void advance(std::chrono::nanoseconds by) noexcept { m_now += by.count(); }
  /// Forward to `ns`; never back.
  void reach(std::int64_t ns) noexcept {
    for (std::int64_t now = m_now; now < ns && !m_now.compare_exchange_weak(now, ns);) continue;
  }

  /// A clock for an option `timer`/`clock`: nanoseconds now; every reading is counted. Lives as
  /// long as this object.
  [[nodiscard]] std::function<std::int64_t()> reader() {
    return [this] {
      ++m_readings;
      return now_ns();
    };
  }
  /// How often readers were read.
  [[nodiscard]] std::int64_t readings() const noexcept { return m_readings.load(); }

  /// The same time as a steady clock's, for deadlines.
  [[nodiscard]] Deadline steady() const noexcept {
    return Deadline(std::chrono::nanoseconds(now_ns()));
  }

 private:
  std::atomic<std::int64_t> m_now{1'000'000'000};
  std::atomic<std::int64_t> m_readings{0};
};

}  // namespace testing
DISTTUNE_NAMESPACE_END
