// Events in words: the lines of a tuning's log, one line a fact.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "disttune/observer.hpp"

namespace disttune::observe {

/// Takes one line. It holds no line break.
using Write = std::function<void(Level, std::string_view)>;

/// What is tuned and why, the key, the software versions, the candidates.
void write_lines(const Miss&, const Write&);
/// A candidate's samples; a failure with all that it takes to repeat it: candidate, configuration,
/// key, rank and phase.
void write_lines(const VisitDone&, std::string_view key, const Write&);
/// The candidates, fastest first, then those without a time and why.
void write_lines(const Decided&, const Write&);

[[nodiscard]] std::string_view name_of(Level level) noexcept;
/// Line breaks as `\n`, so that a text stays one line.
[[nodiscard]] std::string one_line(std::string_view text);
void append_one_line(std::string& out, std::string_view text);
/// "12.345 us", in the unit that leaves one to three digits before the point.
[[nodiscard]] std::string readable_ns(double ns);

}  // namespace disttune::observe
