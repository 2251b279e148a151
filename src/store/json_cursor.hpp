// A forward-only reader of JSON text that is not trusted.
//
// Records are read with this instead of a document tree for four reasons: unknown fields are kept
// as the very bytes they were, an error names its offset, nesting is bounded before anything
// recurses, and a record of a hundred candidates is read in less time than building a tree takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace disttune::store {

/// What Python's `json` writes beyond the standard: Infinity, -Infinity, NaN, numbers that
/// overflow.
enum class JsonDialect { strict, python };

/// Every function throws StoreError ("offset N: …") at the first byte that does not fit. The text
/// must outlive the cursor.
class JsonCursor {
 public:
  /// Deeper nesting is refused; no record of ours needs more than eight.
  static constexpr int k_max_depth = 64;

  explicit JsonCursor(std::string_view text, JsonDialect dialect = JsonDialect::strict) noexcept
      : m_text(text), m_dialect(dialect) {}

  /// The first byte of the next value; 0 at the end of the text.
  [[nodiscard]] char peek() noexcept {
    while (m_at < m_text.size() && is_blank(m_text[m_at])) ++m_at;
    return m_at < m_text.size() ? m_text[m_at] : '\0';
  }
  [[nodiscard]] std::size_t offset() const noexcept { return m_at; }

  /// Calls `field(name)` for every field; it must consume the field's value.
  template <class F>
  void object(F&& field) {
    enter('{', "an object");
    std::string name;
    for (bool more = !leave_if('}'); more; more = next('}')) {
      name_of_field(name);
      field(std::string_view(name));
    }
    --m_depth;
  }
  /// Calls `item()` for every item; it must consume the item.
  template <class F>
  void array(F&& item) {
    enter('[', "an array");
    for (bool more = !leave_if(']'); more; more = next(']')) item();
    --m_depth;
  }

  [[nodiscard]] std::string string();
  [[nodiscard]] bool boolean();
  void null();
  [[nodiscard]] std::int64_t integer();
  [[nodiscard]] double number();
  /// The text of a number, checked.
  [[nodiscard]] std::string_view number_text();
  /// Any value, its syntax checked, as it is written.
  [[nodiscard]] std::string_view raw();
  /// Nothing but blanks may follow.
  void finish();

  [[noreturn]] void fail(std::string_view what) const;

 private:
  // What every value passes is here, to be inlined.
  [[nodiscard]] static bool is_blank(char c) noexcept {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
  }
  void expect(char c, std::string_view what) {
    if (peek() != c) expected(what);
    ++m_at;
  }
  void enter(char open, std::string_view what) {
    expect(open, what);
    if (++m_depth > k_max_depth) fail("nested too deeply");
  }
  [[nodiscard]] bool leave_if(char close) noexcept {
    if (peek() != close) return false;
    ++m_at;
    return true;
  }
  /// At ',' true, at `close` false.
  [[nodiscard]] bool next(char close) {
    if (leave_if(close)) return false;
    expect(',', close == '}' ? "',' or '}'" : "',' or ']'");
    return true;
  }
  [[noreturn]] void expected(std::string_view what) const;
  void name_of_field(std::string& out);
  void word(std::string_view text);
  /// The bytes between the quotes, checked but not unescaped.
  /// `in_pairs`: half a surrogate pair is refused, since no UTF-8 stands for it.
  [[nodiscard]] std::string_view string_token(bool& escaped, bool in_pairs = true);
  void check_escape(bool in_pairs);
  [[nodiscard]] unsigned hex4();
  void scalar();

  std::string_view m_text;
  std::size_t m_at = 0;
  int m_depth = 0;
  JsonDialect m_dialect;
};

}  // namespace disttune::store
