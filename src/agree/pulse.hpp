// Signs of life: while a rank prepares or measures, its peers hear from it every few seconds, so
// that only silence ends their wait, not length.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "disttune/group.hpp"

namespace disttune::agree {

/// One thread for all groups of the process. It ends with the last group that is listed, so a
/// process that forks between tunings leaves no thread behind. Thread-safe. Not to be called with a
/// lock held that `ProcessGroup::alive` takes.
class Pulse {
 public:
  explicit Pulse(std::chrono::nanoseconds interval = std::chrono::seconds(5))
      : m_interval(interval) {}
  ~Pulse() = default;  ///< when no group is listed
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  [[nodiscard]] static Pulse& of_process();

  /// A sign each interval, or three in `patience` if that is shorter. None
  /// while the thread that has the group is in one run for longer than `patience`: who hangs in a
  /// launcher does not get on, and the others must not wait for ever.
  void add(ProcessGroup& group, std::chrono::nanoseconds patience);
  /// When it returns, no call of `alive` is running or will be made.
  void remove(ProcessGroup& group) noexcept;

 private:
  void beat(std::uint64_t generation);

  std::chrono::nanoseconds m_interval;
  std::mutex m_mutex;
  std::condition_variable m_changed;
  struct Listed {
    ProcessGroup* group;
    std::chrono::nanoseconds patience;
  };
  std::vector<Listed> m_groups;
  std::uint64_t m_generation = 0;  ///< of m_thread; an older thread ends
  std::thread m_thread;
};

}  // namespace disttune::agree
