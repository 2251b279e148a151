#include "store/differences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "store/store.hpp"

namespace disttune::store {
namespace {

constexpr std::size_t k_readable = 60;  ///< longer texts are said to have changed, not shown

using Kind = Value::Kind;
using Lines = std::vector<std::string>;

bool is_sequence(const Value& v) { return v.kind() == Kind::tuple || v.kind() == Kind::list; }

bool is_plain(const Value& v) {
  return !is_sequence(v) && v.kind() != Kind::dict && v.kind() != Kind::set;
}

/// Short rows of plain values (shapes, strides) read better as a whole than item by item.
bool reads_whole(const Value& v) {
  if (!is_sequence(v) || v.text().size() > k_readable) return false;
  const std::vector<Value> items = v.items();
  return std::ranges::all_of(items, is_plain);
}

std::string line(const std::string& path, const Value* stored, const Value* now) {
  const auto shown = [](const Value* v) {
    return v == nullptr ? std::string("absent") : std::string(v->text());
  };
  const std::string a = shown(stored);
  const std::string b = shown(now);
  if (a.size() > k_readable || b.size() > k_readable) return path + ": changed";
  return fmt::format("{}: {} → {}", path, a, b);
}

std::string field_path(const std::string& path, const Value& key) {
  if (key.kind() != Kind::string) return fmt::format("{}[{}]", path, key.text());
  return path.empty() ? key.as<std::string>() : path + '.' + key.as<std::string>();
}

/// Entries of a dict, or the fields of a named value, as one map in canonical order.
std::map<Value, Value> fields_of(const Value& v) {
  std::map<Value, Value> out;
  if (v.kind() == Kind::dict) {
    for (auto& [key, value] : v.entries()) out.emplace(std::move(key), std::move(value));
    return out;
  }
  std::int64_t position = 0;
  for (auto& [name, value] : v.fields())
    out.emplace(name.empty() ? Value(position++) : Value(name), std::move(value));
  return out;
}

bool have_fields(const Value& a, const Value& b) {
  if (a.kind() == Kind::dict) return b.kind() == Kind::dict;
  return a.kind() == Kind::named && b.kind() == Kind::named && a.name() == b.name();
}

void compare(const std::string& path, const Value& stored, const Value& now, bool top, Lines& out) {
  if (stored == now) return;
  if (have_fields(stored, now)) {
    const std::map<Value, Value> a = fields_of(stored);
    const std::map<Value, Value> b = fields_of(now);
    for (const auto& [key, value] : a) {
      const auto other = b.find(key);
      if (other == b.end()) {
        out.push_back(line(field_path(path, key), &value, nullptr));
      } else {
        compare(field_path(path, key), value, other->second, path.empty(), out);
      }
    }
    for (const auto& [key, value] : b)
      if (!a.contains(key)) out.push_back(line(field_path(path, key), nullptr, &value));
    return;
  }
  if (is_sequence(stored) && stored.kind() == now.kind() &&
      (top || !reads_whole(stored) || !reads_whole(now))) {
    const std::vector<Value> a = stored.items();
    const std::vector<Value> b = now.items();
    if (a.size() == b.size()) {
      for (std::size_t i = 0; i < a.size(); ++i)
        compare(fmt::format("{}[{}]", path, i), a[i], b[i], false, out);
      return;
    }
  }
  out.push_back(line(path, &stored, &now));
}

/// As `compare`, but what is None or missing on a side is no difference.
void compare_known(const std::string& path, const Value& stored, const Value& now, Lines& out) {
  if (stored == now || stored.kind() == Kind::none || now.kind() == Kind::none) return;
  if (stored.kind() == Kind::dict && now.kind() == Kind::dict) {
    const std::map<Value, Value> b = fields_of(now);
    for (const auto& [key, value] : stored.entries())
      if (const auto other = b.find(key); other != b.end())
        compare_known(field_path(path, key), value, other->second, out);
    return;
  }
  out.push_back(line(path, &stored, &now));
}

}  // namespace

Lines key_differences(const Value& stored, const Value& now) {
  Lines out;
  compare({}, stored, now, false, out);
  return out;
}

Lines deps_differences(const Value& stored, const Value& now) {
  Lines out;
  compare_known({}, stored, now, out);
  return out;
}

}  // namespace disttune::store
