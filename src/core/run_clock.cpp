#include "core/run_clock.hpp"

#include <time.h>

#include <utility>

namespace disttune::core {
namespace {

/// To a few milliseconds, which is enough for seconds of patience: it is read before every run.
std::int64_t steady_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
// What a thread is doing: linked through its stack, so that nothing is destroyed when the thread
// ends. Launchers may be called from destructors that run later still.
/// Those who wait for this thread look here.
thread_local RunClock* t_clocks = nullptr;
/// When this thread's run at hand began; 0: it is between runs.
thread_local std::int64_t t_run_began_ns = 0;

}  // namespace

void RunClock::watch_this_thread() {
  m_outer = std::exchange(t_clocks, this);
  m_began_ns.store(0, std::memory_order_relaxed);
  m_overdue.store(false, std::memory_order_relaxed);
}
void RunClock::stop() noexcept {
  RunClock** at = &t_clocks;
  while (*at != nullptr && *at != this) at = &(*at)->m_outer;
  if (*at != nullptr) *at = m_outer;
}
void RunClock::goes_on() noexcept {
  std::int64_t began_ns = m_began_ns.load(std::memory_order_relaxed);
  if (began_ns != 0) m_began_ns.compare_exchange_strong(began_ns, steady_ns());
}
bool RunClock::in_one_run_for(std::chrono::nanoseconds patience) const noexcept {
  const std::int64_t began_ns = m_began_ns.load(std::memory_order_relaxed);
  return began_ns != 0 && steady_ns() - began_ns > patience.count();
}
bool RunClock::overdue(std::chrono::nanoseconds patience) noexcept {
  if (in_one_run_for(patience)) m_overdue.store(true, std::memory_order_relaxed);
  return m_overdue.load(std::memory_order_relaxed);
}

void RunClock::run_begins() noexcept {
  if (t_clocks == nullptr) return;
  t_run_began_ns = steady_ns();
  for (RunClock* clock = t_clocks; clock != nullptr; clock = clock->m_outer)
    clock->m_began_ns.store(t_run_began_ns, std::memory_order_relaxed);
}
void RunClock::runs_end() noexcept {
  t_run_began_ns = 0;
  for (RunClock* clock = t_clocks; clock != nullptr; clock = clock->m_outer)
    clock->m_began_ns.store(0, std::memory_order_relaxed);
}
bool RunClock::in_run() noexcept { return t_run_began_ns != 0; }
std::chrono::nanoseconds& RunClock::patience() noexcept {
  static std::chrono::nanoseconds value = std::chrono::seconds(10);
  return value;
}

}  // namespace disttune::core
