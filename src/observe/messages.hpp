// What is shown to people outside a log: at which level, how often, where.
#pragma once

#include <string_view>

#include "disttune/observer.hpp"

namespace disttune::observe {

/// LOG_LEVEL now; `warning` where the environment cannot be read (who tunes says so).
[[nodiscard]] Level log_level() noexcept;
/// Whether a warning of this cause is the first one. Empty causes always are.
[[nodiscard]] bool first_of(std::string_view cause);
/// To the sink, else to standard error, as "disttune: [warning: ]text".
void show(Level level, std::string_view text);
/// Raw bytes to standard error.
void write_stderr(std::string_view bytes) noexcept;

}  // namespace disttune::observe
