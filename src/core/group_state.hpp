// What the agreement remembers of a group between cold calls. It hangs on the group itself, so that
// all launchers that use the group share it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/run_clock.hpp"
#include "disttune/group.hpp"
#include "disttune/value.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

struct GroupState {
  /// Why the control channel is closed for good, and with which kind of error.
  struct Closed {
    std::uint64_t kind = 0;  ///< one of k_closed_by_…
    std::string why;
  };

  std::mutex mutex;
  std::condition_variable turn;
  std::uint64_t next_ticket = 0;  ///< cold calls in the order in which threads came
  std::uint64_t serving = 0;
  std::set<std::uint64_t> gave_up;  ///< tickets whose threads no longer wait
  std::thread::id owner;            ///< the thread whose cold call is running
  core::RunClock runs;              ///< of that thread
  std::string owner_call;           ///< what it tunes, for messages
  std::uint64_t nested = 0;         ///< calls so far that were met inside another one
  std::uint64_t sequence = 1;  ///< of the running or the next cold call; equal on ranks in step
  std::vector<std::string> ended_early;  ///< calls that ended before their turn, to be announced
  std::optional<Closed> closed;
  std::optional<Value> shape;  ///< size, ranks per node, hardware: exchanged once
  /// Who writes where stores differ, as last exchanged; the own id at that time.
  std::vector<std::int64_t> store_ids;
  /// What ranks have compared once and need not again.
  std::set<std::string> compared;

  /// The call with `ticket` is over, or will not come. With `mutex` held.
  void leave(std::uint64_t ticket) noexcept {
    if (ticket != serving) {
      gave_up.insert(ticket);
      return;
    }
    do ++serving;
    while (gave_up.erase(serving) > 0);
    turn.notify_all();
  }
};

}  // namespace detail
DISTTUNE_NAMESPACE_END
