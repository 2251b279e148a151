// Small texts that several rooms need: times, hosts, safe file names.
#pragma once

#include <string>
#include <string_view>

namespace disttune::core {

[[nodiscard]] std::string utc_now();           ///< "2026-11-29T19:12:12Z"
[[nodiscard]] std::string utc_stamp();         ///< "20261129T191212.123456Z", for file names
[[nodiscard]] const std::string& host_name();  ///< read once
/// A folder name for any function name: no separators, no leading dot, at most 100 bytes; a name
/// that had to be changed gets a short digest of the original, so that two names never share a
/// folder.
[[nodiscard]] std::string safe_name(std::string_view name);
/// A text of at most 8 KiB: of a longer one the beginning and the end, whole characters.
[[nodiscard]] std::string bounded(std::string text);
/// Whether the bytes are valid UTF-8 (no surrogates, no overlong forms).
[[nodiscard]] bool is_utf8(std::string_view bytes) noexcept;

/// The cause of warnings about a folder of records that cannot be read or logged to: one, whichever
/// of its files is met first.
[[nodiscard]] std::string unreadable_cause(std::string_view root, std::string_view reason);

}  // namespace disttune::core
