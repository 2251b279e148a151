#include "agree/pulse.hpp"

#include <algorithm>
#include <utility>

#include "core/fork.hpp"
#include "core/group_state.hpp"
#include "core/signals.hpp"

namespace disttune::agree {

Pulse& Pulse::of_process() {
  // Never destroyed: threads may still tune while the process ends.
  static auto& pulses = *new core::PerProcess<Pulse>;
  return pulses.get();
}

void Pulse::add(ProcessGroup& group, std::chrono::nanoseconds patience) {
  const std::lock_guard lock(m_mutex);
  m_groups.push_back({&group, patience});
  m_changed.notify_all();  // its signs may be due sooner
  if (m_thread.joinable()) return;
  const core::SignalsBlocked quiet;
  m_thread = std::thread([this, generation = m_generation] { beat(generation); });
}

void Pulse::remove(ProcessGroup& group) noexcept {
  std::thread ending;
  {
    const std::lock_guard lock(m_mutex);
    if (const auto at = std::ranges::find(m_groups, &group, &Listed::group); at != m_groups.end())
      m_groups.erase(at);
    if (!m_groups.empty()) return;
    ending = std::move(m_thread);
    ++m_generation;
  }
  m_changed.notify_all();
  if (ending.joinable()) ending.join();
}

void Pulse::beat(std::uint64_t generation) {
  std::unique_lock lock(m_mutex);
  auto last = std::chrono::steady_clock::now();
  while (generation == m_generation) {
    std::chrono::nanoseconds interval = m_interval;
    for (const Listed& listed : m_groups) interval = std::min(interval, listed.patience / 3);
    if (m_changed.wait_until(lock, last + interval) == std::cv_status::no_timeout) continue;
    if (generation != m_generation) return;
    last = std::chrono::steady_clock::now();
    for (const Listed& listed : m_groups)
      if (!listed.group->state().runs.in_one_run_for(listed.patience)) listed.group->alive();
  }
}

}  // namespace disttune::agree
