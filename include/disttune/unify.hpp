// Ranks that tuned on their own, since their pipelines cannot run in lockstep, end with the same
// records.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "disttune/group.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

struct UnifyOptions {
  /// The folder of this rank's records; nothing: the environment's.
  std::optional<std::string> store = {};
  std::string name = {};  ///< of one function; empty: all that the ranks hold
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
};

/// Afterwards every rank's store holds, of each key that any rank's store (or a layer of it) holds,
/// the record of the lowest such rank. Tunings of other software versions stay beside it. A store
/// that cannot be written is warned of and left alone. All ranks must call it; two reductions a key
/// and two more for a record that has to be sent.
///
/// What tuned objects of this process have chosen already stays chosen: `clear` them, on all ranks,
/// where the choice should come from the records.
///
/// Returns the names of functions of which this rank's records changed, each once, sorted. Throws
/// PeerFailed, GroupTimeout or, when a rank is in another call, Disagreement, which close the
/// group; Disagreement when a rank asks for another name, after which the group goes on.
std::vector<std::string> unify(ProcessGroup& group, const UnifyOptions& options = {});

DISTTUNE_NAMESPACE_END
