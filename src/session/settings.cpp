#include "session/settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/seconds.hpp"
#include "disttune/selector.hpp"

namespace disttune::session {
namespace {

/// The table of variables does not know what is registered.
void check_strategy_variable(const std::string& name) {
  const auto known = strategies();
  if (std::ranges::find(known, name) != known.end()) return;
  throw std::invalid_argument(
      fmt::format("disttune: TRITON_DIST_AUTOTUNE_STRATEGY='{:.80}' cannot be used; accepted: one "
                  "of {}",
                  name, fmt::join(known, ", ")));
}

}  // namespace

std::string_view mode_text(core::Mode mode) noexcept {
  constexpr std::string_view texts[] = {"tune", "cached", "strict", "off", "first"};
  return texts[static_cast<std::size_t>(mode)];
}

Settings settings_of(const detail::LauncherOptions& options, const Defaults& defaults) {
  Settings s;
  s.environment = core::Environment::read();
  const core::Environment& env = s.environment;
  const auto count = [](std::optional<int> option, std::optional<int> variable,
                        std::uint16_t otherwise) {
    return static_cast<std::uint16_t>(option.value_or(variable.value_or(otherwise)));
  };
  s.strategy = options.strategy.value_or(env.strategy);
  if (!options.strategy) check_strategy_variable(s.strategy);
  s.warmup = count(options.warmup, env.warmup, defaults.warmup);
  s.repeat = count(options.repeat, env.repeat, defaults.repeat);
  const std::string cache = options.cache.value_or(env.cache);
  s.cold = cache.empty() ? defaults.cold : cache == "cold";
  const std::string timer = options.timer.value_or(options.clock ? "auto" : env.timer);
  s.graph = timer == "graph";
  s.host_clock = timer == "host";
  s.clock = options.clock;
  s.clock_name = options.clock_name;
  s.checked = options.checked;
  return s;
}

timing::Policy Settings::stopwatch_policy() const {
  timing::Policy policy;
  policy.cold = cold;
  policy.graph = graph;
  policy.host_clock = host_clock;
  policy.clock = clock;
  policy.patience = core::in_nanoseconds(environment.timeout_seconds);
  return policy;
}

std::string Settings::clock_text(const Device& device) const {
  if (clock) return clock_name.empty() ? "caller's" : clock_name;
  return host_clock ? "host" : std::string(device.clock());
}

Value Settings::policy(const Device& device) const {
  const std::string read_from = clock        ? "custom"
                                : host_clock ? "host"
                                             : std::string(device.clock());
  return Value::dict({{Value("cache"), Value(cold ? "cold" : "hot")},
                      {Value("clock"), Value(read_from)},
                      {Value("launch"), Value(graph ? "graph" : "eager")}});
}

store::Store Settings::store(const detail::LauncherOptions& options) const {
  return options.store ? store::Store(core::resolved_once(*options.store), environment.layers)
                       : store::Store(environment.home, environment.layers);
}

}  // namespace disttune::session
