// The environment, in one table: what each variable means, its default, and its value now. Printed
// by `disttune env` and in the documentation; read when a key is first met, never on a warm call.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace disttune::core {

enum class Mode { tune, cached, strict, off, first };

/// One variable, named without the prefix TRITON_DIST_AUTOTUNE_.
struct Variable {
  std::string_view name;
  std::string_view type;  ///< what it accepts, for people: "integer, 0 to 65535", "one of …"
  std::string_view default_text;
  std::string_view meaning;
};
inline constexpr std::string_view k_environment_prefix = "TRITON_DIST_AUTOTUNE_";
[[nodiscard]] std::span<const Variable> variables();

/// A reading of all variables.
struct Environment {
  bool always_tune = false;
  bool version_check = false;
  bool retry_crashed = false;
  std::optional<std::filesystem::path> home;  ///< store root; nothing: no home folder, memory only
  std::vector<std::filesystem::path> layers;
  Mode mode = Mode::tune;
  std::string strategy = "fixed";
  std::optional<int> warmup;  ///< unset: the mode of tuning decides (5, or n_warmup)
  std::optional<int> repeat;
  std::string timer = "auto";  ///< auto, device, host, graph
  std::string cache;           ///< hot, cold; empty: hot function-level, cold contextual
  std::optional<double> budget_seconds;
  double timeout_seconds = 600;
  int workers = 0;                    ///< parallel preparations; 0: one a usable core
  std::string progress = "auto";      ///< auto, on, off
  std::string log_level = "warning";  ///< debug, info, warning, error
  std::filesystem::path context_logs = "./.autotune_logs";

  /// Throws std::invalid_argument that names the variable, its value and what is accepted.
  [[nodiscard]] static Environment read();
};

/// Reads variables while no other thread changes them: a front end whose language lets threads do
/// that at any time says how it is kept from them (at its start; null: reads just so). May take
/// that language's lock: not to be called with one held that its threads wait for while they have
/// it.
void while_unchanged(const std::function<void()>& reading);
using EnvironmentGuard = void (*)(const std::function<void()>& reading);
void set_environment_guard(EnvironmentGuard guard) noexcept;

/// A folder as it was meant when it was first named in this process: absolute, whatever the working
/// directory has become since.
[[nodiscard]] std::filesystem::path resolved_once(const std::filesystem::path& folder);

/// "NAME  value  (default or where set)  meaning" a line, for `disttune env`. A value that cannot
/// be read is shown with its error.
[[nodiscard]] std::string describe_environment();

}  // namespace disttune::core
