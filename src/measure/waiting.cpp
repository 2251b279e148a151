#include "measure/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace disttune::timing {
namespace {
constexpr std::chrono::milliseconds k_poll_interval{100};
}  // namespace

bool Waiting::drained(std::chrono::nanoseconds patience) {
  const Deadline end = patience > patience.zero() ? m_now() + patience : Deadline::max();
  for (;;) {
    const Deadline slice = m_poll ? std::min(end, m_now() + k_poll_interval) : end;
    if (m_timer.synchronize(slice)) return true;
    if (m_now() >= end) return false;
    if (m_poll) passing(m_poll);
  }
}

void Waiting::catch_up(std::chrono::nanoseconds patience) {
  if (!left_behind()) return;
  if (!unwrapped([&] { return drained(patience); }))
    throw DeviceLost(fmt::format(
        "disttune: the work of {} on the device never ends ({:g} s more were given); a hung device "
        "cannot be healed from within this process",
        m_leftover, std::chrono::duration<double>(patience).count()));
  m_leftover.clear();
}

}  // namespace disttune::timing
