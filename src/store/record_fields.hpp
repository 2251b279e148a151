// Fields of the record format, checked one by one: what reading a whole record and reading the
// beginning of a file share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "disttune/value.hpp"
#include "store/extra_fields.hpp"
#include "store/json_cursor.hpp"

namespace disttune::store {

/// The fields of one object that have been met; a second one of a name is refused.
class Seen {
 public:
  Seen(const JsonCursor& cursor, std::string_view what) : m_cursor(cursor), m_what(what) {}
  /// The position of `name` among `known`, or known.size().
  template <std::size_t N>
  std::size_t at(const std::array<std::string_view, N>& known, std::string_view name) {
    const auto i = static_cast<std::size_t>(std::ranges::find(known, name) - known.begin());
    if (i == N) return N;
    if (m_bits >> i & 1) m_cursor.fail(fmt::format("{} has \"{}\" twice", m_what, name));
    m_bits |= 1U << i;
    return i;
  }
  /// Refuses an object that lacks one of the first `needed` fields.
  template <std::size_t N>
  void require(const std::array<std::string_view, N>& known, std::size_t needed) const {
    for (std::size_t i = 0; i < needed; ++i)
      if (!(m_bits >> i & 1)) m_cursor.fail(fmt::format("{} lacks \"{}\"", m_what, known[i]));
  }

 private:
  const JsonCursor& m_cursor;
  std::string_view m_what;
  unsigned m_bits = 0;
};

template <class T, class F>
std::optional<T> read_optional(JsonCursor& cursor, F&& read) {
  if (cursor.peek() == 'n') {
    cursor.null();
    return std::nullopt;
  }
  return read(cursor);
}

Value read_value(JsonCursor& cursor);
/// 0 … `most`.
std::int64_t read_count(JsonCursor& cursor, std::int64_t most);
double read_not_negative(JsonCursor& cursor);

/// Throws OtherFormat for a version that is not ours.
void read_schema(JsonCursor& cursor, ExtraFields& extra);

inline constexpr std::array<std::string_view, 5> k_summary = {"name", "module", "key", "winner",
                                                              "scores"};

}  // namespace disttune::store
