// The ranks that must decide alike. A group implements two calls on host data: MAX over ranks, and
// an announcement that never waits. Everything else (equality, gather, broadcast) is built on MAX.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
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
  /// The first collective of its cold call: an announcement for `sequence` that a peer made before
  /// this wait may be an old one, which that peer takes back when it enters the call. It is given
  /// one second for that.
  bool first = false;
};

/// Announcements that never end: a rank that closed its side of the group (after PeerFailed,
/// GroupTimeout or ranks out of step) abandons one of these. The others' waits then raise the same
/// kind of error with the announced text as it stands.
inline constexpr std::uint64_t k_closed_by_failure = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t k_closed_by_timeout = k_closed_by_failure - 1;
inline constexpr std::uint64_t k_closed_by_disagreement = k_closed_by_failure - 2;

namespace detail {
struct GroupState;  // sequence, closed or not, the exchanged shape: the agreement's own notes
}

/// One process's seat in a group. Used by one thread at a time (the session serialises).
class ProcessGroup {
 public:
  /// `ranks_per_node`: how many ranks each node has, in any order, e.g. {8, 8}; empty: one node.
  /// std::invalid_argument for a rank outside 0 … size - 1 or numbers that do not sum up to `size`.
  ProcessGroup(int rank, int size, std::vector<int> ranks_per_node = {});
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  virtual ~ProcessGroup();

  [[nodiscard]] int rank() const noexcept { return m_rank; }
  [[nodiscard]] int size() const noexcept { return m_size; }
  [[nodiscard]] const std::vector<int>& ranks_per_node() const noexcept { return m_ranks_per_node; }

  /// Elementwise maximum over all ranks, bit-identical on all. All ranks pass the same length.
  /// Throws GroupTimeout (naming the missing ranks and the phase), PeerFailed (a peer announced
  /// itself for `wait.sequence` or a later one), Disagreement (a peer is in another sequence, phase
  /// or length: both are named). What it throws leaves nothing behind that a later call could pair
  /// with.
  virtual void all_reduce_max(std::span<std::int64_t> values, const Wait& wait) = 0;
  /// Tells the others that this rank ended `sequence` with an error. Never waits. Others' waits for
  /// that sequence, and for those before it, raise PeerFailed within two seconds. Announcements are
  /// counted a sequence: in the first collective of a call a rank that has itself announced
  /// `sequence` as often as a peer ignores the peer's (both failed before, and meet again now).
  virtual void abandon(std::uint64_t sequence, std::string_view why) noexcept = 0;
  /// Takes an announcement of this rank for `sequence` back (it has entered that call after all).
  virtual void withdraw(std::uint64_t sequence) noexcept { static_cast<void>(sequence); }
  /// A sign of life on the side channel. Never waits; callable from any thread.
  virtual void alive() noexcept {}
  /// Raises PeerFailed or GroupTimeout if one is due; never waits for anybody. Polled while this
  /// rank waits for its own device.
  virtual void poll(const Wait& wait) { static_cast<void>(wait); }

  /// A note for the others on the side channel, valid within `sequence`: "this candidate failed
  /// here". Never waits. A group without notes lets its peers wait for their own streams in vain
  /// until these time out.
  virtual void note(std::uint64_t sequence, std::uint64_t what) noexcept {
    static_cast<void>(sequence);
    static_cast<void>(what);
  }
  /// The lowest other rank that left this note, if one has.
  [[nodiscard]] virtual std::optional<int> noted(std::uint64_t sequence, std::uint64_t what) {
    static_cast<void>(sequence);
    static_cast<void>(what);
    return std::nullopt;
  }
  /// The clock that deadlines are read on.
  [[nodiscard]] virtual Deadline now() const { return std::chrono::steady_clock::now(); }

  /// One word for the memory tables of launchers, of this group alone: what another one has chosen,
  /// or this rank by itself, says nothing about its ranks. 0 for a group of one. Read on warm
  /// calls.
  [[nodiscard]] std::uint64_t place() const noexcept { return m_place; }

  [[nodiscard]] detail::GroupState& state() noexcept { return *m_state; }

 private:
  int m_rank;
  int m_size;
  std::vector<int> m_ranks_per_node;
  std::unique_ptr<detail::GroupState> m_state;
  std::uint64_t m_place = 0;
};

/// Returns when all ranks are here; also a turn among the cold calls of this rank's threads. For
/// ranks that must not run ahead into communication of their own while others still tune. Throws
/// PeerFailed, GroupTimeout or, when a rank is in another call, Disagreement; each closes the
/// group.
void barrier(ProcessGroup& group, std::chrono::nanoseconds timeout = std::chrono::minutes(10));

/// The group of this process alone, for tuning rank by rank where a launcher has another group:
/// `launcher.with({.group = disttune::local().get()})`. One object a process.
[[nodiscard]] std::shared_ptr<ProcessGroup> local();

DISTTUNE_NAMESPACE_END
