// Writing JSON by hand: the order of fields is part of a record's format, and a file is written
// while others wait.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace disttune::store {

/// Appends a quoted JSON text. Bytes that are not UTF-8 (a compiler's message) become U+FFFD, so
/// that what is written can be read.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, std::int64_t value);
/// "[1,2,3]". A record holds thousands of samples, so they are appended by the block.
void append_json(std::string& out, std::span<const std::int64_t> values);
/// Shortest text that reads back to the same double; `null` when it is not finite.
void append_json(std::string& out, double value);

}  // namespace disttune::store
