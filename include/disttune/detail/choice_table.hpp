// Decided choices of one launcher. Readers take no lock, write nothing shared and allocate nothing;
// one writer at a time.
#pragma once

#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "disttune/value.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

/// One multiplication, both halves folded: enough for tables, never persisted.
[[nodiscard]] inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide p = static_cast<Wide>(a ^ 0x9E3779B97F4A7C15ull) * (b ^ 0xD6E8FEB86659FD93ull);
  return static_cast<std::uint64_t>(p) ^ static_cast<std::uint64_t>(p >> 64);
}

template <class T>
concept KeyWord = std::is_integral_v<T> || std::is_enum_v<T>;
/// Values, and user types with `disttune_describe`: compared as canonical text.
template <class T>
concept KeyDescribed = !KeyWord<T> && (std::same_as<T, Value> || Describable<T>);
template <class T>
concept KeyText = std::is_convertible_v<const T&, std::string_view> && !std::is_null_pointer_v<T>;

[[nodiscard]] inline const Value& described_key(const Value& v) noexcept { return v; }
template <class T>
[[nodiscard]] Value described_key(const T& v) {
  return describe(v);
}

/// What the table keeps of a key: text and described values are owned, structs become the tuple of
/// their fields, everything else is itself.
template <class T>
[[nodiscard]] auto own_key(const T& v) {
  if constexpr (KeyDescribed<T>) {
    return describe(v);
  } else if constexpr (KeyText<T>) {
    return std::string(std::string_view(v));
  } else if constexpr (WithFields<T>) {
    return std::apply([&](auto... f) { return std::make_tuple(own_key(v.*(f.member))...); },
                      T::tuned);
  } else if constexpr (is_tuple<T>::value) {
    return std::apply([](const auto&... e) { return std::make_tuple(own_key(e)...); }, v);
  } else if constexpr (is_vector<T>::value) {
    using Item = decltype(own_key(std::declval<const typename T::value_type&>()));
    std::vector<Item> out;
    out.reserve(v.size());
    // The cast turns the proxies of std::vector<bool> into what they stand for.
    for (const auto& e : v) out.push_back(own_key(static_cast<const typename T::value_type&>(e)));
    return out;
  } else {
    static_assert(
        KeyWord<T> || std::is_floating_point_v<T>,
        "disttune: a key is made of integers, enums, bools, floating-point numbers, text, "
        "tuples and vectors of these, structs with a static constexpr member `tuned`, or types "
        "with a function void disttune_describe(disttune::TextWriter&, const T&)");
    return v;
  }
}
template <class T>
using owned_t = decltype(own_key(std::declval<const std::decay_t<T>&>()));

/// Doubles compare by what their canonical text would be: every NaN is one, zeros differ by sign.
[[nodiscard]] inline std::uint64_t key_bits(double v) noexcept {
  return v != v ? 0x7FF8000000000000ull : std::bit_cast<std::uint64_t>(v);
}

template <class T>
[[nodiscard]] std::uint64_t hash_key(std::uint64_t h, const T& v) {
  if constexpr (KeyWord<T>) {
    return mix(h, static_cast<std::uint64_t>(v));
  } else if constexpr (std::is_floating_point_v<T>) {
    return mix(h, key_bits(static_cast<double>(v)));
  } else if constexpr (KeyDescribed<T>) {
    const auto& described = described_key(v);
    return mix(h, std::hash<std::string_view>{}(described.text()));
  } else if constexpr (KeyText<T>) {
    return mix(h, std::hash<std::string_view>{}(std::string_view(v)));
  } else if constexpr (WithFields<T>) {
    std::apply([&](auto... f) { ((h = hash_key(h, v.*(f.member))), ...); }, T::tuned);
    return h;
  } else if constexpr (is_vector<T>::value) {
    h = mix(h, v.size());
    for (const auto& e : v) h = hash_key(h, static_cast<const typename T::value_type&>(e));
    return h;
  } else {
    std::apply([&](const auto&... e) { ((h = hash_key(h, e)), ...); }, v);
    return h;
  }
}

/// `a` is what the table owns, `b` what a caller brought.
template <class A, class B>
[[nodiscard]] bool same_key(const A& a, const B& b) {
  if constexpr (KeyWord<B>) {
    return a == b;
  } else if constexpr (std::is_floating_point_v<B>) {
    return key_bits(static_cast<double>(a)) == key_bits(static_cast<double>(b));
  } else if constexpr (KeyDescribed<B>) {
    return a == described_key(b);
  } else if constexpr (KeyText<B>) {
    return std::string_view(a) == std::string_view(b);
  } else if constexpr (WithFields<B>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return (same_key(std::get<I>(a), b.*(std::get<I>(B::tuned).member)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<A>>{});
  } else if constexpr (is_vector<B>::value) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < b.size(); ++i)
      if (!same_key(a[i], static_cast<const typename B::value_type&>(b[i]))) return false;
    return true;
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return (same_key(std::get<I>(a), std::get<I>(b)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<B>>{});
  }
}

/// Open addressing over atomic node pointers, load at most one half. A node is kept until the table
/// ends, so a reader can never meet a freed one; `erase` only takes its choice away. Growth fills a
/// new array and publishes it; old arrays die with the table (their sum is below the newest).
template <class Key, class Choice>
class ChoiceTable {
 public:
  ChoiceTable() {
    m_generations.push_back(std::make_unique<Slots>(16));
    m_live.store(m_generations.back().get(), std::memory_order_release);
  }

  /// Null: not decided. The pointer stays valid as long as the table.
  template <class K>
  [[nodiscard]] const Choice* find(const K& key, std::uint64_t place) const {
    const std::uint64_t h = hash_key(place, key);
    const Slots* s = m_live.load(std::memory_order_acquire);
    for (std::size_t i = h & s->mask;; i = (i + 1) & s->mask) {
      const Node* n = s->slot[i].load(std::memory_order_acquire);
      if (n == nullptr) return nullptr;
      if (n->hash == h && n->place == place && same_key(n->key, key))
        return n->choice.load(std::memory_order_acquire);
    }
  }

  template <class K>
  const Choice* put(const K& key, std::uint64_t place, Choice choice) {
    const std::lock_guard lock(m_mutex);
    const std::uint64_t h = hash_key(place, key);
    const Choice* c = &m_choices.emplace_back(std::move(choice));
    if (Node* n = find_node(key, place, h)) {
      n->choice.store(c, std::memory_order_release);
      return c;
    }
    Node& n = m_nodes.emplace_back(h, place, own_key(key), c);
    Slots& s = *m_live.load(std::memory_order_relaxed);
    if (2 * m_nodes.size() <= s.mask) {
      insert(s, n);
    } else {
      auto bigger = std::make_unique<Slots>(2 * (s.mask + 1));
      for (Node& e : m_nodes) insert(*bigger, e);
      m_generations.push_back(std::move(bigger));
      m_live.store(m_generations.back().get(), std::memory_order_release);
    }
    return c;
  }

  template <class K>
  void erase(const K& key, std::uint64_t place) {
    const std::lock_guard lock(m_mutex);
    if (Node* n = find_node(key, place, hash_key(place, key)))
      n->choice.store(nullptr, std::memory_order_release);
  }
  void clear() {
    const std::lock_guard lock(m_mutex);
    for (Node& n : m_nodes) n.choice.store(nullptr, std::memory_order_release);
  }

 private:
  struct Node {
    Node(std::uint64_t h, std::uint64_t p, Key k, const Choice* c)
        : hash(h), place(p), key(std::move(k)), choice(c) {}
    std::uint64_t hash;
    std::uint64_t place;
    Key key;
    std::atomic<const Choice*> choice;
  };
  struct Slots {
    explicit Slots(std::size_t n) : mask(n - 1), slot(new std::atomic<Node*>[n]()) {}
    std::size_t mask;
    std::unique_ptr<std::atomic<Node*>[]> slot;
  };

  template <class K>
  [[nodiscard]] Node* find_node(const K& key, std::uint64_t place, std::uint64_t h) const {
    const Slots& s = *m_live.load(std::memory_order_relaxed);
    for (std::size_t i = h & s.mask;; i = (i + 1) & s.mask) {
      Node* n = s.slot[i].load(std::memory_order_relaxed);
      if (n == nullptr || (n->hash == h && n->place == place && same_key(n->key, key))) return n;
    }
  }
  static void insert(Slots& s, Node& n) noexcept {
    std::size_t i = n.hash & s.mask;
    while (s.slot[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & s.mask;
    s.slot[i].store(&n, std::memory_order_release);
  }

  std::atomic<Slots*> m_live;
  std::mutex m_mutex;
  std::vector<std::unique_ptr<Slots>> m_generations;
  std::deque<Node> m_nodes;
  std::deque<Choice> m_choices;
};

}  // namespace detail
DISTTUNE_NAMESPACE_END
