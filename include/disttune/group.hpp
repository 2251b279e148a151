// The ranks that must decide alike. A group implements two calls on host data: MAX over ranks, and
// an announcement that never waits. Everything else (equality, gather, broadcast) is built on MAX.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "disttune/device.hpp"
#include "disttune/error.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// What a collective call says of itself: until when it waits, which cold call it belongs to
/// (sequence, the same on all ranks that are in step), and what it is for ("handshake", …).
struct Wait {
  Deadline deadline;  ///< no arrival or sign of life until then ends in GroupTimeout
  std::chrono::nanoseconds patience{};  ///< how long the deadline is; a sign of life renews it
  std::uint64_t sequence = 0;
  std::string_view phase;
};

namespace detail {
struct GroupState;  // sequence, closed or not, the exchanged shape: the agreement's own notes
}

/// One process's seat in a group. Used by one thread at a time (the session serialises).
class ProcessGroup {
 public:
  /// `ranks_per_node`: sorted numbers of ranks on each node, e.g. {8, 8}.
  ProcessGroup(int rank, int size, std::vector<int> ranks_per_node);
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  virtual ~ProcessGroup();

  [[nodiscard]] int rank() const noexcept { return m_rank; }
  [[nodiscard]] int size() const noexcept { return m_size; }
  [[nodiscard]] const std::vector<int>& ranks_per_node() const noexcept { return m_ranks_per_node; }

  /// Elementwise maximum over all ranks, bit-identical on all. All ranks pass the same length.
  /// Throws GroupTimeout (naming the missing ranks and the phase), PeerFailed (a peer announced
  /// itself for a sequence up to `wait.sequence`), Disagreement (a peer is in another sequence,
  /// phase or length: both are named).
  virtual void all_reduce_max(std::span<std::int64_t> values, const Wait& wait) = 0;
  /// Tells the others that this rank ended `sequence` with an error. Never waits. Others' waits for
  /// that sequence raise PeerFailed within two seconds.
  virtual void abandon(std::uint64_t sequence, std::string_view why) noexcept = 0;
  /// Takes an announcement of this rank for `sequence` back (it has entered that call after all).
  virtual void withdraw(std::uint64_t sequence) noexcept { static_cast<void>(sequence); }
  /// A sign of life on the side channel. Never waits; callable from any thread.
  virtual void alive() noexcept {}
  /// Raises PeerFailed or GroupTimeout if one is due; never waits for anybody. Polled while this
  /// rank waits for its own device.
  virtual void poll(const Wait& wait) { static_cast<void>(wait); }

  /// One word for the memory tables of launchers: the group's shape and hardware, 0 until these
  /// were exchanged at the group's first cold call. Read on warm calls.
  [[nodiscard]] std::uint64_t place() const noexcept {
    return m_place.load(std::memory_order_relaxed);
  }
  void set_place(std::uint64_t word) noexcept { m_place.store(word, std::memory_order_relaxed); }

  [[nodiscard]] detail::GroupState& state() noexcept { return *m_state; }

 private:
  int m_rank;
  int m_size;
  std::vector<int> m_ranks_per_node;
  std::unique_ptr<detail::GroupState> m_state;
  std::atomic<std::uint64_t> m_place{0};
};

DISTTUNE_NAMESPACE_END
