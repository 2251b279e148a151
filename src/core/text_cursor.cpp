#include "core/text_cursor.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <set>
#include <system_error>

#include "core/text.hpp"
#include "disttune/error.hpp"

namespace disttune::core {
namespace {

bool is_name_byte(char c) noexcept {
  const auto u = static_cast<unsigned char>(c);
  return u > 0x20 && u != 0x7f &&
         std::string_view("()[]{},:=\"'").find(c) == std::string_view::npos;
}

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

bool is_integer(std::string_view token) noexcept {
  if (token == "0") return true;
  if (token.starts_with('-')) token.remove_prefix(1);
  return !token.empty() && token.front() != '0' && std::ranges::all_of(token, is_digit);
}

bool is_float(std::string_view token) {
  double v = 0;
  const char* end = token.data() + token.size();
  const auto [stop, error] = std::from_chars(token.data(), end, v);
  return error == std::errc() && stop == end && float_text(v) == token;
}

/// The value of a lower-case hexadecimal digit, or -1.
int hex_digit(char c) noexcept {
  if (is_digit(c)) return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/// End of the quoted text that starts at `at`; the end of the text when it never closes.
std::size_t skip_quoted(std::string_view text, std::size_t at) noexcept {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\')
      ++at;
    else if (text[at] == '"')
      return at + 1;
  }
  return text.size();
}

/// End of the canonical value that starts at `at`.
std::size_t skip_value(std::string_view text, std::size_t at) noexcept {
  std::size_t depth = 0;
  while (at < text.size()) {
    switch (text[at]) {
      case '"':
        at = skip_quoted(text, at);
        continue;
      case '(':
      case '[':
      case '{':
        ++depth;
        break;
      case ')':
      case ']':
      case '}':
        if (depth == 0) return at;
        --depth;
        break;
      case ',':
      case ':':
        if (depth == 0) return at;
        break;
      default:
        break;
    }
    ++at;
  }
  return text.size();
}

class Parser {
 public:
  explicit Parser(std::string_view text) : m_text(text) {}

  void whole() {
    value();
    if (m_at != m_text.size()) fail("the end of the text");
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const { fail_at(m_at, expected); }
  [[noreturn]] void fail_at(std::size_t at, std::string_view expected) const {
    throw InvalidValue("disttune: not canonical text: at offset " + std::to_string(at) +
                       " expected " + std::string(expected));
  }

  [[nodiscard]] bool at(char c) const noexcept { return m_at < m_text.size() && m_text[m_at] == c; }
  [[nodiscard]] bool accept(std::string_view token) noexcept {
    if (!m_text.substr(m_at).starts_with(token)) return false;
    m_at += token.size();
    return true;
  }
  void expect(std::string_view token, std::string_view what) {
    if (!accept(token)) fail(what);
  }

  std::string_view value() {
    const std::size_t begin = m_at;
    if (at('"')) {
      string();
    } else if (m_text.substr(m_at).starts_with("b\"")) {
      bytes();
    } else if (at('(') || at('[') || at('{')) {
      enter();
      if (accept("("))
        tuple();
      else if (accept("["))
        list();
      else
        dict_or_set();
      --m_depth;
    } else {
      word();
    }
    return m_text.substr(begin, m_at - begin);
  }

  void enter() {
    if (++m_depth > k_max_nesting)
      fail("at most " + std::to_string(k_max_nesting) + " containers inside one another");
  }

  void tuple() {
    if (accept(")")) return;
    value();
    if (accept(",)")) return;
    do {
      expect(", ", "', ' and a second item, or ',)'");
      value();
    } while (!accept(")"));
  }

  void list() {
    if (accept("]")) return;
    value();
    while (!accept("]")) {
      expect(", ", "', ' or ']'");
      value();
    }
  }

  void dict_or_set() {
    ++m_at;  // the brace
    if (accept("}")) return;
    const std::string_view first = value();
    const bool is_dict = accept(": ");
    if (is_dict) value();
    std::string_view last = first;
    while (!accept("}")) {
      expect(", ", "', ' or '}'");
      const std::size_t begin = m_at;
      const std::string_view next = value();
      if (next <= last)
        fail_at(begin, is_dict
                           ? "a key after the one before it in bytewise order of their texts"
                           : "an item after the one before it in bytewise order of their texts");
      if (is_dict) {
        expect(": ", "': ' after a key");
        value();
      }
      last = next;
    }
  }

  /// None, True, False, a number, `set()` or a named value.
  void word() {
    const std::size_t begin = m_at;
    const std::string_view token = name_token();
    if (token.empty()) fail("a value");
    if (at('(')) {
      if (!is_utf8(token)) fail_at(begin, "valid UTF-8");
      enter();
      ++m_at;
      if (!accept(")")) fields();
      --m_depth;
      return;
    }
    if (token == "None" || token == "True" || token == "False" || is_integer(token)) return;
    if (is_float(token)) return;
    m_at = begin;
    fail("a value in its canonical spelling");
  }

  void fields() {
    std::set<std::string_view> names;
    do {
      const std::size_t begin = m_at;
      const std::string_view token = name_token();
      if (!token.empty() && at('=')) {
        if (!is_utf8(token)) fail_at(begin, "valid UTF-8");
        if (!names.insert(token).second) fail_at(begin, "a field name that is not repeated");
        ++m_at;
      } else {
        m_at = begin;
      }
      value();
    } while (accept(", "));
    expect(")", "', ' or ')'");
  }

  std::string_view name_token() noexcept {
    const std::size_t begin = m_at;
    while (m_at < m_text.size() && is_name_byte(m_text[m_at])) ++m_at;
    return m_text.substr(begin, m_at - begin);
  }

  void string() {
    const std::size_t begin = m_at;
    for (++m_at; !at('"'); ++m_at) {
      if (m_at >= m_text.size()) fail("'\"' at the end of a string");
      const auto u = static_cast<unsigned char>(m_text[m_at]);
      if (u < 0x20 || u == 0x7f) fail("an escape for a control character");
      if (u == '\\') string_escape();
    }
    ++m_at;
    if (!is_utf8(m_text.substr(begin, m_at - begin))) fail_at(begin, "a string in valid UTF-8");
  }

  /// Leaves the cursor on the escape's last character.
  void string_escape() {
    const std::size_t begin = m_at++;
    if (at('"') || at('\\') || at('n') || at('r') || at('t')) return;
    if (accept("u00") && m_at + 1 < m_text.size()) {
      const int high = hex_digit(m_text[m_at]);
      const int low = hex_digit(m_text[m_at + 1]);
      const int code = high * 16 + low;
      const bool control =
          (code < 0x20 && code != '\n' && code != '\r' && code != '\t') || code == 0x7f;
      if (high >= 0 && low >= 0 && control) {
        ++m_at;
        return;
      }
    }
    fail_at(begin,
            "one of the escapes \\\" \\\\ \\n \\r \\t, or \\u00xx for another control "
            "character");
  }

  void bytes() {
    m_at += 1;
    for (++m_at; !at('"'); ++m_at) {
      if (m_at >= m_text.size()) fail("'\"' at the end of bytes");
      const auto u = static_cast<unsigned char>(m_text[m_at]);
      if (u < 0x20 || u >= 0x7f) fail("an escape \\xNN for a byte outside printable ASCII");
      if (u == '\\') bytes_escape();
    }
    ++m_at;
  }

  void bytes_escape() {
    const std::size_t begin = m_at++;
    if (at('"') || at('\\')) return;
    if (at('x') && m_at + 2 < m_text.size()) {
      const int high = hex_digit(m_text[m_at + 1]);
      const int low = hex_digit(m_text[m_at + 2]);
      const int code = high * 16 + low;
      if (high >= 0 && low >= 0 && (code < 0x20 || code >= 0x7f)) {
        m_at += 2;
        return;
      }
    }
    fail_at(begin, "one of the escapes \\\" \\\\, or \\xNN for a byte outside printable ASCII");
  }

  std::string_view m_text;
  std::size_t m_at = 0;
  std::size_t m_depth = 0;
};

}  // namespace

std::size_t nesting(std::string_view text) noexcept {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      at = skip_quoted(text, at);
      continue;
    }
    if (c == '(' || c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if ((c == ')' || c == ']' || c == '}') && depth > 0) --depth;
    ++at;
  }
  return deepest;
}

void check_canonical(std::string_view text) { Parser(text).whole(); }

bool is_name(std::string_view name) noexcept {
  return !name.empty() && std::ranges::all_of(name, is_name_byte) && is_utf8(name);
}

std::string float_text(double v) {
  if (std::isnan(v)) return "nan";
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), v).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".eni") == std::string::npos) text += ".0";
  return text;
}

TextCursor::TextCursor(std::string_view text) noexcept
    : m_text(text), m_end(text.empty() ? 0 : text.size() - 1) {
  m_at = std::min(text.find_first_of("([{"), m_end);
  if (m_at < m_end) ++m_at;
}

std::string_view TextCursor::take_field_name() noexcept {
  std::size_t at = m_at;
  while (at < m_end && is_name_byte(m_text[at])) ++at;
  if (at == m_at || at >= m_end || m_text[at] != '=') return {};
  const std::string_view name = m_text.substr(m_at, at - m_at);
  m_at = at + 1;
  return name;
}

std::string_view TextCursor::take_value() noexcept {
  const std::size_t begin = m_at;
  const std::size_t end = std::min(skip_value(m_text, begin), m_end);
  m_after_colon = end < m_end && m_text[end] == ':';
  m_at = std::min(end + 2, m_end);  // ", " or ": "; "(v,)" ends at m_end
  return m_text.substr(begin, end - begin);
}

}  // namespace disttune::core
