#include "core/text.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "core/sha256.hpp"

namespace disttune::core {
namespace {

constexpr std::size_t k_longest_name = 100;
constexpr std::size_t k_name_digest = 12;

struct UtcTime {
  std::tm fields{};
  std::int64_t microseconds = 0;
};

UtcTime utc() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const auto second = floor<seconds>(now);
  const std::time_t t = system_clock::to_time_t(second);
  UtcTime out;
  gmtime_r(&t, &out.fields);
  out.microseconds = duration_cast<microseconds>(now - second).count();
  return out;
}

bool is_safe(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

/// Whether `name` ends like one that safe_name made; such a name must not pass unchanged.
bool looks_digested(std::string_view name) noexcept {
  if (name.size() < k_name_digest + 1) return false;
  const std::string_view end = name.substr(name.size() - k_name_digest - 1);
  return end.front() == '-' &&
         end.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
}

}  // namespace

std::string utc_now() {
  // Every line of a log and every note of a journal asks, hundreds of times within a second.
  thread_local std::time_t last = -1;
  thread_local std::array<char, 32> text{};
  const std::time_t now = std::time(nullptr);
  if (now != last) {
    std::tm t{};
    gmtime_r(&now, &t);
    *fmt::format_to_n(text.data(), text.size() - 1, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                      t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec)
         .out = '\0';
    last = now;
  }
  return text.data();
}

std::string utc_stamp() {
  const auto [t, microseconds] = utc();
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}.{:06}Z", t.tm_year + 1900, t.tm_mon + 1,
                     t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, microseconds);
}

const std::string& host_name() {
  static const std::string& name = *new std::string([] {
    std::array<char, 256> buffer{};
    if (gethostname(buffer.data(), buffer.size() - 1) != 0 || buffer[0] == '\0')
      return std::string("localhost");
    return std::string(buffer.data());
  }());
  return name;
}

std::string safe_name(std::string_view name) {
  std::string out(name.substr(0, k_longest_name));
  std::ranges::replace_if(
      out, [](char c) { return !is_safe(c); }, '_');
  if (out.starts_with('.')) out[0] = '_';
  if (!out.empty() && out == name && !looks_digested(name)) return out;
  out.resize(std::min(out.size(), k_longest_name - k_name_digest - 1));
  return out + '-' + sha256_hex(name).substr(0, k_name_digest);
}

std::string bounded(std::string text) {
  constexpr std::size_t k_longest = 8192;
  constexpr std::size_t k_head = 6000;
  constexpr std::size_t k_tail = 2000;
  if (text.size() <= k_longest) return text;
  const auto continues = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
  };
  std::size_t head = k_head;
  while (head > k_head - 4 && continues(head)) --head;
  std::size_t tail = text.size() - k_tail;
  while (tail < text.size() - k_tail + 4 && continues(tail)) ++tail;
  return fmt::format("{} […{} bytes…] {}", std::string_view(text).substr(0, head), tail - head,
                     std::string_view(text).substr(tail));
}

// Table 3-7 of the Unicode standard: well-formed byte sequences.
bool is_utf8(std::string_view bytes) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (std::size_t i = 0; i < bytes.size();) {
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || i + more >= bytes.size()) return false;
    const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i + 1) < low || byte(i + 1) > high) return false;
    for (std::size_t k = 2; k <= more; ++k)
      if (byte(i + k) < 0x80 || byte(i + k) > 0xbf) return false;
    i += more + 1;
  }
  return true;
}

std::string unreadable_cause(std::string_view root, std::string_view reason) {
  return fmt::format("unreadable {}: {}", root, reason);
}

}  // namespace disttune::core
