// Reading canonical text: the strict parser behind Value::parse, and the quick walk over text that
// is known to be canonical (a Value's own).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace disttune::core {

/// Containers inside containers, at most. Bounds the parser's recursion on hostile text.
inline constexpr std::size_t k_max_nesting = 200;

/// How deep containers nest: 0 for a scalar, 1 for `[1]`. `text` is canonical.
[[nodiscard]] std::size_t nesting(std::string_view text) noexcept;

/// Throws InvalidValue with the offset unless `text` is exactly one canonical value.
void check_canonical(std::string_view text);

/// Whether `name` may name a value or a field.
[[nodiscard]] bool is_name(std::string_view name) noexcept;

/// The shortest text that reads back to `v`, never one that looks like an integer.
[[nodiscard]] std::string float_text(double v);

/// Walks over the inside of one canonical container. Trusts the text; on text that is not
/// canonical it ends early, but stays within it.
class TextCursor {
 public:
  /// `text` is a whole container or named value; the cursor stands at its first item.
  explicit TextCursor(std::string_view text) noexcept;
  [[nodiscard]] bool at_end() const noexcept { return m_at >= m_end; }
  /// `field=` before a named value's item; empty when it is positional.
  [[nodiscard]] std::string_view take_field_name() noexcept;
  /// The next item; steps over what separates it from the one after.
  [[nodiscard]] std::string_view take_value() noexcept;
  /// Whether the value just taken was followed by ": ".
  [[nodiscard]] bool after_colon() const noexcept { return m_after_colon; }

 private:
  std::string_view m_text;
  std::size_t m_at = 0;
  std::size_t m_end = 0;
  bool m_after_colon = false;
};

}  // namespace disttune::core
