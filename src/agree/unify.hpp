// Ranks that tuned on their own (pipelines that cannot run in lockstep) end with the same records.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "agree/agreement.hpp"

namespace disttune::agree {

/// What one rank has to bring and to take.
struct Shelf {
  std::vector<std::string> keys;  ///< full key texts of its records; repeated ones count once
  std::function<std::string(const std::string& key)> read;  ///< the record's text
  /// Puts another rank's record in place of this rank's, if it has one. Not called where nothing
  /// changes.
  std::function<void(const std::string& record)> adopt;
};

/// Afterwards every rank holds, of each key that any rank holds, the record of the lowest such
/// rank. Two reductions a key, two more where a record has to be sent, one at the end. Returns how
/// many records this rank adopted. What `read` and `adopt` throw ends the call like any exception.
std::size_t unify(Agreement& call, const Shelf& shelf);

}  // namespace disttune::agree
