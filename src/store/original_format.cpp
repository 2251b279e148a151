#include "store/original_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "disttune/error.hpp"
#include "store/atomic_file.hpp"
#include "store/json_cursor.hpp"
#include "store/place.hpp"
#include "store/record_json.hpp"
#include "store/store.hpp"

namespace disttune::store {
namespace {

constexpr double k_infinite = std::numeric_limits<double>::infinity();

Value read_any(JsonCursor& cursor);

using Fields = std::vector<std::pair<std::string, Value>>;

/// Of two fields of one name the last counts, as in Python.
void add_field(Fields& fields, std::string_view name, Value value) {
  const auto same = std::ranges::find(fields, name, &Fields::value_type::first);
  if (same == fields.end()) {
    fields.emplace_back(name, std::move(value));
  } else {
    same->second = std::move(value);
  }
}

Fields read_fields(JsonCursor& cursor) {
  Fields out;
  cursor.object([&](std::string_view name) { add_field(out, name, read_any(cursor)); });
  return out;
}

Value dict_of(const Fields& fields) {
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(fields.size());
  for (const auto& [name, value] : fields) entries.emplace_back(Value(name), value);
  return Value::dict(std::move(entries));
}

/// Names come from the file, and not every text is a name.
template <class F>
Value named_or(F&& make, Value otherwise) {
  try {
    return make();
  } catch (const InvalidValue&) {
    return otherwise;
  } catch (const std::invalid_argument&) {
    return otherwise;
  }
}

Value read_object(JsonCursor& cursor) {
  Fields fields;
  std::optional<Fields> attributes;  // of a triton.Config, in the order written
  cursor.object([&](std::string_view name) {
    if (name == "__triton_config__" && cursor.peek() == '{') {
      attributes = read_fields(cursor);
      add_field(fields, name, dict_of(*attributes));
    } else {
      add_field(fields, name, read_any(cursor));
    }
  });
  Value plain = dict_of(fields);
  if (fields.size() != 1) return plain;
  if (attributes)
    return named_or([&] { return Value::named("triton.Config", *attributes); }, plain);
  const Value& content = fields.front().second;
  if (fields.front().first != "__torch_dtype__" || content.kind() != Value::Kind::string)
    return plain;
  return named_or([&] { return Value::named(content.as<std::string>()); }, plain);
}

Value read_number(JsonCursor& cursor) {
  const std::string_view text = cursor.raw();
  if (text.find_first_of(".eEIN") != std::string_view::npos)
    return Value(JsonCursor(text, JsonDialect::python).number());
  return text == "-0" ? Value(0) : Value::big_integer(text);
}

Value read_any(JsonCursor& cursor) {
  switch (cursor.peek()) {
    case '{':
      return read_object(cursor);
    case '[': {
      std::vector<Value> items;
      cursor.array([&] { items.push_back(read_any(cursor)); });
      return Value::list(items);
    }
    case '"':
      return Value(cursor.string());
    case 't':
    case 'f':
      return Value(cursor.boolean());
    case 'n':
      cursor.null();
      return Value();
    default:
      return read_number(cursor);
  }
}

std::pair<double, Config> read_candidate(JsonCursor& cursor) {
  std::pair<double, Config> out{k_infinite, {}};
  int n = 0;
  cursor.array([&] {
    if (n == 0) {
      out.first = cursor.number();
    } else if (n == 1) {
      for (auto& [name, value] : read_fields(cursor)) out.second.set(name, value);
    } else {
      cursor.fail("expected [milliseconds, candidate]");
    }
    ++n;
  });
  if (n != 2) cursor.fail("before this: expected [milliseconds, candidate]");
  if (std::isnan(out.first)) out.first = k_infinite;
  if (out.first < 0) cursor.fail("before this: a negative time");
  return out;
}

/// "2026-11-29T19:12:12Z" → "2026-11-29_19_12_12".
std::string original_stamp(std::string created) {
  std::erase(created, 'Z');
  std::ranges::replace_if(
      created, [](char c) { return c == 'T' || c == ':'; }, '_');
  return created;
}

}  // namespace

OriginalForm read_original(std::string_view json) {
  JsonCursor cursor(json, JsonDialect::python);
  OriginalForm out;
  bool config = false;
  bool deps = false;
  bool key = false;
  cursor.object([&](std::string_view name) {
    if (name == "config") {
      config = true;
      out.config.clear();
      cursor.array([&] { out.config.push_back(read_candidate(cursor)); });
    } else if (name == "deps") {
      deps = true;
      out.deps = read_any(cursor);
    } else if (name == "key") {
      key = true;
      out.key = read_any(cursor);
    } else if (name == "func") {
      out.func = cursor.string();
    } else if (name == "timestamp") {
      out.timestamp = cursor.string();
    } else {
      (void)cursor.raw();
    }
  });
  cursor.finish();
  if (!config || !deps || !key)
    throw StoreError("not a file of the original tool: \"config\", \"deps\" or \"key\" is missing");
  if (out.config.empty()) throw StoreError("the list of candidates is empty");
  std::ranges::stable_sort(out.config, {}, &std::pair<double, Config>::first);
  return out;
}

OriginalForm to_original(const Record& record, const TuningRecord& tuning) {
  OriginalForm out;
  out.deps = tuning.deps;
  out.key = record.key.key;
  out.func = record.name;
  out.timestamp = original_stamp(tuning.created);
  const auto is_winner = [&](const std::pair<double, Config>& c) {
    return tuning.winner && c.second.identity() == *tuning.winner;
  };
  for (const CandidateRecord& c : tuning.candidates) {
    const bool timed = c.status == Status::ok && c.score_ns;
    out.config.emplace_back(timed ? *c.score_ns / 1e6 : k_infinite, c.config);
  }
  // Of equal times the winner is the one that was chosen.
  std::ranges::stable_sort(out.config, [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    return is_winner(a) && !is_winner(b);
  });
  return out;
}

namespace {

OriginalForm read_either(std::string_view json) {
  try {
    const Record record = read_record(json);
    return to_original(record, record.tunings.front());
  } catch (const OriginalFormat&) {
    return read_original(json);
  }
}

}  // namespace

OriginalForm load_original_form(const std::filesystem::path& file) {
  const FileContent content = read_file(file, k_largest_record);
  if (content.state != FileState::read)
    throw StoreError(fmt::format("{}: {}", file.string(), content.reason));
  try {
    return read_either(content.text);
  } catch (const Error& e) {
    throw StoreError(fmt::format("{}: {}", file.string(), e.what()));
  }
}

}  // namespace disttune::store
