// A value is its canonical text: one spelling a value, the same from C++ and Python, on every
// platform and in every process. Equality, order and hash are those of the text.
//
// Grammar (UTF-8, no white space but the single blanks shown):
//
//   value  = None | True | False | int | float | str | bytes | tuple | list | dict | set | named
//   int    = "0" | ["-"] digit1-9 *digit, of any size
//   float  = the shortest text that reads back to the same double, always with one of ". e n i":
//            1.0  -0.0  1e+16  nan  inf  -inf; every NaN is `nan`
//   str    = '"' chars '"', valid UTF-8; escapes \" \\ \n \r \t, and \u00xx for the other control
//            characters (below 0x20, and 0x7f)
//   bytes  = b"…": printable ASCII as is, \" \\, and \xNN for the rest
//   tuple  = () | (v,) | (v, v)
//   list   = [] | [v, v]
//   dict   = {} | {k: v, k: v}, in bytewise order of the keys' texts, keys distinct
//   set    = set() | {v, v}, in bytewise order of the items' texts, items distinct
//   named  = name() | name(v, v) | name(field=v, v); fields keep the order they were given, and
//            their names are distinct
//   name   = one or more bytes of UTF-8, none of them white space, control, or one of
//            ( ) [ ] { } , : = " '; `set()` is the empty set, so no value without fields has that
//            name
//
// Hexadecimal digits are lower case. Containers and named values nest at most 200 deep.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "disttune/error.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

class TextWriter;

/// An immutable value in canonical text. Thread-safe like `const std::string`.
class Value {
 public:
  enum class Kind {
    none,
    boolean,
    integer,
    floating,
    string,
    bytes,
    tuple,
    list,
    dict,
    set,
    named
  };

  Value() : m_text("None") {}  ///< `None`
  Value(std::nullptr_t) : Value() {}
  Value(std::same_as<bool> auto v) : m_text(v ? "True" : "False") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T v) : m_text(std::to_string(v)) {}
  Value(double v);
  Value(std::string_view utf8);  ///< throws InvalidValue when not valid Unicode (UTF-8)
  Value(const char* utf8) : Value(std::string_view(utf8)) {}
  Value(const std::string& utf8) : Value(std::string_view(utf8)) {}

  static Value big_integer(std::string_view decimal);  ///< `-?[0-9]+`, any size
  static Value bytes(std::string_view raw);
  static Value tuple(const std::vector<Value>& items);
  static Value list(const std::vector<Value>& items);
  static Value dict(std::vector<std::pair<Value, Value>> items);  ///< throws on a repeated key
  static Value set(std::vector<Value> items);                     ///< repeated items are one
  /// A field with an empty name is positional.
  static Value named(std::string_view name,
                     const std::vector<std::pair<std::string, Value>>& fields = {});

  /// Reads exactly one canonical value; throws InvalidValue (with the offset) for anything else,
  /// also for a valid value in a spelling that is not canonical. Nesting is limited to 200.
  static Value parse(std::string_view text);
  /// Takes text that is known to be canonical (a writer's output). Not checked.
  static Value from_canonical(std::string text) { return Value(Raw{}, std::move(text)); }

  [[nodiscard]] std::string_view text() const noexcept { return m_text; }
  [[nodiscard]] Kind kind() const noexcept;
  /// bool, any integer type, float, double, std::string (of a str or bytes). Throws InvalidValue
  /// naming the text when the kind differs or the number does not fit. No conversions: 1 is no
  /// bool.
  template <class T>
  [[nodiscard]] T as() const;
  /// Items of a tuple, list or set; throws InvalidValue for other kinds.
  [[nodiscard]] std::vector<Value> items() const;
  /// Entries of a dict in canonical order; throws InvalidValue for other kinds.
  [[nodiscard]] std::vector<std::pair<Value, Value>> entries() const;
  /// Name of a named value; throws InvalidValue for other kinds.
  [[nodiscard]] std::string_view name() const;
  /// Fields of a named value (empty name: positional); throws InvalidValue for other kinds.
  [[nodiscard]] std::vector<std::pair<std::string, Value>> fields() const;

  friend bool operator==(const Value&, const Value&) = default;
  friend auto operator<=>(const Value&, const Value&) = default;

 private:
  struct Raw {};
  Value(Raw, std::string text) : m_text(std::move(text)) {}
  [[nodiscard]] std::int64_t as_int64() const;
  [[nodiscard]] std::uint64_t as_uint64() const;
  [[nodiscard]] double as_double() const;
  [[nodiscard]] std::string as_string() const;
  [[nodiscard]] bool as_bool() const;
  [[noreturn]] void does_not_fit() const;
  std::string m_text;
};

/// `torch.float16` and its like: an object of another library that is known by its name alone.
[[nodiscard]] inline Value named(std::string_view name) { return Value::named(name); }

/// Writes one canonical value piece by piece; for `disttune_describe` overloads of user types.
/// Not thread-safe. Every misuse (an unclosed container, a dict key without a value) throws
/// std::logic_error.
class TextWriter {
 public:
  TextWriter();
  ~TextWriter();
  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;

  void value(const Value& v);
  void begin_tuple();
  void begin_list();
  void begin_dict();  ///< then key, value, key, value …
  void begin_set();
  void begin_named(std::string_view name);
  void field(std::string_view name);  ///< names the next value inside a named value
  void end();                         ///< closes the innermost container
  [[nodiscard]] Value take();         ///< the finished value; the writer is empty again

 private:
  struct Frame;
  std::vector<Frame> m_frames;
  std::optional<Value> m_result;
};

namespace detail {
template <class T>
concept Describable = requires(TextWriter& w, const T& v) {
  disttune_describe(w, v);
};
template <class T>
concept WithFields = requires {
  T::tuned;
  std::tuple_size<std::remove_cvref_t<decltype(T::tuned)>>::value;
};
template <class T>
struct is_tuple : std::false_type {};
template <class... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct is_tuple<std::pair<A, B>> : std::true_type {};
template <class T>
struct is_vector : std::false_type {};
template <class T, class A>
struct is_vector<std::vector<T, A>> : std::true_type {};
}  // namespace detail

/// The canonical value of a C++ object: arithmetic types, enums (as their integer), text, tuples
/// and pairs (tuple), vectors (list), structs with `tuned` (dict), user types with
/// `void disttune_describe(disttune::TextWriter&, const T&)` found by argument-dependent look-up.
template <class T>
[[nodiscard]] Value describe(const T& v) {
  if constexpr (std::same_as<T, Value>) {
    return v;
  } else if constexpr (detail::Describable<T>) {
    TextWriter w;
    disttune_describe(w, v);
    return w.take();
  } else if constexpr (std::is_enum_v<T>) {
    return Value(static_cast<std::underlying_type_t<T>>(v));
  } else if constexpr (std::is_floating_point_v<T>) {
    return Value(static_cast<double>(v));
  } else if constexpr (std::integral<T> || std::same_as<T, std::nullptr_t>) {
    return Value(v);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return Value(std::string_view(v));
  } else if constexpr (detail::WithFields<T>) {
    std::vector<std::pair<Value, Value>> entries;
    std::apply(
        [&](auto... f) { (entries.emplace_back(Value(f.name), describe(v.*(f.member))), ...); },
        T::tuned);
    return Value::dict(std::move(entries));
  } else if constexpr (detail::is_tuple<T>::value) {
    std::vector<Value> items;
    std::apply([&](const auto&... e) { (items.push_back(describe(e)), ...); }, v);
    return Value::tuple(items);
  } else if constexpr (detail::is_vector<T>::value) {
    std::vector<Value> items;
    // The cast turns the proxies of std::vector<bool> into what they stand for.
    for (const auto& e : v)
      items.push_back(describe(static_cast<const typename T::value_type&>(e)));
    return Value::list(items);
  } else {
    static_assert(sizeof(T) == 0,
                  "disttune: no canonical text for this type; give it a static constexpr member "
                  "`tuned` or a function void disttune_describe(disttune::TextWriter&, const T&)");
  }
}

template <class T>
T Value::as() const {
  if constexpr (std::same_as<T, bool>) {
    return as_bool();
  } else if constexpr (std::same_as<T, std::string>) {
    return as_string();
  } else if constexpr (std::is_floating_point_v<T>) {
    const double v = as_double();
    if (v - v == 0 && (v > std::numeric_limits<T>::max() || v < std::numeric_limits<T>::lowest()))
      does_not_fit();
    return static_cast<T>(v);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(as<std::underlying_type_t<T>>());
  } else if constexpr (std::unsigned_integral<T>) {
    const std::uint64_t v = as_uint64();
    if (static_cast<T>(v) != v) does_not_fit();
    return static_cast<T>(v);
  } else {
    static_assert(std::signed_integral<T>,
                  "disttune: Value::as<T>: bool, numbers, enums, std::string");
    const std::int64_t v = as_int64();
    if (static_cast<T>(v) != v) does_not_fit();
    return static_cast<T>(v);
  }
}

DISTTUNE_NAMESPACE_END

template <>
struct std::hash<disttune::Value> {
  std::size_t operator()(const disttune::Value& v) const noexcept {
    return std::hash<std::string_view>{}(v.text());
  }
};
