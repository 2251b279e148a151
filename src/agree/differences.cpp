#include "agree/differences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "disttune/value.hpp"

namespace disttune::agree {

namespace {

constexpr std::size_t k_named_entries = 3;

std::optional<Value> parsed(std::string_view text) {
  try {
    return Value::parse(text);
  } catch (const InvalidValue&) {
    return std::nullopt;  // a name, or a text that was cut
  }
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), k_named_entries); ++i)
    text += (i == 0 ? "" : ", ") + lines[i];
  if (lines.size() > k_named_entries)
    text += fmt::format(" and {} more", lines.size() - k_named_entries);
  return text;
}

std::string dict_differences(const Value& a, const Value& b) {
  std::unordered_map<Value, Value> theirs;
  for (auto& [name, value] : b.entries()) theirs.emplace(name, value);
  std::vector<std::string> lines;
  for (const auto& [name, value] : a.entries()) {
    const auto at = theirs.find(name);
    if (at == theirs.end())
      lines.push_back(fmt::format("{}: {} | nothing", name.text(), shortened(value.text(), 80)));
    else if (at->second != value)
      lines.push_back(fmt::format("{}: {} | {}", name.text(), shortened(value.text(), 80),
                                  shortened(at->second.text(), 80)));
    if (at != theirs.end()) theirs.erase(at);
  }
  for (const auto& [name, value] : b.entries())
    if (theirs.contains(name))
      lines.push_back(fmt::format("{}: nothing | {}", name.text(), shortened(value.text(), 80)));
  return joined(lines);
}

std::string only_in(const std::vector<Value>& a, const std::vector<Value>& b) {
  const std::unordered_set<Value> others(b.begin(), b.end());
  std::vector<std::string> lines;
  for (const Value& v : a)
    if (!others.contains(v)) lines.push_back(shortened(v.text(), 80));
  return joined(lines);
}

std::string list_differences(const Value& a, const Value& b) {
  const auto ours = a.items();
  const auto theirs = b.items();
  const std::string left = only_in(ours, theirs);
  const std::string right = only_in(theirs, ours);
  if (left.empty() && right.empty())
    return ours.size() == theirs.size() ? "the same entries in another order"
                                        : "the same entries, some of them repeated";
  std::string text = fmt::format("their entries, {} | {}", ours.size(), theirs.size());
  if (!left.empty()) text += "; only in the first: " + left;
  if (!right.empty()) text += "; only in the second: " + right;
  return text;
}

}  // namespace

std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  std::size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;
  return std::string(text.substr(0, end)) + "…";
}

std::string differences(std::string_view a, std::string_view b) {
  const auto left = parsed(a);
  const auto right = parsed(b);
  if (!left || !right || left->kind() != right->kind()) return {};
  switch (left->kind()) {
    case Value::Kind::dict:
      return dict_differences(*left, *right);
    case Value::Kind::list:
    case Value::Kind::tuple:
      return list_differences(*left, *right);
    default:
      return {};
  }
}

}  // namespace disttune::agree
