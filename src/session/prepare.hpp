// Compiling candidates ahead, several at once, without launching any.
#pragma once

#include <cstddef>
#include <vector>

#include "disttune/detail/attempt.hpp"
#include "session/field.hpp"

namespace disttune::session {

/// Calls Attempt::prepare for each of `which`, on `workers` threads (0: one a usable core). A
/// candidate that fails is ended in the field; what is no std::exception passes, once all threads
/// are back.
void prepare_candidates(Field& field, const std::vector<std::size_t>& which,
                        detail::Attempt& attempt, int workers);

/// True in a thread that prepares a candidate: the tuning waits for it, so it waits for nobody.
[[nodiscard]] bool preparing() noexcept;

}  // namespace disttune::session
