// Record → JSON text, by hand: schema and summary come first, one candidate a line.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "store/extra_fields.hpp"
#include "store/json_text.hpp"
#include "store/record_json.hpp"

namespace disttune::store {
namespace {

using namespace std::string_view_literals;

void field(std::string& out, std::string_view name) {
  out += '"';
  out += name;
  out += "\": ";
}
void text_field(std::string& out, std::string_view name, std::string_view text) {
  field(out, name);
  append_json(out, text);
}
void value_field(std::string& out, std::string_view name, const Value& value) {
  text_field(out, name, value.text());
}

constexpr auto k_none_known = [](std::string_view) { return false; };

/// Appends what `extra` keeps for the inner object `name`, before its closing brace.
void append_inner(std::string& out, const ExtraFields& extra, std::string_view name) {
  const std::string_view inner = extra.find(name);
  if (!inner.empty()) ExtraFields::parse(inner).append_unknown(out, k_none_known);
}

std::string quoted(std::string_view text) {
  std::string out;
  append_json(out, text);
  return out;
}

/// `text` quoted in at most `most` bytes; `shortened` tells whether something is missing.
std::string quoted_within(std::string_view text, std::size_t most, bool& shortened) {
  std::string out = quoted(text.substr(0, most));
  if (text.size() <= most && out.size() <= most) return out;
  shortened = true;
  std::size_t keep = std::min(text.size(), most / 2);
  const auto is_continuation = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
  };
  for (;; keep /= 2) {
    while (keep > 0 && is_continuation(keep)) --keep;
    out = quoted(text.substr(0, keep));
    if (out.size() <= most || keep == 0) return out;
  }
}

/// Schema and summary, within k_head_bytes. Names and winner get fixed shares; the key, the longest
/// by far, gets what is left.
void append_head(std::string& out, const Record& record, const TuningRecord& newest,
                 const ExtraFields& extra) {
  constexpr std::size_t k_name_share = 300;
  constexpr std::size_t k_winner_share = 600;
  const Summary summary = summary_of(record, newest);
  bool shortened = false;

  out += fmt::format("{{\n\"schema\": {{\"name\": \"{}\", \"version\": {}", k_schema_name,
                     k_schema_version);
  std::string of_schema;
  append_inner(of_schema, extra, "schema");
  if (of_schema.size() <= k_name_share) out += of_schema;
  out += "},\n\"summary\": {\"name\": ";
  out += quoted_within(summary.name, k_name_share, shortened);
  out += ", \"module\": ";
  out += quoted_within(summary.module, k_name_share, shortened);
  out += ", \"winner\": ";
  out += summary.winner ? quoted_within(summary.winner->text(), k_winner_share, shortened) : "null";
  out += ", \"scores\": {\"winner_ns\": ";
  summary.winner_ns ? append_json(out, *summary.winner_ns) : void(out += "null");
  out += ", \"default_ns\": ";
  summary.default_ns ? append_json(out, *summary.default_ns) : void(out += "null");
  out += "}, \"time\": ";
  out += quoted_within(summary.created, k_name_share, shortened);

  constexpr std::size_t k_reserve = 64;  // for what follows the key
  const std::size_t room = k_head_bytes - std::min(k_head_bytes, out.size() + k_reserve);
  out += ", \"key\": ";
  out += quoted_within(summary.key.text(), room, shortened);
  if (shortened) out += ", \"shortened\": true";
  std::string of_summary;
  append_inner(of_summary, extra, "summary");
  if (out.size() + of_summary.size() + 4 <= k_head_bytes) out += of_summary;
  out += "},\n";
}

void append_times(std::string& out, std::span<const std::int64_t> times) {
  if (std::ranges::any_of(times, [](std::int64_t ns) { return ns < 0; }))
    throw StoreError("a sample is negative");
  append_json(out, times);
}

void append_score(std::string& out, const std::optional<double>& score) {
  const bool valid = score && std::isfinite(*score) && *score >= 0;
  append_json(out, valid ? *score : std::nan(""));
}

/// Most of a record, so its constant parts are texts of known length.
void append_candidate(std::string& out, const CandidateRecord& c, const ExtraFields& extra) {
  out += "  {\"config\": {"sv;
  bool first = true;
  for (const auto& [name, value] : c.config.entries()) {
    if (!first) out += ", "sv;
    first = false;
    append_json(out, name);
    out += ": "sv;
    append_json(out, value.text());
  }
  out += "}, \"status\": "sv;
  append_json(out, to_string(c.status));
  out += ", \"reason\": "sv;
  append_json(out, c.reason);
  out += ", \"samples_ns\": "sv;
  append_times(out, c.samples_ns);
  out += ", \"host_ns\": "sv;
  append_times(out, c.host_ns);
  out += ", \"score_ns\": "sv;
  append_score(out, c.score_ns);
  if (!extra.empty()) append_inner(out, extra, c.config.identity().text());
  out += '}';
}

double not_negative(double seconds) {
  return std::isfinite(seconds) && seconds > 0 ? seconds : 0.0;
}

void append_how(std::string& out, const TuningRecord& t, const ExtraFields& extra) {
  out += " \"how\": {";
  text_field(out, "strategy", t.strategy);
  out += fmt::format(", \"warmup\": {}, \"repeat\": {}, \"checked\": {}, ", std::max(t.warmup, 0),
                     std::max(t.repeat, 0), t.checked);
  field(out, "prepare_seconds");
  append_json(out, not_negative(t.prepare_seconds));
  out += ", \"measure_seconds\": ";
  append_json(out, not_negative(t.measure_seconds));
  out += ", ";
  text_field(out, "gate", t.gate);
  append_inner(out, extra, "how");
  out += "},\n";
}

void append_lists(std::string& out, const TuningRecord& t) {
  out += " \"quality\": [";
  for (std::size_t i = 0; i < t.quality.size(); ++i) {
    if (i > 0) out += ", ";
    append_json(out, t.quality[i]);
  }
  out += "], \"rank_medians\": [";
  for (std::size_t i = 0; i < t.rank_medians.size(); ++i) {
    const auto& [rank, median_ns] = t.rank_medians[i];
    if (rank < 0 || median_ns < 0) throw StoreError("a rank's median is negative");
    out += fmt::format("{}[{},{}]", i > 0 ? "," : "", rank, median_ns);
  }
  out += "],\n";
}

/// What is written must be readable, else a caller's mistake would look like a damaged file.
void require_dict(const Value& value, std::string_view what) {
  if (value.kind() != Value::Kind::dict)
    throw StoreError(fmt::format("{} is no dict but {:.60}", what, value.text()));
}

void check_winner(const TuningRecord& t) {
  if (!t.winner) return;
  const CandidateRecord* winner = find_candidate(t, *t.winner);
  if (winner == nullptr || winner->status != Status::ok)
    throw StoreError(
        fmt::format("the winner {} is not among the candidates that are ok", t.winner->text()));
}

void append_tuning(std::string& out, const TuningRecord& t) {
  constexpr std::array<std::string_view, 10> known = {
      "deps", "candidates", "winner", "default",      "created",
      "how",  "quality",    "host",   "tool_version", "rank_medians"};
  require_dict(t.deps, "deps");
  require_dict(t.default_config, "the default configuration");
  check_winner(t);
  const ExtraFields extra = ExtraFields::parse(t.extra);
  const std::string_view of_candidates = extra.find("candidates");
  const ExtraFields candidates =
      of_candidates.empty() ? ExtraFields() : ExtraFields::parse(of_candidates);
  out += '{';
  value_field(out, "deps", t.deps);
  out += ",\n \"winner\": ";
  t.winner ? append_json(out, t.winner->text()) : void(out += "null");
  out += ", ";
  value_field(out, "default", t.default_config);
  out += ",\n ";
  text_field(out, "created", t.created);
  out += ", ";
  text_field(out, "host", t.host);
  out += ", ";
  text_field(out, "tool_version", t.tool_version);
  out += ",\n";
  append_how(out, t, extra);
  append_lists(out, t);
  out += " \"candidates\": [\n";
  for (std::size_t i = 0; i < t.candidates.size(); ++i) {
    if (i > 0) out += ",\n";
    append_candidate(out, t.candidates[i], candidates);
  }
  out += ']';
  extra.append_unknown(
      out, [&](std::string_view name) { return std::ranges::find(known, name) != known.end(); });
  out += '}';
}

std::size_t expected_size(std::span<const TuningRecord* const> tunings) {
  std::size_t out = 2 * k_head_bytes;
  for (const TuningRecord* t : tunings) {
    out += 1024;
    for (const CandidateRecord& c : t->candidates)
      out += 160 + 2 * c.config.identity().text().size() + c.reason.size() +
             12 * (c.samples_ns.size() + c.host_ns.size());
  }
  return out;
}

std::optional<double> score_of(const TuningRecord& tuning, const Value& identity) {
  const CandidateRecord* candidate = find_candidate(tuning, identity);
  if (candidate == nullptr || !candidate->score_ns) return std::nullopt;
  const double score = *candidate->score_ns;
  return std::isfinite(score) && score >= 0 ? std::optional(score) : std::nullopt;
}

}  // namespace

Summary summary_of(const Record& record, const TuningRecord& newest) {
  Summary out;
  out.name = record.name;
  out.module = record.module;
  out.key = record.key.text();
  out.created = newest.created;
  out.winner = newest.winner;
  if (newest.winner) out.winner_ns = score_of(newest, *newest.winner);
  out.default_ns = score_of(newest, newest.default_config);
  return out;
}

std::string write_record(const Record& record) {
  std::vector<const TuningRecord*> tunings;
  for (const TuningRecord& t : record.tunings) tunings.push_back(&t);
  return write_record_of(record, tunings);
}

std::string write_record_of(const Record& record, std::span<const TuningRecord* const> tunings) {
  constexpr std::array<std::string_view, 9> known = {"schema",      "function", "key",
                                                     "hardware",    "group",    "policy",
                                                     "overwritten", "tunings",  "summary"};
  if (tunings.empty()) throw StoreError("the record holds no tuning");
  if (tunings.size() > k_most_tunings) tunings = tunings.first(k_most_tunings);
  require_dict(record.key.identity, "the function's identity");
  require_dict(record.key.policy, "the policy");
  const ExtraFields extra = ExtraFields::parse(record.extra);
  std::string out;
  out.reserve(expected_size(tunings));
  append_head(out, record, *tunings.front(), extra);
  out += "\"function\": {";
  text_field(out, "name", record.name);
  out += ", ";
  text_field(out, "module", record.module);
  out += ", ";
  value_field(out, "identity", record.key.identity);
  append_inner(out, extra, "function");
  out += "},\n";
  value_field(out, "key", record.key.key);
  out += ",\n";
  value_field(out, "hardware", record.key.hardware);
  out += ",\n";
  value_field(out, "group", record.key.group);
  out += ",\n";
  value_field(out, "policy", record.key.policy);
  out += ",\n";
  value_field(out, "overwritten", record.key.overwritten);
  out += ",\n\"tunings\": [\n";
  for (std::size_t i = 0; i < tunings.size(); ++i) {
    if (i > 0) out += ",\n";
    append_tuning(out, *tunings[i]);
  }
  out += ']';
  extra.append_unknown(
      out, [&](std::string_view name) { return std::ranges::find(known, name) != known.end(); });
  out += "\n}\n";
  return out;
}

}  // namespace disttune::store
