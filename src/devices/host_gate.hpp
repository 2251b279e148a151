// A gate made of a host function that blocks: queued on a stream, it holds up everything behind it
// until the gate is released. For drivers whose streams cannot wait for a memory word.
#pragma once

#include <atomic>
#include <cstdint>

namespace disttune::devices {

/// Must outlive every queued `block`.
class HostGate {
 public:
  /// The next `block` will wait. Called before it is queued.
  void close() noexcept { m_closed.fetch_add(1, std::memory_order_relaxed); }
  /// The `block` announced last could not be queued.
  void undo_close() noexcept { m_closed.fetch_sub(1, std::memory_order_relaxed); }
  /// Lets all blocks announced so far return. From any thread.
  void release() noexcept {
    m_opened.store(m_closed.load(std::memory_order_relaxed), std::memory_order_release);
    m_opened.notify_all();
  }
  /// Runs on a thread of the driver. Blocks of one stream run in order, so counting them tells
  /// which closing this one belongs to; no memory is needed for each.
  static void block(void* gate) noexcept {
    auto& self = *static_cast<HostGate*>(gate);
    const std::uint32_t number = self.m_entered.fetch_add(1, std::memory_order_relaxed) + 1;
    for (;;) {
      const std::uint32_t opened = self.m_opened.load(std::memory_order_acquire);
      if (static_cast<std::int32_t>(opened - number) >= 0) return;
      self.m_opened.wait(opened, std::memory_order_acquire);
    }
  }

 private:
  std::atomic<std::uint32_t> m_closed{0};
  std::atomic<std::uint32_t> m_opened{0};
  std::atomic<std::uint32_t> m_entered{0};
};

}  // namespace disttune::devices
