#include "core/environment.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <system_error>

#include "core/seconds.hpp"

namespace disttune::core {
namespace {

constexpr std::string_view k_flag = "flag: 1, true, on, yes, or 0, false, off, no, empty";
constexpr std::string_view k_count_from_0 = "integer, 0 to 65535";
constexpr std::string_view k_count_from_1 = "integer, 1 to 65535";
constexpr std::string_view k_seconds = "seconds, more than 0, at most 1e9";
constexpr std::string_view k_one_of = "one of ";

constexpr std::array<Variable, 17> k_variables = {{
    {"ALWAYS_TUNE", k_flag, "0", "tune even where a record would serve"},
    {"VERSION_CHECK", k_flag, "0", "a record of other software versions is a miss"},
    {"HOME", "folder", "~/.triton_dist/autotune", "root of the store"},
    {"LAYERS", "folders, separated by ':'", "", "read-only stores looked into after HOME"},
    {"MODE", "one of tune, cached, strict, off, first", "tune",
     "a miss: tune; cached: run the default and warn; strict: raise; off: always entry 0; first: "
     "the first candidate that works, untimed"},
    {"STRATEGY", "name of a search strategy", "fixed", "how candidates are compared"},
    {"WARMUP", k_count_from_0, "5, contextual 3", "untimed runs of each candidate"},
    {"REPEAT", k_count_from_1, "10, contextual 5", "timed runs of each candidate"},
    {"TIMER", "one of auto, device, host, graph", "auto", "the clock that times a run"},
    {"CACHE", "one of hot, cold", "hot, contextual cold",
     "whether the device's cache is flushed before each timed run"},
    {"BUDGET", k_seconds, "none", "time for measuring one key; the rest is skipped"},
    {"TIMEOUT", k_seconds, "600", "how long ranks wait for one without a sign of life"},
    {"WORKERS", k_count_from_0, "0", "candidates compiled at once; 0: one a usable core"},
    {"PROGRESS", "one of auto, on, off", "auto", "a progress line; auto: when on a terminal"},
    {"LOG_LEVEL", "one of debug, info, warning, error", "warning",
     "the least important messages that are shown"},
    {"CONTEXT_LOGS", "folder", "./.autotune_logs", "logs of contextual calls"},
    {"RETRY_CRASHED", k_flag, "0", "try candidates again that ended a process"},
}};

std::string full_name(std::string_view name) {
  return std::string(k_environment_prefix) + std::string(name);
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view k_blank = " \t\r\n\f\v";
  const std::size_t begin = text.find_first_not_of(k_blank);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(k_blank) - begin + 1));
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return text;
}

/// The variable's text; nothing when it is unset or blank.
std::optional<std::string> lookup(std::string_view name) {
  const char* value = std::getenv(full_name(name).c_str());
  if (value == nullptr) return std::nullopt;
  std::string text = trimmed(value);
  if (text.empty()) return std::nullopt;
  return text;
}

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view accepted) {
  throw std::invalid_argument(fmt::format("disttune: {}='{}' cannot be used; accepted: {}",
                                          full_name(name), value, accepted));
}

std::string_view accepted_by(std::string_view name) {
  return std::ranges::find(k_variables, name, &Variable::name)->type;
}

bool read_flag(std::string_view name) {
  const auto value = lookup(name);
  if (!value) return false;
  const std::string word = lower_case(*value);
  if (word == "1" || word == "true" || word == "on" || word == "yes") return true;
  if (word == "0" || word == "false" || word == "off" || word == "no") return false;
  refuse(name, *value, accepted_by(name));
}

/// Counts travel in 16 bits (Visit).
std::optional<int> read_count(std::string_view name) {
  const auto value = lookup(name);
  if (!value) return std::nullopt;
  const int least = accepted_by(name) == k_count_from_1 ? 1 : 0;
  int count = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, count);
  if (error != std::errc() || stop != end || count < least ||
      count > std::numeric_limits<std::uint16_t>::max())
    refuse(name, *value, accepted_by(name));
  return count;
}

std::optional<double> read_seconds(std::string_view name) {
  const auto value = lookup(name);
  if (!value) return std::nullopt;
  double seconds = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds > 0) || seconds > k_longest_seconds)
    refuse(name, *value, accepted_by(name));
  return seconds;
}

/// One of the words that the table names.
std::optional<std::string> read_word(std::string_view name) {
  const auto value = lookup(name);
  if (!value) return std::nullopt;
  std::string word = lower_case(*value);
  std::string_view words = accepted_by(name).substr(k_one_of.size());
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(", "), words.size());
    if (words.substr(0, end) == word) return word;
    words.remove_prefix(std::min(end + 2, words.size()));
  }
  refuse(name, *value, accepted_by(name));
}

/// The user's home: $HOME, else the password entry, else nothing.
std::optional<std::filesystem::path> user_home() {
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return home;
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return std::nullopt;
  if (found->pw_dir == nullptr || *found->pw_dir == '\0') return std::nullopt;
  return found->pw_dir;
}

/// A leading "~" or "~/" means the user's home, as a shell would have read it.
std::filesystem::path expanded(const std::string& text) {
  if (text == "~" || text.starts_with("~/"))
    if (const auto home = user_home())
      return *home / text.substr(std::min<std::size_t>(2, text.size()));
  return text;
}

std::optional<std::filesystem::path> read_home() {
  if (const auto value = lookup("HOME")) return resolved_once(expanded(*value));
  if (const auto home = user_home()) return resolved_once(*home / ".triton_dist" / "autotune");
  return std::nullopt;
}

std::vector<std::filesystem::path> read_layers() {
  std::vector<std::filesystem::path> out;
  const std::string value = lookup("LAYERS").value_or("");
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(':', begin), value.size());
    if (end > begin) out.push_back(resolved_once(expanded(value.substr(begin, end - begin))));
    begin = end + 1;
  }
  return out;
}

Mode read_mode() {
  const std::string word = read_word("MODE").value_or("tune");
  if (word == "cached") return Mode::cached;
  if (word == "strict") return Mode::strict;
  if (word == "off") return Mode::off;
  if (word == "first") return Mode::first;
  return Mode::tune;
}

/// Reads one variable for its error alone.
void check(const Variable& variable) {
  if (variable.type == k_flag) read_flag(variable.name);
  if (variable.type == k_count_from_0 || variable.type == k_count_from_1) read_count(variable.name);
  if (variable.type == k_seconds) read_seconds(variable.name);
  if (variable.type.starts_with(k_one_of)) read_word(variable.name);
}

Environment read_variables() {
  Environment e;
  e.always_tune = read_flag("ALWAYS_TUNE");
  e.version_check = read_flag("VERSION_CHECK");
  e.retry_crashed = read_flag("RETRY_CRASHED");
  e.home = read_home();
  e.layers = read_layers();
  e.mode = read_mode();
  e.strategy = lookup("STRATEGY").value_or(e.strategy);
  e.warmup = read_count("WARMUP");
  e.repeat = read_count("REPEAT");
  e.timer = read_word("TIMER").value_or(e.timer);
  e.cache = read_word("CACHE").value_or(e.cache);
  e.budget_seconds = read_seconds("BUDGET");
  e.timeout_seconds = read_seconds("TIMEOUT").value_or(e.timeout_seconds);
  e.workers = read_count("WORKERS").value_or(e.workers);
  e.progress = read_word("PROGRESS").value_or(e.progress);
  e.log_level = read_word("LOG_LEVEL").value_or(e.log_level);
  if (const auto logs = lookup("CONTEXT_LOGS")) e.context_logs = expanded(*logs);
  return e;
}

std::atomic<EnvironmentGuard> g_guard{nullptr};

}  // namespace

std::filesystem::path resolved_once(const std::filesystem::path& folder) {
  if (folder.is_absolute() || folder.empty()) return folder;
  static auto& mutex = *new std::mutex;  // launchers may be called while the process ends
  static auto& resolved = *new std::map<std::string, std::filesystem::path>;
  const std::lock_guard lock(mutex);
  if (const auto known = resolved.find(folder.string()); known != resolved.end())
    return known->second;
  std::error_code failed;
  std::filesystem::path whole = std::filesystem::absolute(folder, failed);
  if (failed || !whole.is_absolute()) return folder;  // the working directory is gone
  return resolved[folder.string()] = std::move(whole);
}

std::span<const Variable> variables() { return k_variables; }

void set_environment_guard(EnvironmentGuard guard) noexcept { g_guard = guard; }
void while_unchanged(const std::function<void()>& reading) {
  const EnvironmentGuard guard = g_guard;
  guard != nullptr ? guard(reading) : reading();
}

Environment Environment::read() {
  Environment e;
  while_unchanged([&] { e = read_variables(); });
  return e;
}

std::string describe_environment() {
  std::string out;
  for (const Variable& variable : variables()) {
    const char* set = std::getenv(full_name(variable.name).c_str());
    std::string value(variable.default_text);
    if (variable.name == "HOME")
      if (const auto home = read_home()) value = home->string();
    std::string where = "default";
    if (set != nullptr && (*set != '\0')) {
      if (variable.name != "HOME") value = set;
      where = "environment";
      try {
        check(variable);
      } catch (const std::invalid_argument& error) {
        where = error.what();
      }
    }
    out += fmt::format("{:<36}  {:<24}  ({})  {}\n", full_name(variable.name),
                       value.empty() ? "-" : value, where, variable.meaning);
  }
  return out;
}

}  // namespace disttune::core
