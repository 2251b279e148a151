#include "store/record_fields.hpp"

#include <string>

#include "store/record_json.hpp"

namespace disttune::store {

Value read_value(JsonCursor& cursor) {
  const std::string text = cursor.string();
  try {
    return Value::parse(text);
  } catch (const InvalidValue& e) {
    cursor.fail(fmt::format("before this: {}", e.what()));
  }
}

std::int64_t read_count(JsonCursor& cursor, std::int64_t most) {
  const std::int64_t out = cursor.integer();
  if (out < 0 || out > most) cursor.fail(fmt::format("{} is outside 0 … {}", out, most));
  return out;
}

double read_not_negative(JsonCursor& cursor) {
  const double out = cursor.number();
  if (out < 0) cursor.fail("a negative number");
  return out;
}

namespace {
constexpr std::array<std::string_view, 2> k_schema = {"name", "version"};
}  // namespace

void read_schema(JsonCursor& cursor, ExtraFields& extra) {
  ExtraFields unknown;
  std::string schema;
  std::int64_t version = 0;
  Seen seen(cursor, "\"schema\"");
  cursor.object([&](std::string_view name) {
    switch (seen.at(k_schema, name)) {
      case 0:
        schema = cursor.string();
        break;
      case 1:
        version = cursor.integer();
        break;
      default:
        unknown.set(name, cursor.raw());
    }
  });
  seen.require(k_schema, 2);
  if (schema != k_schema_name) cursor.fail(fmt::format("not a record but \"{:.40}\"", schema));
  if (version != k_schema_version)
    throw OtherFormat(fmt::format("version {} of the record format; this is version {}", version,
                                  k_schema_version));
  if (!unknown.empty()) extra.set("schema", unknown.json());
}

}  // namespace disttune::store
