// The beginning of a record's file: enough to list it.
#include <utility>

#include "store/record_fields.hpp"
#include "store/record_json.hpp"

namespace disttune::store {
namespace {

void read_scores(JsonCursor& cursor, Summary& out) {
  cursor.object([&](std::string_view name) {
    if (name == "winner_ns") {
      out.winner_ns = read_optional<double>(cursor, read_not_negative);
    } else if (name == "default_ns") {
      out.default_ns = read_optional<double>(cursor, read_not_negative);
    } else {
      (void)cursor.raw();
    }
  });
}

/// False when a text had to be shortened.
bool read_summary(JsonCursor& cursor, Summary& out) {
  bool whole = true;
  std::string key;
  std::optional<std::string> winner;
  Seen seen(cursor, "\"summary\"");
  cursor.object([&](std::string_view name) {
    switch (seen.at(k_summary, name)) {
      case 0:
        out.name = cursor.string();
        break;
      case 1:
        out.module = cursor.string();
        break;
      case 2:
        key = cursor.string();
        break;
      case 3:
        winner = read_optional<std::string>(cursor, [](JsonCursor& c) { return c.string(); });
        break;
      case 4:
        read_scores(cursor, out);
        break;
      default:
        if (name == "time") {
          out.created = cursor.string();
        } else {
          if (name == "shortened") whole = false;
          (void)cursor.raw();
        }
    }
  });
  seen.require(k_summary, k_summary.size());
  if (!whole) return false;
  out.key = Value::parse(key);
  if (winner) out.winner = Value::parse(*winner);
  return true;
}

}  // namespace

std::optional<Summary> read_head(std::string_view beginning) {
  JsonCursor cursor(beginning);
  Summary out;
  bool ours = false;
  bool whole = false;
  try {
    cursor.object([&](std::string_view name) {
      ExtraFields ignored;
      if (name == "schema") {
        read_schema(cursor, ignored);
        ours = true;
      } else if (name == "summary") {
        whole = read_summary(cursor, out);
      } else {
        (void)cursor.raw();
      }
    });
  } catch (const Error&) {
    // The beginning of a file is cut somewhere; what counts is what was read before.
  }
  if (ours && whole) return out;
  return std::nullopt;
}

}  // namespace disttune::store
