#include "store/process_id.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/fork.hpp"
#include "core/text.hpp"
#include "store/atomic_file.hpp"

namespace disttune::store {
namespace {

struct ProcessStat {
  char state = '?';
  std::int64_t start = 0;
};

/// /proc/<pid>/stat, proc(5): "pid (comm) state … starttime(22)"; comm may hold anything, so what
/// counts begins after the last parenthesis.
std::optional<ProcessStat> read_stat(std::int64_t pid) {
  constexpr std::size_t k_most = 4096;
  const FileContent content = read_file(fmt::format("/proc/{}/stat", pid), k_most, true);
  std::string_view text = content.text;
  const std::size_t after_name = text.rfind(')');
  if (after_name == std::string_view::npos || after_name + 2 >= text.size()) return std::nullopt;
  text.remove_prefix(after_name + 2);
  ProcessStat out;
  out.state = text.front();
  for (int field = 3; field < 22; ++field) {
    const std::size_t blank = text.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    text.remove_prefix(blank + 1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.start);
  if (error != std::errc{}) return std::nullopt;
  return out;
}

std::string boot_and_namespace() {
  std::error_code error;
  std::string out = read_file("/proc/sys/kernel/random/boot_id", 64, true).text;
  if (!out.empty() && out.back() == '\n') out.pop_back();
  const std::filesystem::path space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  return out + '/' + space.string();
}

}  // namespace

const ProcessId& this_process() {
  struct Known {
    ProcessId process{core::host_name(), boot_and_namespace(), ::getpid(), 0};
    Known() {
      if (const std::optional<ProcessStat> stat = read_stat(process.pid))
        process.start = stat->start;
    }
  };
  static auto& known = *new core::PerProcess<Known>;
  return known.get().process;
}

bool is_visible(const ProcessId& a) {
  return a.host == core::host_name() && a.boot == boot_and_namespace() && a.start != 0 &&
         read_stat(::getpid()).has_value();
}

bool is_alive(const ProcessId& a) {
  const std::optional<ProcessStat> now = read_stat(a.pid);
  return now && now->start == a.start && now->state != 'Z' && now->state != 'X';
}

}  // namespace disttune::store
