#include "disttune/value.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

#include "core/text.hpp"
#include "core/text_cursor.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace {

constexpr char k_hex[] = "0123456789abcdef";

/// A text for a message: the value, cut where it gets long.
std::string quoted_for_message(std::string_view text) {
  constexpr std::size_t k_longest = 120;
  if (text.size() <= k_longest) return std::string(text);
  std::size_t cut = k_longest;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
  return std::string(text.substr(0, cut)) + "… (" + std::to_string(text.size()) + " bytes)";
}

std::string_view kind_name(Value::Kind kind) noexcept {
  switch (kind) {
    case Value::Kind::none:
      return "None";
    case Value::Kind::boolean:
      return "a bool";
    case Value::Kind::integer:
      return "an int";
    case Value::Kind::floating:
      return "a float";
    case Value::Kind::string:
      return "a str";
    case Value::Kind::bytes:
      return "bytes";
    case Value::Kind::tuple:
      return "a tuple";
    case Value::Kind::list:
      return "a list";
    case Value::Kind::dict:
      return "a dict";
    case Value::Kind::set:
      return "a set";
    case Value::Kind::named:
      return "a named value";
  }
  return "a value";
}

[[noreturn]] void wrong_kind(const Value& v, std::string_view wanted) {
  throw InvalidValue("disttune: " + quoted_for_message(v.text()) + " is " +
                     std::string(kind_name(v.kind())) + ", not " + std::string(wanted));
}

std::string quote(std::string_view utf8) {
  if (!core::is_utf8(utf8))
    throw InvalidValue(
        "disttune: a string that is not valid Unicode (UTF-8) has no canonical text; pass raw "
        "data as bytes");
  std::string out;
  out.reserve(utf8.size() + 2);
  out += '"';
  for (const char c : utf8) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (u < 0x20 || u == 0x7f) {
      out += "\\u00";
      out += k_hex[u >> 4U];
      out += k_hex[u & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

unsigned char hex_pair(std::string_view two) noexcept {
  unsigned char code = 0;
  std::from_chars(two.data(), two.data() + two.size(), code, 16);
  return code;
}

/// The raw content of canonical quoted text, quotes included in `text`.
std::string unquote(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    switch (text[++i]) {
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'u':  // \u00xx
        out += static_cast<char>(hex_pair(text.substr(i + 3, 2)));
        i += 4;
        break;
      case 'x':
        out += static_cast<char>(hex_pair(text.substr(i + 1, 2)));
        i += 2;
        break;
      default:
        out += text[i];
    }
  }
  return out;
}

/// A container's text, refused when the parser would refuse it for its depth.
Value made(std::string text) {
  // Shorter text cannot hold that many pairs of brackets.
  if (text.size() > 2 * core::k_max_nesting && core::nesting(text) > core::k_max_nesting)
    throw InvalidValue("disttune: more than " + std::to_string(core::k_max_nesting) +
                       " containers inside one another have no canonical text");
  return Value::from_canonical(std::move(text));
}

void append_joined(std::string& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    out += item.text();
  }
}

void check_name(std::string_view name, std::string_view what) {
  if (!core::is_name(name))
    throw InvalidValue("disttune: " + quoted_for_message(name) + " cannot be the name of a " +
                       std::string(what) +
                       ": it is empty, not UTF-8, or has white space, a control character or one "
                       "of ( ) [ ] { } , : = \" '");
}

}  // namespace

Value::Value(double v) : m_text(core::float_text(v)) {}
Value::Value(std::string_view utf8) : m_text(quote(utf8)) {}

Value Value::big_integer(std::string_view decimal) {
  std::string_view digits = decimal;
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos)
    throw InvalidValue("disttune: " + quoted_for_message(decimal) + " is no decimal integer");
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  const bool minus = negative && digits != "0";
  return from_canonical((minus ? "-" : "") + std::string(digits));
}

Value Value::bytes(std::string_view raw) {
  std::string out = "b\"";
  out.reserve(raw.size() + 3);
  for (const char c : raw) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u >= 0x7f) {
      out += "\\x";
      out += k_hex[u >> 4U];
      out += k_hex[u & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
  return from_canonical(std::move(out));
}

Value Value::tuple(const std::vector<Value>& items) {
  std::string out = "(";
  append_joined(out, items);
  out += items.size() == 1 ? ",)" : ")";
  return made(std::move(out));
}

Value Value::list(const std::vector<Value>& items) {
  std::string out = "[";
  append_joined(out, items);
  out += ']';
  return made(std::move(out));
}

Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  std::ranges::sort(items, {}, [](const auto& item) { return item.first.text(); });
  const auto repeated =
      std::ranges::adjacent_find(items, {}, [](const auto& item) { return item.first.text(); });
  if (repeated != items.end())
    throw InvalidValue("disttune: a dict has the key " +
                       quoted_for_message(repeated->first.text()) + " twice");
  std::string out = "{";
  bool first = true;
  for (const auto& [key, value] : items) {
    if (!first) out += ", ";
    first = false;
    out += key.text();
    out += ": ";
    out += value.text();
  }
  out += '}';
  return made(std::move(out));
}

Value Value::set(std::vector<Value> items) {
  if (items.empty()) return from_canonical("set()");
  std::ranges::sort(items);
  // Not std::ranges::unique: clang 14 cannot use the subrange of GCC's library.
  items.erase(std::unique(items.begin(), items.end()), items.end());
  std::string out = "{";
  append_joined(out, items);
  out += '}';
  return made(std::move(out));
}

Value Value::named(std::string_view name,
                   const std::vector<std::pair<std::string, Value>>& fields) {
  check_name(name, "value");
  if (name == "set" && fields.empty())
    throw InvalidValue("disttune: a value named set without fields would read as the empty set");
  std::string out(name);
  out += '(';
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& [field, value] = fields[i];
    if (i > 0) out += ", ";
    if (!field.empty()) {
      check_name(field, "field");
      for (std::size_t j = 0; j < i; ++j)
        if (fields[j].first == field)
          throw InvalidValue("disttune: the value " + std::string(name) + " has the field " +
                             field + " twice");
      out += field;
      out += '=';
    }
    out += value.text();
  }
  out += ')';
  return made(std::move(out));
}

Value Value::parse(std::string_view text) {
  core::check_canonical(text);
  return from_canonical(std::string(text));
}

Value::Kind Value::kind() const noexcept {
  const std::string_view t = m_text;
  if (t.empty() || t == "None") return Kind::none;
  switch (t.front()) {
    case '"':
      return Kind::string;
    case '(':
      return Kind::tuple;
    case '[':
      return Kind::list;
    case '{': {
      if (t == "{}") return Kind::dict;
      core::TextCursor cursor(t);
      static_cast<void>(cursor.take_value());
      return cursor.after_colon() ? Kind::dict : Kind::set;
    }
    default:
      break;
  }
  if (t.starts_with("b\"")) return Kind::bytes;
  if (t == "set()") return Kind::set;
  if (t.ends_with(')')) return Kind::named;
  if (t == "True" || t == "False") return Kind::boolean;
  return t.find_first_of(".eni") == std::string_view::npos ? Kind::integer : Kind::floating;
}

std::vector<Value> Value::items() const {
  const Kind k = kind();
  if (k != Kind::tuple && k != Kind::list && k != Kind::set)
    wrong_kind(*this, "a tuple, list or set");
  std::vector<Value> out;
  for (core::TextCursor cursor(m_text); !cursor.at_end();) {
    const std::string_view item = cursor.take_value();
    if (!item.empty()) out.push_back(from_canonical(std::string(item)));
  }
  return out;
}

std::vector<std::pair<Value, Value>> Value::entries() const {
  if (kind() != Kind::dict) wrong_kind(*this, "a dict");
  std::vector<std::pair<Value, Value>> out;
  for (core::TextCursor cursor(m_text); !cursor.at_end();) {
    const std::string_view key = cursor.take_value();
    const std::string_view value = cursor.take_value();
    out.emplace_back(from_canonical(std::string(key)), from_canonical(std::string(value)));
  }
  return out;
}

std::string_view Value::name() const {
  if (kind() != Kind::named) wrong_kind(*this, "a named value");
  return std::string_view(m_text).substr(0, m_text.find('('));
}

std::vector<std::pair<std::string, Value>> Value::fields() const {
  if (kind() != Kind::named) wrong_kind(*this, "a named value");
  std::vector<std::pair<std::string, Value>> out;
  for (core::TextCursor cursor(m_text); !cursor.at_end();) {
    std::string field(cursor.take_field_name());
    out.emplace_back(std::move(field), from_canonical(std::string(cursor.take_value())));
  }
  return out;
}

namespace {

template <class T>
T number(const Value& v, std::string_view wanted, Value::Kind kind) {
  if (v.kind() != kind) wrong_kind(v, wanted);
  T out{};
  const std::string_view text = v.text();
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || stop != text.data() + text.size())
    throw InvalidValue("disttune: " + quoted_for_message(text) +
                       " does not fit into the type asked for");
  return out;
}

}  // namespace

std::int64_t Value::as_int64() const {
  return number<std::int64_t>(*this, "an int", Kind::integer);
}
std::uint64_t Value::as_uint64() const {
  return number<std::uint64_t>(*this, "an int", Kind::integer);
}
double Value::as_double() const { return number<double>(*this, "a float", Kind::floating); }

std::string Value::as_string() const {
  const Kind k = kind();
  if (k == Kind::string) return unquote(m_text);
  if (k == Kind::bytes) return unquote(std::string_view(m_text).substr(1));
  wrong_kind(*this, "a str or bytes");
}

bool Value::as_bool() const {
  if (kind() != Kind::boolean) wrong_kind(*this, "a bool");
  return m_text == "True";
}

void Value::does_not_fit() const {
  throw InvalidValue("disttune: " + quoted_for_message(m_text) +
                     " does not fit into the type asked for");
}

DISTTUNE_NAMESPACE_END
