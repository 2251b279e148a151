// The signature of a launch, and the small checks of option values that the fronts share.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

template <class F>
struct signature : signature<decltype(&F::operator())> {};
template <class R, class... A>
struct signature<R (*)(A...)> {
  using type = R(A...);
};
template <class R, class... A>
struct signature<R (*)(A...) noexcept> {
  using type = R(A...);
};
template <class C, class R, class... A>
struct signature<R (C::*)(A...) const> {
  using type = R(A...);
};
template <class C, class R, class... A>
struct signature<R (C::*)(A...) const noexcept> {
  using type = R(A...);
};
template <class C, class R, class... A>
struct signature<R (C::*)(A...) const&> {
  using type = R(A...);
};
template <class C, class R, class... A>
struct signature<R (C::*)(A...) const& noexcept> {
  using type = R(A...);
};
template <class C>
struct mutable_call {
  static_assert(
      sizeof(C) == 0,
      "disttune: a launcher runs concurrently and many times, so its call operator must be "
      "const (no `mutable`)");
  using type = void();
};
template <class C, class R, class... A>
struct signature<R (C::*)(A...)> : mutable_call<C> {};
template <class C, class R, class... A>
struct signature<R (C::*)(A...) noexcept> : mutable_call<C> {};
template <class C, class R, class... A>
struct signature<R (C::*)(A...)&> : mutable_call<C> {};
template <class C, class R, class... A>
struct signature<R (C::*)(A...)& noexcept> : mutable_call<C> {};
template <class F>
using signature_t = typename signature<F>::type;

inline int checked_count(std::string_view option, int value, int least) {
  if (value < least || value > 65535)
    throw std::invalid_argument("disttune: " + std::string(option) + " = " + std::to_string(value) +
                                "; it must lie between " + std::to_string(least) + " and 65535");
  return value;
}
inline std::string checked_choice(std::string_view option, std::string value,
                                  std::initializer_list<std::string_view> accepted) {
  std::string list;
  for (const std::string_view a : accepted) {
    if (a == value) return value;
    list += (list.empty() ? "" : ", ") + std::string(a);
  }
  throw std::invalid_argument("disttune: " + std::string(option) + " = \"" + value +
                              "\"; accepted: " + list);
}

}  // namespace detail
DISTTUNE_NAMESPACE_END
