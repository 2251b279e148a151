// What the ranks of a contextual call tell each other between two of its passes. Each function is a
// collective with the same number of meetings on all ranks; alone, none is called.
#pragma once

#include <cstdint>
#include <string>

#include "session/found_context.hpp"

namespace disttune::session {

/// `store_id`: of the store that this rank would write to; 0: none.
[[nodiscard]] agree::Agreed shake_hands(agree::Agreement& agreement, const std::string& call,
                                        const Settings& settings, bool persist,
                                        std::uint64_t store_id);

/// Whether a rank is stuck (`stuck`: why this one is, or empty), and whether all have launched the
/// same. Either ends the call alike on all ranks: throws NoValidConfig, or Disagreement that
/// names what differs. `contexts` are in an order that all ranks share.
void compare_pass(agree::Agreement& agreement, const std::string& call, const Contexts& contexts,
                  std::string stuck);

/// Settles the contexts found in this pass of which all ranks hold the same choice, in memory or,
/// with `persist`, in their stores, where what the lowest rank has is the choice of all.
void settle_what_all_hold(agree::Agreement& agreement, const Contexts& contexts,
                          const agree::Agreed& agreed, bool persist);

/// Where one context is below another: lets each step between passes wait for all ranks.
void compare_progress(agree::Agreement& agreement, const Contexts& contexts);

}  // namespace disttune::session
