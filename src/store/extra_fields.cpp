#include "store/extra_fields.hpp"

#include <algorithm>

#include "store/json_cursor.hpp"
#include "store/json_text.hpp"

namespace disttune::store {

ExtraFields ExtraFields::parse(std::string_view json) {
  ExtraFields out;
  if (json == "{}") return out;
  JsonCursor cursor(json);
  cursor.object([&](std::string_view name) { out.set(name, cursor.raw()); });
  cursor.finish();
  return out;
}

void ExtraFields::set(std::string_view name, std::string_view json) {
  for (auto& [there, value] : m_fields)
    if (there == name) {
      value = json;
      return;
    }
  m_fields.emplace_back(name, json);
}

std::string_view ExtraFields::find(std::string_view name) const noexcept {
  for (const auto& [there, value] : m_fields)
    if (there == name) return value;
  return {};
}

std::string ExtraFields::json() const {
  std::string out;
  for (const auto& [name, value] : m_fields) append_field(out, name, value);
  if (out.empty()) return "{}";
  out.replace(0, 2, "{");
  return out + '}';
}

void ExtraFields::append_field(std::string& out, std::string_view name, std::string_view json) {
  out += ", ";
  append_json(out, name);
  out += ": ";
  out += json;
}

}  // namespace disttune::store
