#include "store/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "core/text.hpp"

namespace disttune::store {
namespace {

/// Length of the valid UTF-8 sequence at the front of `text`; 0 when there is none.
std::size_t sequence_length(std::string_view text) noexcept {
  for (std::size_t n = 1; n <= std::min<std::size_t>(4, text.size()); ++n)
    if (core::is_utf8(text.substr(0, n))) return n;
  return 0;
}

std::string repaired(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t n = sequence_length(text);
    out.append(n == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, n));
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

bool needs_escape(char c) noexcept {
  return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
}
bool is_plain(char c) noexcept { return !needs_escape(c) && static_cast<unsigned char>(c) < 0x80; }

void append_escaped(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const auto plain = static_cast<std::size_t>(
        std::find_if(text.begin(), text.end(), needs_escape) - text.begin());
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const char c = text.front();
    text.remove_prefix(1);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    }
  }
}

}  // namespace

void append_json(std::string& out, std::string_view text) {
  out += '"';
  if (std::all_of(text.begin(), text.end(), is_plain)) {  // nearly every text
    out += text;
  } else if (core::is_utf8(text)) {
    append_escaped(out, text);
  } else {
    append_escaped(out, repaired(text));
  }
  out += '"';
}

void append_json(std::string& out, std::int64_t value) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

void append_json(std::string& out, std::span<const std::int64_t> values) {
  constexpr std::size_t k_longest = 21;  // a sign, 19 digits and a comma
  std::array<char, 32 * k_longest> block;
  char* at = block.data();
  char* const end = at + block.size();
  out += '[';
  for (const std::int64_t value : values) {
    if (end - at < static_cast<std::ptrdiff_t>(k_longest)) {
      out.append(block.data(), at);
      at = block.data();
    }
    at = std::to_chars(at, end, value).ptr;
    *at++ = ',';
  }
  out.append(block.data(), at);
  if (!values.empty()) out.pop_back();
  out += ']';
}

void append_json(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 40> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

}  // namespace disttune::store
