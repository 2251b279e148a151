// What a forked child must not take over: lists and locks of threads that it does not have.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace disttune::core {

/// Another number in a forked child. Asking the system who one is costs more than a note in a
/// journal. Thread-safe.
[[nodiscard]] std::uint64_t fork_count() noexcept;

/// One `T` for each process that descends from the one that made this. A child begins with a new
/// one: the parent's may be locked, or waited for, by threads that the child lacks, so it is
/// neither used nor destroyed there. `get` is thread-safe; the destructor is for one thread.
template <class T>
class PerProcess {
 public:
  PerProcess() = default;
  ~PerProcess() {
    const Node* node = m_node.load(std::memory_order_acquire);
    if (node != nullptr && node->fork == fork_count()) delete node;
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  [[nodiscard]] T& get() {
    const std::uint64_t now = fork_count();
    Node* node = m_node.load(std::memory_order_acquire);
    while (node == nullptr || node->fork != now) {
      auto mine = std::make_unique<Node>(now, node);
      if (m_node.compare_exchange_weak(node, mine.get(), std::memory_order_acq_rel))
        node = mine.release();
    }
    return node->value;
  }

 private:
  struct Node {
    Node(std::uint64_t at, const Node* parent) : fork(at), parents(parent) {}
    const std::uint64_t fork;
    const Node* const parents;  ///< kept in reach, so that no tool calls it lost
    T value;
  };
  std::atomic<Node*> m_node{nullptr};
};

}  // namespace disttune::core
