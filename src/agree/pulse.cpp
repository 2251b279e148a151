#include "agree/pulse.hpp"

#include <algorithm>

namespace disttune::agree {

Pulse& Pulse::of_process() {
  static Pulse pulse(std::chrono::seconds(5));
  return pulse;
}

Pulse::~Pulse() {
  {
    const std::lock_guard lock(m_mutex);
    m_ends = true;
  }
  m_changed.notify_all();
  if (m_thread.joinable()) m_thread.join();
}

void Pulse::add(ProcessGroup& group) {
  const std::lock_guard lock(m_mutex);
  m_groups.push_back(&group);
  if (!m_thread.joinable()) m_thread = std::thread([this] { beat(); });
  if (m_groups.size() == 1) m_changed.notify_all();
}

void Pulse::remove(ProcessGroup& group) noexcept {
  const std::lock_guard lock(m_mutex);
  if (const auto at = std::ranges::find(m_groups, &group); at != m_groups.end()) m_groups.erase(at);
}

void Pulse::beat() {
  std::unique_lock lock(m_mutex);
  while (!m_ends) {
    if (m_groups.empty()) {
      m_changed.wait(lock);
      continue;
    }
    if (m_changed.wait_for(lock, m_interval) == std::cv_status::no_timeout) continue;
    for (ProcessGroup* group : m_groups) group->alive();
  }
}

}  // namespace disttune::agree
