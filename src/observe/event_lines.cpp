#include "observe/event_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/samples.hpp"
#include "core/statistics.hpp"

namespace disttune::observe {
namespace {

std::string text_of(std::int64_t sample) {
  if (core::is_failure(sample)) return std::string(to_string(core::status_of(sample)));
  if (!core::is_retry(sample)) return std::to_string(sample);
  switch (core::retry_of(sample)) {
    case core::Retry::bad_clock:
      return "bad_clock";
    case core::Retry::spoiled:
      return "spoiled";
    case core::Retry::stalled:
      return "stalled";
  }
  return "?";
}

std::string_view phase_of(Status status) {
  switch (status) {
    case Status::pruned:
      return "prune";
    case Status::compile_failed:
      return "prepare";
    case Status::wrong_result:
      return "check";
    case Status::crashed:
      return "an earlier process";
    default:
      return "measure";
  }
}

std::string rank_text(int rank) { return rank < 0 ? "" : fmt::format(", rank {}", rank); }

}  // namespace

std::string_view name_of(Level level) noexcept {
  switch (level) {
    case Level::debug:
      return "DEBUG";
    case Level::info:
      return "INFO";
    case Level::warning:
      return "WARNING";
    case Level::error:
      return "ERROR";
  }
  return "INFO";
}

std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c != '\r')
      out += c;
  }
  return out;
}

std::string readable_ns(double ns) {
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.3f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.3f} ms", ns / 1e6);
  return fmt::format("{:.3f} s", ns / 1e9);
}

void write_lines(const Miss& e, const Write& write) {
  write(Level::info, fmt::format("tuning {}: {} candidates{}; {}", e.function, e.candidates,
                                 rank_text(e.rank), one_line(e.reason)));
  write(Level::info, fmt::format("key {}", e.key.text().text()));
  if (!e.deps.empty()) write(Level::info, fmt::format("deps {}", e.deps));
  for (const CandidateRecord& c : e.space) {
    const bool open = c.status == Status::ok || c.status == Status::skipped;
    write(Level::info, open ? fmt::format("candidate {}", one_line(c.config.display()))
                            : fmt::format("candidate {}: {}: {}", one_line(c.config.display()),
                                          to_string(c.status), one_line(c.reason)));
  }
}

void write_lines(const VisitDone& e, std::string_view key, const Write& write) {
  const std::string who =
      fmt::format("{} candidate #{} ({})", e.function, e.index, one_line(e.config.display()));
  if (e.status != Status::ok) {
    write(Level::warning,
          fmt::format("{} {}: {}; phase {}{}, key {}", who, to_string(e.status), one_line(e.reason),
                      phase_of(e.status), rank_text(e.rank), key));
    return;
  }
  std::vector<std::int64_t> good;
  std::string all;
  for (const std::int64_t s : e.samples_ns) {
    if (!core::is_failure(s) && !core::is_retry(s)) good.push_back(s);
    all += (all.empty() ? "" : " ") + text_of(s);
  }
  write(Level::info,
        fmt::format("{}: {}; samples in ns: {}", who,
                    good.empty() ? "no time" : "median " + readable_ns(core::median(good)),
                    all.empty() ? "none" : all));
}

void write_lines(const Decided& e, const Write& write) {
  std::vector<const CandidateRecord*> order;
  for (const CandidateRecord& c : e.tuning.candidates) order.push_back(&c);
  const auto score = [](const CandidateRecord* c) {
    return c->score_ns.value_or(std::numeric_limits<double>::infinity());
  };
  std::ranges::stable_sort(order, {}, score);
  write(Level::info,
        fmt::format("{} decided{}: candidates, fastest first", e.function, rank_text(e.rank)));
  std::size_t place = 0;
  for (const CandidateRecord* c : order) {
    const bool won = e.tuning.winner && *e.tuning.winner == c->config.identity();
    if (c->score_ns)
      write(Level::info, fmt::format("{}. {}: {}{}", ++place, one_line(c->config.display()),
                                     readable_ns(*c->score_ns), won ? " (chosen)" : ""));
    else
      write(Level::info, fmt::format("-  {}: {}{}{}{}", one_line(c->config.display()),
                                     to_string(c->status), c->reason.empty() ? "" : ": ",
                                     one_line(c->reason), won ? " (chosen)" : ""));
  }
  write(Level::info,
        e.file.empty() ? std::string("not stored") : fmt::format("stored in {}", one_line(e.file)));
}

}  // namespace disttune::observe
