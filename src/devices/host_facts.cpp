#include "devices/host_facts.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

namespace disttune::devices {
namespace {

constexpr std::size_t k_mib = std::size_t{1} << 20;

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r\n");
  if (first == s.npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
}
/// Calls `f` with every line until it returns true.
template <class F>
void each_line(std::string_view text, F f) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (f(text.substr(0, end)) || end == text.npos) return;
    text.remove_prefix(end + 1);
  }
}
/// The first value of `key` in "key : value" lines.
std::string_view field(std::string_view text, std::string_view key) {
  std::string_view found;
  each_line(text, [&](std::string_view line) {
    const auto colon = line.find(':');
    if (colon == line.npos || trimmed(line.substr(0, colon)) != key) return false;
    found = trimmed(line.substr(colon + 1));
    return true;
  });
  return found;
}
std::optional<std::int64_t> number(std::string_view text) {
  text = trimmed(text);
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}
std::optional<int> cores_of(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<std::int64_t>((*quota - 1) / *period + 1, 1, 1 << 20));
}
std::optional<int> smaller(std::optional<int> a, std::optional<int> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

/// Version 2: `cpu.max` holds "quota period" or "max period". Version 1: two files.
std::optional<int> limit_in(const std::filesystem::path& folder, bool version_2) {
  if (!version_2)
    return cores_of(number(read_text(folder / "cpu.cfs_quota_us")),
                    number(read_text(folder / "cpu.cfs_period_us")));
  const std::string text = read_text(folder / "cpu.max");
  const auto blank = text.find(' ');
  if (blank == text.npos) return std::nullopt;
  return cores_of(number(std::string_view(text).substr(0, blank)),
                  number(std::string_view(text).substr(blank + 1)));
}
/// From `group` under `mount` up to the mount itself: a parent's limit binds its children. In a
/// container the path may name groups that are not visible there.
std::optional<int> limit_along(const std::filesystem::path& mount, std::string_view group,
                               bool version_2) {
  std::optional<int> least = limit_in(mount, version_2);
  std::filesystem::path folder = mount;
  for (const auto& part : std::filesystem::path(group).relative_path()) {
    if (part == "..") break;
    folder /= part;
    least = smaller(least, limit_in(folder, version_2));
  }
  return least;
}

bool names_cpu(std::string_view controllers) {
  while (true) {
    const auto comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    if (comma == controllers.npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string cpu_model(std::string_view cpuinfo, std::string_view machine) {
  if (const auto name = field(cpuinfo, "model name"); !name.empty()) return std::string(name);
  const auto part = field(cpuinfo, "CPU part");
  if (part.empty()) return std::string(machine);
  std::string text(machine);
  for (const auto& [label, key] :
       {std::pair{" implementer ", "CPU implementer"}, std::pair{" part ", "CPU part"},
        std::pair{" variant ", "CPU variant"}})
    if (const auto value = field(cpuinfo, key); !value.empty()) text.append(label).append(value);
  return text;
}

std::optional<int> cgroup_cores(const std::filesystem::path& root, std::string_view membership) {
  std::optional<int> least;
  each_line(membership, [&](std::string_view line) {  // "id:controllers:group"
    const auto first = line.find(':');
    const auto second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) return false;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const auto group = trimmed(line.substr(second + 1));
    if (controllers.empty())
      least = smaller(least, limit_along(root, group, true));
    else if (names_cpu(controllers)) {
      least = smaller(least, limit_along(root / "cpu", group, false));
      if (controllers != "cpu")
        least = smaller(least, limit_along(root / std::string(controllers), group, false));
    }
    return false;
  });
  return least;
}

int usable_cores() {
  int cores = 0;
  // A machine may have more processors than a fixed cpu_set_t holds: then the call says EINVAL.
  for (std::size_t sets = 1; cores == 0 && sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    if (sched_getaffinity(0, sets * sizeof(cpu_set_t), mask.data()) == 0)
      cores = CPU_COUNT_S(sets * sizeof(cpu_set_t), mask.data());
  }
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  const auto limit = cgroup_cores("/sys/fs/cgroup", read_text("/proc/self/cgroup"));
  return std::max(1, limit ? std::min(cores, *limit) : cores);
}

std::int64_t memory_gib() {
  const std::int64_t pages = sysconf(_SC_PHYS_PAGES);
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  constexpr std::int64_t k_gib = std::int64_t{1} << 30;
  return std::max<std::int64_t>(1, (pages * page + k_gib / 2) / k_gib);
}

std::size_t cache_bytes() {
  const long level_3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const long level_2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  const auto bytes = static_cast<std::size_t>(std::max({level_3, level_2, 0L}));
  return std::clamp(bytes, 8 * k_mib, 256 * k_mib);
}

}  // namespace disttune::devices
