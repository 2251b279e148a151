// What one cold call goes by: the launcher's options over the environment over the defaults.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/environment.hpp"
#include "disttune/detail/attempt.hpp"
#include "disttune/device.hpp"
#include "measure/stopwatch.hpp"
#include "store/store.hpp"

namespace disttune::session {

struct Settings {
  core::Environment environment;
  std::string strategy;
  std::uint16_t warmup = 5;
  std::uint16_t repeat = 10;
  bool cold = false;
  bool graph = false;
  bool host_clock = false;  ///< asked for with timer="host"
  bool checked = false;
  std::function<std::int64_t()> clock;
  std::string clock_name;  ///< of `clock`, for messages

  [[nodiscard]] timing::Policy stopwatch_policy() const;
  /// What times are read from, for messages.
  [[nodiscard]] std::string clock_text(const Device& device) const;
  /// The part of the key that says what a time means: {"cache", "clock", "launch"}.
  [[nodiscard]] Value policy(const Device& device) const;
  [[nodiscard]] store::Store store(const detail::LauncherOptions& options) const;
};

/// As MODE spells it.
[[nodiscard]] std::string_view mode_text(core::Mode mode) noexcept;

/// What a mode of tuning takes where neither option nor environment says anything.
struct Defaults {
  std::uint16_t warmup;
  std::uint16_t repeat;
  bool cold;
};
inline constexpr Defaults k_function_defaults{5, 10, false};

/// Reads the environment. std::invalid_argument for values that cannot be.
[[nodiscard]] Settings settings_of(const detail::LauncherOptions& options,
                                   const Defaults& defaults);

}  // namespace disttune::session
