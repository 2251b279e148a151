// A candidate's exception as data: a status and one line of text, nothing of the caller's alive.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "measure/stopwatch.hpp"

namespace disttune::timing {

/// "stage: type: message"; "stage: type" where there is no message.
[[nodiscard]] std::string describe_exception(std::string_view stage, const std::exception& error);
/// CandidateFailed keeps its own status and text; std::bad_alloc is `out_of_resources`; any other
/// is `launch_failed`.
[[nodiscard]] VisitEnd failure_of(std::string_view stage, const std::exception& error);

}  // namespace disttune::timing
