#include "measure/gate.hpp"

#include <system_error>

namespace disttune::timing {

bool Gate::close(std::chrono::nanoseconds bound) {
  if (m_closed) return true;
  if (!m_timer.hold()) return false;
  m_closed = true;
  try {
    m_watchdog.arm(m_timer, bound);
  } catch (const std::system_error&) {  // no thread to be had: an unwatched gate could hang
    open();
    return false;
  }
  m_used = true;
  return true;
}

void Gate::open() noexcept {
  if (!m_closed) return;
  m_closed = false;
  m_stalled |= m_watchdog.disarm();
  m_timer.release();
}

}  // namespace disttune::timing
