#include "disttune/config.hpp"

#include <algorithm>

DISTTUNE_NAMESPACE_BEGIN

// NOLINTNEXTLINE(performance-unnecessary-value-param): its parts are moved from
Config Config::of(std::vector<std::pair<std::string, Value>> entries) {
  Config out;
  out.m_entries.reserve(entries.size());
  for (auto& [name, value] : entries) {
    if (out.find(name) != nullptr)
      throw std::invalid_argument("disttune: the configuration has the name '" + name +
                                  "' already");
    out.m_entries.emplace_back(std::move(name), std::move(value));
  }
  out.identify();
  return out;
}

void Config::set(std::string name, Value value) {
  std::vector<std::pair<std::string, Value>> entries = m_entries;
  entries.emplace_back(std::move(name), std::move(value));
  *this = of(std::move(entries));
}

void Config::identify() {
  std::vector<std::pair<Value, Value>> items;
  items.reserve(m_entries.size());
  for (const auto& [name, value] : m_entries) items.emplace_back(name, value);
  m_identity = Value::dict(std::move(items));
}

const Value* Config::find(std::string_view name) const noexcept {
  const auto it = std::ranges::find(m_entries, name, &std::pair<std::string, Value>::first);
  return it == m_entries.end() ? nullptr : &it->second;
}

const Value& Config::at(std::string_view name) const {
  if (const Value* found = find(name)) return *found;
  std::string names;
  for (const auto& [n, v] : m_entries) names += (names.empty() ? "" : ", ") + n;
  throw Error("disttune: the configuration has no '" + std::string(name) + "'; it has " +
              (names.empty() ? "nothing" : names));
}

std::string Config::display() const {
  std::string out;
  for (const auto& [name, value] : m_entries) {
    if (!out.empty()) out += ", ";
    out += name;
    out += '=';
    out += value.text();
  }
  return out;
}

Space<Config> grid(std::string_view name, const std::vector<Value>& values) {
  std::vector<Config> list;
  list.reserve(values.size());
  for (const Value& value : values) list.push_back(Config{{std::string(name), value}});
  return Space<Config>(list);
}

DISTTUNE_NAMESPACE_END
