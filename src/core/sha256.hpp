// SHA-256 (FIPS 180-4). Small enough to own; file names and digests in handshakes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace disttune::core {

[[nodiscard]] std::array<std::uint8_t, 32> sha256(std::string_view bytes);
[[nodiscard]] std::string sha256_hex(std::string_view bytes);
/// The first eight bytes as a non-negative number, for comparing inside a collective.
[[nodiscard]] std::int64_t sha256_word(std::string_view bytes);

}  // namespace disttune::core
