// The signature of a launch, and the small checks of option values that the fronts share.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

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
struct whole {
  using type = F;
};
template <class F>
concept OneCall = std::is_function_v<std::remove_pointer_t<F>> ||
    std::is_member_function_pointer_v<F> || requires {
  &F::operator();
};

/// The signature that was given, else the launch's own.
template <class Given, class Launch>
constexpr auto named_signature() {
  if constexpr (!std::is_void_v<Given>) {
    return whole<Given>{};
  } else {
    static_assert(OneCall<Launch>,
                  "disttune: a generic or overloaded function needs its signature as the first "
                  "template argument, as in autotune<float(const Tile&, int)>(...)");
    if constexpr (OneCall<Launch>)
      return signature<Launch>{};
    else
      return whole<void()>{};
  }
}

template <class Given, class Launch>
using signature_t = typename decltype(named_signature<Given, Launch>())::type;

template <class Signature, class Config>
struct takes_config : std::true_type {};
template <class R, class First, class... Rest, class Config>
struct takes_config<R(First, Rest...), Config> : std::is_same<std::remove_cvref_t<First>, Config> {
};

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
