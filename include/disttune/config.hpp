// Configurations and configuration spaces: the user's own struct with `tuned` fields, or `Config`,
// an ordered list of named values for spaces that are read at run time.
#pragma once

#include <bitset>
#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "disttune/value.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// One candidate: named values. The order is kept for display; the identity ignores it.
class Config {
 public:
  Config() = default;
  Config(std::initializer_list<std::pair<std::string, Value>> entries) : Config(of(entries)) {}
  /// All at once, in less time than one by one; std::invalid_argument when two names are equal.
  [[nodiscard]] static Config of(std::vector<std::pair<std::string, Value>> entries);

  /// Adds a value; std::invalid_argument when the name is there already.
  void set(std::string name, Value value);
  [[nodiscard]] const std::vector<std::pair<std::string, Value>>& entries() const noexcept {
    return m_entries;
  }
  [[nodiscard]] const Value* find(std::string_view name) const noexcept;
  /// Throws Error naming what there is when `name` is missing, InvalidValue when its type differs.
  template <class T>
  [[nodiscard]] T get(std::string_view name) const {
    return at(name).template as<T>();
  }
  [[nodiscard]] const Value& at(std::string_view name) const;

  /// Canonical text of the dict name → value: who this candidate is, in every list and record.
  [[nodiscard]] const Value& identity() const noexcept { return m_identity; }
  /// `BLOCK=256, WARPS=4` in the given order, for people.
  [[nodiscard]] std::string display() const;

  friend bool operator==(const Config& a, const Config& b) noexcept {
    return a.m_identity == b.m_identity;
  }

 private:
  void identify();
  std::vector<std::pair<std::string, Value>> m_entries;
  Value m_identity = Value::from_canonical("{}");
};

template <class C, class M>
struct Field {
  std::string_view name;
  M C::*member;
};
/// Names a member of a configuration struct as Python and the store call it.
template <class C, class M>
[[nodiscard]] constexpr Field<C, M> field(std::string_view name, M C::*member) {
  return {name, member};
}
template <class... F>
[[nodiscard]] constexpr std::tuple<F...> fields(F... f) {
  return {f...};
}

template <class C>
concept TypedConfig = detail::WithFields<C>;
template <class C>
concept AnyConfig = TypedConfig<C> || std::same_as<C, Config>;

[[nodiscard]] inline const Config& to_config(const Config& c) { return c; }
template <TypedConfig C>
[[nodiscard]] Config to_config(const C& c) {
  std::vector<std::pair<std::string, Value>> entries;
  std::apply([&](auto... f) { (entries.emplace_back(f.name, describe(c.*(f.member))), ...); },
             C::tuned);
  return Config::of(std::move(entries));
}

namespace detail {
template <class C>
consteval std::size_t field_count() {
  if constexpr (TypedConfig<C>)
    return std::tuple_size_v<std::remove_cvref_t<decltype(C::tuned)>>;
  else
    return 0;  // Config: an entry has the fields that it names
}
}  // namespace detail

/// The ordered list of candidates; entry 0 is the default. Value semantics; not thread-safe to
/// modify, free to read from many threads.
template <AnyConfig C>
class Space {
 public:
  using Fields = std::bitset<detail::field_count<C>()>;
  /// `set` marks the fields that a grid gave, so that a product knows whose value counts.
  struct Entry {
    C value{};
    Fields set;
  };

  Space() = default;
  Space(std::initializer_list<C> list) {
    for (const C& c : list) m_entries.push_back({c, Fields{}.set()});
  }
  explicit Space(const std::vector<C>& list) {
    for (const C& c : list) m_entries.push_back({c, Fields{}.set()});
  }
  explicit Space(std::vector<Entry> entries) : m_entries(std::move(entries)) {}

  /// Keeps the entries that `keep` accepts.
  template <std::predicate<const C&> P>
  [[nodiscard]] Space where(P keep) const {
    Space out;
    for (const Entry& e : m_entries)
      if (keep(e.value)) out.m_entries.push_back(e);
    return out;
  }

  [[nodiscard]] std::size_t size() const noexcept { return m_entries.size(); }
  [[nodiscard]] bool empty() const noexcept { return m_entries.empty(); }
  [[nodiscard]] const C& operator[](std::size_t i) const noexcept { return m_entries[i].value; }

  /// Every pair of entries, the left one varying slowest. std::invalid_argument when both sides
  /// give the same field.
  friend Space operator*(const Space& a, const Space& b) {
    std::vector<Entry> out;
    out.reserve(a.m_entries.size() * b.m_entries.size());
    for (const Entry& x : a.m_entries)
      for (const Entry& y : b.m_entries) out.push_back(merge(x, y));
    return Space(std::move(out));
  }
  /// Both lists, `a` first. Equal entries stay; they are timed once.
  friend Space operator+(Space a, const Space& b) {
    a.m_entries.insert(a.m_entries.end(), b.m_entries.begin(), b.m_entries.end());
    return a;
  }

 private:
  static Entry merge(const Entry& x, const Entry& y) {
    Entry out = x;
    if constexpr (TypedConfig<C>) {
      if ((x.set & y.set).any())
        throw std::invalid_argument(
            "disttune: a product of spaces gives the same field on both sides");
      std::size_t i = 0;
      std::apply(
          [&](auto... f) {
            ((y.set[i++] ? void(out.value.*(f.member) = y.value.*(f.member)) : void()), ...);
          },
          C::tuned);
      out.set |= y.set;
    } else {
      for (const auto& [name, value] : y.value.entries()) out.value.set(name, value);
    }
    return out;
  }
  std::vector<Entry> m_entries;
};

/// One field's values, the others at their defaults; combine with `*`, `+` and `where`.
template <TypedConfig C, class M>
[[nodiscard]] Space<C> grid(M C::*member, std::initializer_list<std::type_identity_t<M>> values) {
  typename Space<C>::Fields given;
  std::size_t i = 0;
  std::apply(
      [&](auto... f) {
        (
            [&](auto g) {
              if constexpr (std::convertible_to<decltype(g.member), M C::*>)
                if (static_cast<M C::*>(g.member) == member) given.set(i);
              ++i;
            }(f),
            ...);
      },
      C::tuned);
  if (given.none())
    throw std::invalid_argument("disttune: grid() on a member that `tuned` does not name");
  std::vector<typename Space<C>::Entry> out;
  for (const M& v : values) {
    typename Space<C>::Entry e;
    e.value.*member = v;
    e.set = given;
    out.push_back(std::move(e));
  }
  return Space<C>(std::move(out));
}
/// The same for a member that the configuration inherits: `grid<C>(&C::member, …)`.
template <TypedConfig C, class M, class B>
requires(std::derived_from<C, B> && !std::same_as<C, B>)
    [[nodiscard]] Space<C> grid(M B::*member,
                                std::initializer_list<std::type_identity_t<M>> values) {
  return grid<C, M>(static_cast<M C::*>(member), values);
}
/// The same for spaces that are made at run time.
[[nodiscard]] Space<Config> grid(std::string_view name, const std::vector<Value>& values);

/// Calls `f` with the one of the constants `V, Vs…` that equals `v`, as a std::integral_constant,
/// so that a run-time value becomes a template argument. Throws Error for any other value.
template <auto V, auto... Vs, class F>
decltype(auto) with_constant(decltype(V) v, F&& f) {
  if (v == V) return f(std::integral_constant<decltype(V), V>{});
  if constexpr (sizeof...(Vs) > 0) {
    return with_constant<Vs...>(v, std::forward<F>(f));
  } else {
    throw Error("disttune: with_constant: the value is not one of the compiled ones");
  }
}

DISTTUNE_NAMESPACE_END
