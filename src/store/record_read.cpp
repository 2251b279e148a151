// JSON text → record. Every field is checked; a file that passes cannot surprise anyone later.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "store/extra_fields.hpp"
#include "store/json_cursor.hpp"
#include "store/record_fields.hpp"
#include "store/record_json.hpp"

namespace disttune::store {
namespace {

Value read_dict(JsonCursor& cursor) {
  Value out = read_value(cursor);
  if (out.kind() != Value::Kind::dict) cursor.fail("before this: expected a dict");
  return out;
}

int read_int(JsonCursor& cursor) {
  return static_cast<int>(read_count(cursor, std::numeric_limits<int>::max()));
}

std::vector<std::int64_t> read_times(JsonCursor& cursor) {
  std::vector<std::int64_t> out;
  cursor.array(
      [&] { out.push_back(read_count(cursor, std::numeric_limits<std::int64_t>::max())); });
  return out;
}

Config read_config(JsonCursor& cursor) {
  std::vector<std::pair<std::string, Value>> entries;
  cursor.object([&](std::string_view name) { entries.emplace_back(name, read_value(cursor)); });
  try {
    return Config::of(std::move(entries));
  } catch (const std::invalid_argument& e) {
    cursor.fail(e.what());
  }
}

constexpr std::array<std::string_view, 6> k_candidate = {"config",     "status",  "reason",
                                                         "samples_ns", "host_ns", "score_ns"};

/// Unknown fields go to `extra` under the candidate's identity.
CandidateRecord read_candidate(JsonCursor& cursor, ExtraFields& extra) {
  CandidateRecord out;
  ExtraFields unknown;
  Seen seen(cursor, "a candidate");
  cursor.object([&](std::string_view name) {
    switch (seen.at(k_candidate, name)) {
      case 0:
        out.config = read_config(cursor);
        break;
      case 1: {
        const std::string text = cursor.string();
        const std::optional<Status> status = parse_status(text);
        if (!status) cursor.fail(fmt::format("before this: unknown status \"{:.40}\"", text));
        out.status = *status;
        break;
      }
      case 2:
        out.reason = cursor.string();
        break;
      case 3:
        out.samples_ns = read_times(cursor);
        break;
      case 4:
        out.host_ns = read_times(cursor);
        break;
      case 5:
        out.score_ns = read_optional<double>(cursor, read_not_negative);
        break;
      default:
        unknown.set(name, cursor.raw());
    }
  });
  seen.require(k_candidate, 2);
  if (!unknown.empty()) extra.set(out.config.identity().text(), unknown.json());
  return out;
}

constexpr std::array<std::string_view, 7> k_how = {
    "strategy", "warmup", "repeat", "checked", "prepare_seconds", "measure_seconds", "gate"};

void read_how(JsonCursor& cursor, TuningRecord& out, ExtraFields& extra) {
  ExtraFields unknown;
  Seen seen(cursor, "\"how\"");
  cursor.object([&](std::string_view name) {
    switch (seen.at(k_how, name)) {
      case 0:
        out.strategy = cursor.string();
        break;
      case 1:
        out.warmup = read_int(cursor);
        break;
      case 2:
        out.repeat = read_int(cursor);
        break;
      case 3:
        out.checked = cursor.boolean();
        break;
      case 4:
        out.prepare_seconds = read_not_negative(cursor);
        break;
      case 5:
        out.measure_seconds = read_not_negative(cursor);
        break;
      case 6:
        out.gate = cursor.string();
        break;
      default:
        unknown.set(name, cursor.raw());
    }
  });
  if (!unknown.empty()) extra.set("how", unknown.json());
}

std::vector<RankMedian> read_rank_medians(JsonCursor& cursor) {
  std::vector<RankMedian> out;
  cursor.array([&] {
    std::array<std::int64_t, 2> pair{};
    std::size_t n = 0;
    cursor.array([&] {
      if (n == 2) cursor.fail("expected [rank, nanoseconds]");
      pair[n] = read_count(cursor, n == 0 ? std::numeric_limits<int>::max()
                                          : std::numeric_limits<std::int64_t>::max());
      ++n;
    });
    if (n != 2) cursor.fail("before this: expected [rank, nanoseconds]");
    out.push_back({static_cast<int>(pair[0]), pair[1]});
  });
  return out;
}

constexpr std::array<std::string_view, 10> k_tuning = {
    "deps", "candidates", "winner", "default",      "created",
    "how",  "quality",    "host",   "tool_version", "rank_medians"};

/// Nothing for a tuning under the deps `but`: the rest of it is checked as JSON, not as a tuning.
std::optional<TuningRecord> read_tuning(JsonCursor& cursor, const Value* but) {
  TuningRecord out;
  bool skipped = false;
  ExtraFields extra;
  ExtraFields of_candidates;
  Seen seen(cursor, "a tuning");
  cursor.object([&](std::string_view name) {
    if (skipped) return void(cursor.raw());
    switch (seen.at(k_tuning, name)) {
      case 0:
        out.deps = read_dict(cursor);
        skipped = but != nullptr && out.deps == *but;
        break;
      case 1:
        cursor.array([&] { out.candidates.push_back(read_candidate(cursor, of_candidates)); });
        break;
      case 2:
        out.winner = read_optional<Value>(cursor, read_dict);
        break;
      case 3:
        out.default_config = read_dict(cursor);
        break;
      case 4:
        out.created = cursor.string();
        break;
      case 5:
        read_how(cursor, out, extra);
        break;
      case 6:
        cursor.array([&] { out.quality.push_back(cursor.string()); });
        break;
      case 7:
        out.host = cursor.string();
        break;
      case 8:
        out.tool_version = cursor.string();
        break;
      case 9:
        out.rank_medians = read_rank_medians(cursor);
        break;
      default:
        extra.set(name, cursor.raw());
    }
  });
  if (skipped) return std::nullopt;
  seen.require(k_tuning, 5);
  if (out.winner) {
    const CandidateRecord* winner = find_candidate(out, *out.winner);
    if (winner == nullptr) cursor.fail("before this: the winner is not among the candidates");
    if (winner->status != Status::ok) cursor.fail("before this: the winner's status is not \"ok\"");
  }
  if (!of_candidates.empty()) extra.set("candidates", of_candidates.json());
  out.extra = extra.json();
  return out;
}

constexpr std::array<std::string_view, 3> k_function = {"name", "identity", "module"};

void read_function(JsonCursor& cursor, Record& out, ExtraFields& extra) {
  ExtraFields unknown;
  Seen seen(cursor, "\"function\"");
  cursor.object([&](std::string_view name) {
    switch (seen.at(k_function, name)) {
      case 0:
        out.name = cursor.string();
        break;
      case 1:
        out.key.identity = read_dict(cursor);
        break;
      case 2:
        out.module = cursor.string();
        break;
      default:
        unknown.set(name, cursor.raw());
    }
  });
  seen.require(k_function, 2);
  if (!unknown.empty()) extra.set("function", unknown.json());
}

/// The summary is derived: of it only what is unknown is kept.
void keep_unknown_of_summary(JsonCursor& cursor, ExtraFields& extra) {
  ExtraFields unknown;
  cursor.object([&](std::string_view name) {
    const std::string_view value = cursor.raw();
    const bool known = std::ranges::find(k_summary, name) != k_summary.end() || name == "time" ||
                       name == "shortened";
    if (!known) unknown.set(name, value);
  });
  if (!unknown.empty()) extra.set("summary", unknown.json());
}

constexpr std::array<std::string_view, 9> k_record = {"schema",      "function", "key",
                                                      "hardware",    "group",    "policy",
                                                      "overwritten", "tunings",  "summary"};

Record read_checked(std::string_view json, const Value* but) {
  JsonCursor cursor(json);
  Record out;
  bool any = false;
  ExtraFields extra;
  Seen seen(cursor, "the record");
  cursor.object([&](std::string_view name) {
    switch (seen.at(k_record, name)) {
      case 0:
        read_schema(cursor, extra);
        break;
      case 1:
        read_function(cursor, out, extra);
        break;
      case 2:
        out.key.key = read_value(cursor);
        break;
      case 3:
        out.key.hardware = read_value(cursor);
        break;
      case 4:
        out.key.group = read_value(cursor);
        break;
      case 5:
        out.key.policy = read_dict(cursor);
        break;
      case 6:
        out.key.overwritten = read_value(cursor);
        break;
      case 7:
        cursor.array([&] {
          any = true;
          if (std::optional<TuningRecord> t = read_tuning(cursor, but))
            out.tunings.push_back(std::move(*t));
        });
        break;
      case 8:
        keep_unknown_of_summary(cursor, extra);
        break;
      default:
        extra.set(name, cursor.raw());
    }
  });
  cursor.finish();
  seen.require(k_record, 8);
  if (!any) cursor.fail("the record holds no tuning");
  if (out.tunings.size() > k_most_tunings) out.tunings.resize(k_most_tunings);
  out.extra = extra.json();
  return out;
}

/// Called for a text that is no record of ours: throws OtherFormat when it is whole and belongs to
/// another version or to the original tool, wherever in the text it says so.
void refuse_other_formats(std::string_view json) {
  JsonCursor cursor(json, JsonDialect::python);
  if (cursor.peek() != '{') return;
  std::string_view schema;
  std::array<bool, 3> original{};
  cursor.object([&](std::string_view name) {
    const std::string_view value = cursor.raw();
    if (name == "schema") schema = value;
    if (name == "config") original[0] = true;
    if (name == "deps") original[1] = true;
    if (name == "timestamp") original[2] = true;
  });
  if (!schema.empty()) {
    JsonCursor inner(schema);
    ExtraFields ignored;
    read_schema(inner, ignored);
  } else if (original == std::array{true, true, true}) {
    throw OriginalFormat("a file of the original tool");
  }
}

}  // namespace

Record read_record(std::string_view json) { return read_record_but(json, nullptr); }

Record read_record_but(std::string_view json, const Value* but) {
  if (json.empty()) throw StoreError("the file is empty");
  try {
    return read_checked(json, but);
  } catch (const OtherFormat&) {
    throw;
  } catch (const StoreError&) {
    try {
      refuse_other_formats(json);
    } catch (const OtherFormat&) {
      throw;
    } catch (const StoreError&) {
      // Not JSON at all: what was wrong first says it best.
    }
    throw;
  }
}

const CandidateRecord* find_candidate(const TuningRecord& tuning, const Value& identity) noexcept {
  for (const CandidateRecord& c : tuning.candidates)
    if (c.config.identity() == identity) return &c;
  return nullptr;
}

}  // namespace disttune::store
