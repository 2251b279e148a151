#include "store/json_cursor.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/text.hpp"
#include "disttune/error.hpp"

namespace disttune::store {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

bool continues_number(char c) noexcept { return c == '.' || c == 'e' || c == 'E'; }

unsigned hex_digit(char c) noexcept {
  if (is_digit(c)) return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return 16;
}

unsigned hex4_of(std::string_view digits) noexcept {
  unsigned value = 0;
  for (const char c : digits.substr(0, 4)) value = value * 16 + hex_digit(c);
  return value;
}

bool is_high_surrogate(unsigned code) noexcept { return code >= 0xd800 && code < 0xdc00; }
bool is_low_surrogate(unsigned code) noexcept { return code >= 0xdc00 && code < 0xe000; }

void append_utf8(std::string& out, unsigned code) {
  const auto byte = [&out](unsigned v) { out += static_cast<char>(static_cast<unsigned char>(v)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

/// `token` has been checked by string_token, so every escape in it is whole.
void unescape(std::string_view token, std::string& out) {
  out.clear();
  out.reserve(token.size());
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '\\') {
      out += token[i];
      continue;
    }
    switch (token[++i]) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'u': {
        unsigned code = hex4_of(token.substr(i + 1));
        i += 4;
        if (is_high_surrogate(code)) {
          code = 0x10000 + ((code - 0xd800) << 10) + (hex4_of(token.substr(i + 3)) - 0xdc00);
          i += 6;
        }
        append_utf8(out, code);
        break;
      }
      default:
        out += token[i];
    }
  }
}

}  // namespace

void JsonCursor::fail(std::string_view what) const {
  throw StoreError(fmt::format("offset {}: {}", m_at, what));
}

void JsonCursor::expected(std::string_view what) const {
  fail(m_at == m_text.size() ? fmt::format("the text ends where {} was expected", what)
                             : fmt::format("expected {}", what));
}

void JsonCursor::name_of_field(std::string& out) {
  if (peek() != '"') fail("expected a field's name");
  bool escaped = false;
  const std::string_view token = string_token(escaped);
  if (escaped) {
    unescape(token, out);
  } else {
    out.assign(token);
  }
  expect(':', "':'");
}

unsigned JsonCursor::hex4() {
  if (m_text.size() - m_at < 4) fail("the text ends inside an escape");
  unsigned value = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = hex_digit(m_text[m_at]);
    if (digit > 15) fail("expected four hexadecimal digits");
    value = value * 16 + digit;
    ++m_at;
  }
  return value;
}

void JsonCursor::check_escape(bool in_pairs) {
  ++m_at;  // the backslash
  if (m_at == m_text.size()) fail("the text ends inside an escape");
  const char c = m_text[m_at];
  if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    ++m_at;
    return;
  }
  if (c != 'u') fail("unknown escape");
  ++m_at;
  const unsigned code = hex4();
  if (!in_pairs) return;
  if (is_low_surrogate(code)) fail("half a surrogate pair");
  if (!is_high_surrogate(code)) return;
  if (m_text.substr(m_at, 2) != "\\u") fail("half a surrogate pair");
  m_at += 2;
  if (!is_low_surrogate(hex4())) fail("half a surrogate pair");
}

std::string_view JsonCursor::string_token(bool& escaped, bool in_pairs) {
  ++m_at;  // the quote, which the caller has seen
  const std::size_t begin = m_at;
  bool beyond_ascii = false;
  while (m_at < m_text.size()) {
    const auto c = static_cast<unsigned char>(m_text[m_at]);
    if (c == '"') {
      const std::string_view token = m_text.substr(begin, m_at - begin);
      if (beyond_ascii && !core::is_utf8(token)) fail("the text before this is not UTF-8");
      ++m_at;
      return token;
    }
    if (c == '\\') {
      escaped = true;
      check_escape(in_pairs);
      continue;
    }
    if (c < 0x20) fail("a control character inside a text");
    if (c >= 0x80) beyond_ascii = true;
    ++m_at;
  }
  fail("the text ends inside a string");
}

std::string JsonCursor::string() {
  if (peek() != '"') fail("expected a text");
  bool escaped = false;
  const std::string_view token = string_token(escaped);
  if (!escaped) return std::string(token);
  std::string out;
  unescape(token, out);
  return out;
}

void JsonCursor::word(std::string_view text) {
  if (m_text.substr(m_at, text.size()) != text) fail(fmt::format("expected {}", text));
  m_at += text.size();
}

bool JsonCursor::boolean() {
  const char c = peek();
  if (c != 't' && c != 'f') fail("expected true or false");
  word(c == 't' ? "true" : "false");
  return c == 't';
}

void JsonCursor::null() {
  (void)peek();
  word("null");
}

std::string_view JsonCursor::number_text() {
  (void)peek();
  const std::size_t begin = m_at;
  const auto digits = [this] {
    if (m_at == m_text.size() || !is_digit(m_text[m_at])) fail("expected a number");
    while (m_at < m_text.size() && is_digit(m_text[m_at])) ++m_at;
  };
  if (m_at < m_text.size() && m_text[m_at] == '-') ++m_at;
  if (m_at < m_text.size() && m_text[m_at] == '0') {
    ++m_at;
  } else {
    digits();
  }
  if (m_at < m_text.size() && m_text[m_at] == '.') {
    ++m_at;
    digits();
  }
  if (m_at < m_text.size() && (m_text[m_at] == 'e' || m_text[m_at] == 'E')) {
    ++m_at;
    if (m_at < m_text.size() && (m_text[m_at] == '+' || m_text[m_at] == '-')) ++m_at;
    digits();
  }
  return m_text.substr(begin, m_at - begin);
}

std::int64_t JsonCursor::integer() {
  const std::string_view token = number_text();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc{} || end != token.data() + token.size())
    fail(fmt::format("expected an integer of 64 bits, not {:.40}", token));
  return value;
}

double JsonCursor::number() {
  if (m_dialect == JsonDialect::python) {
    const char c = peek();
    const bool negative = c == '-' && m_text.substr(m_at + 1, 1) == "I";
    if (c == 'N') {
      word("NaN");
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (c == 'I' || negative) {
      word(negative ? "-Infinity" : "Infinity");
      return (negative ? -1 : 1) * std::numeric_limits<double>::infinity();
    }
  }
  const std::string_view token = number_text();
  double value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error == std::errc::result_out_of_range) {
    if (m_dialect == JsonDialect::strict) fail("a number that no double holds");
    // Python reads what is too large as infinite and what is too small as zero.
    const bool small =
        token.find("e-") != std::string_view::npos || token.find("E-") != std::string_view::npos;
    value = small ? 0 : std::numeric_limits<double>::infinity();
    return token.front() == '-' ? -value : value;
  }
  return value;
}

void JsonCursor::scalar() {
  switch (peek()) {
    case '"': {
      bool escaped = false;
      (void)string_token(escaped, false);
      return;
    }
    case 't':
    case 'f':
      (void)boolean();
      return;
    case 'n':
      null();
      return;
    default: {
      // Most are short integers. What no double holds is a number all the same.
      const std::size_t begin = m_at;
      while (m_at < m_text.size() && is_digit(m_text[m_at])) ++m_at;
      const std::size_t digits = m_at - begin;
      const bool plain = digits == 1 || (digits > 1 && digits < 300 && m_text[begin] != '0');
      if (plain && (m_at == m_text.size() || !continues_number(m_text[m_at]))) return;
      m_at = begin;
      m_dialect == JsonDialect::python ? (void)number() : (void)number_text();
    }
  }
}

std::string_view JsonCursor::raw() {
  (void)peek();
  const std::size_t begin = m_at;
  std::array<char, k_max_depth + 1> closers{};
  int open = 0;
  std::string ignored;
  for (;;) {
    const char c = peek();
    if (c == '{' || c == '[') {
      ++m_at;
      if (m_depth + ++open > k_max_depth) fail("nested too deeply");
      const char closer = c == '{' ? '}' : ']';
      closers[static_cast<std::size_t>(open)] = closer;
      if (leave_if(closer)) {
        --open;
      } else {
        if (c == '{') name_of_field(ignored);
        continue;
      }
    } else {
      scalar();
    }
    while (open > 0 && !next(closers[static_cast<std::size_t>(open)])) --open;
    if (open == 0) return m_text.substr(begin, m_at - begin);
    if (closers[static_cast<std::size_t>(open)] == '}') name_of_field(ignored);
  }
}

void JsonCursor::finish() {
  if (peek() != '\0' || m_at != m_text.size()) fail("something follows the end");
}

}  // namespace disttune::store
