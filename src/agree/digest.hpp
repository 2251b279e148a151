// A word that stands for a text inside a collective. Equality among ranks is all it is for, so it
// is fast rather than cryptographic: a handshake hashes the whole candidate list.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace disttune::agree {

/// Never INT64_MIN, which means "nothing" in a MAX; nor its complement.
[[nodiscard]] inline std::int64_t digest(std::string_view text) noexcept {
  // Multiply and fold eight bytes at a time (the mixing step of SplitMix64, Steele et al. 2014).
  std::uint64_t h = 0x9E3779B97F4A7C15u ^ text.size();
  const auto mix = [&h](std::uint64_t word) {
    h = (h ^ word) * 0xBF58476D1CE4E5B9u;
    h ^= h >> 29;
    h *= 0x94D049BB133111EBu;
    h ^= h >> 32;
  };
  while (text.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data(), 8);
    mix(word);
    text.remove_prefix(8);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, text.data(), text.size());
  mix(rest);
  return static_cast<std::int64_t>(h >> 1);
}

}  // namespace disttune::agree
