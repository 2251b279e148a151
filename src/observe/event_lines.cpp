#include "observe/event_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "core/samples.hpp"
#include "core/statistics.hpp"

namespace disttune::observe {
namespace {

std::string_view failure_text(std::int64_t sample) {
  if (core::is_failure(sample)) return to_string(core::status_of(sample));
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

/// Lines are put together piece by piece: a tuning writes several for every candidate.
template <class... Pieces>
void append(std::string& out, const Pieces&... pieces) {
  (void(out += pieces), ...);
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

void append_one_line(std::string& out, std::string_view text) {
  const auto steers = [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code < 0x20 || code == 0x7f;
  };
  for (auto at = text.begin(); at != text.end(); ++at) {
    const auto end = std::find_if(at, text.end(), steers);
    out.append(at, end);
    if (end == text.end()) return;
    if (*end == '\n')
      out += "\\n";
    else
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(*end));
    at = end;
  }
}

std::string one_line(std::string_view text) {
  std::string out;
  append_one_line(out, text);
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
  std::string line;
  for (const CandidateRecord& c : e.space) {
    line = "candidate ";
    append_one_line(line, c.config.display());
    if (c.status != Status::ok && c.status != Status::skipped)
      append(line, ": ", to_string(c.status), ": ", one_line(c.reason));
    write(Level::info, line);
  }
}

void write_lines(const VisitDone& e, std::string_view key, const Write& write) {
  std::string line;
  line.reserve(256);
  append(line, e.function, " candidate #", std::to_string(e.index), " (");
  append_one_line(line, e.config.display());
  if (e.status != Status::ok) {
    append(line, ") ", to_string(e.status), ": ", one_line(e.reason), "; phase ",
           phase_of(e.status), rank_text(e.rank), ", key ", key);
    write(Level::warning, line);
    return;
  }
  const auto is_good = [](std::int64_t s) { return !core::is_failure(s) && !core::is_retry(s); };
  std::vector<std::int64_t> good;
  std::ranges::copy_if(e.samples_ns, std::back_inserter(good), is_good);
  append(line, "): ", good.empty() ? "no time" : "median " + readable_ns(core::median(good)),
         "; samples in ns:", e.samples_ns.empty() ? " none" : "");
  for (const std::int64_t s : e.samples_ns)
    append(line, " ", is_good(s) ? std::to_string(s) : failure_text(s));
  write(Level::info, line);
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
  std::string line;
  for (const CandidateRecord* c : order) {
    line = c->score_ns ? std::to_string(++place) + ". " : "-  ";
    append_one_line(line, c->config.display());
    if (c->score_ns)
      append(line, ": ", readable_ns(*c->score_ns));
    else
      append(line, ": ", to_string(c->status), c->reason.empty() ? "" : ": ", one_line(c->reason));
    if (e.tuning.winner && *e.tuning.winner == c->config.identity()) line += " (chosen)";
    write(Level::info, line);
  }
  write(Level::info,
        e.file.empty() ? std::string("not stored") : fmt::format("stored in {}", one_line(e.file)));
}

}  // namespace disttune::observe
