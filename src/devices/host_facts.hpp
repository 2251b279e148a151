// What the operating system says about this machine. Every source may be missing (containers,
// virtual machines, other architectures).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace disttune::devices {

/// The processor's name in a `/proc/cpuinfo`: "model name"; else implementer, part and variant (ARM
/// has no names there); else `machine`.
[[nodiscard]] std::string cpu_model(std::string_view cpuinfo, std::string_view machine);
/// Processors that the control groups of a process allow, rounded up; nothing: no limit. The
/// smallest limit up to the root counts. `root`: where control groups are mounted
/// (/sys/fs/cgroup); `membership`: the process's /proc/self/cgroup.
[[nodiscard]] std::optional<int> cgroup_cores(const std::filesystem::path& root,
                                              std::string_view membership);
/// Cores that this process may use now: affinity and control groups; at least 1.
[[nodiscard]] int usable_cores();
/// Memory of the machine, to the nearest GiB, at least 1.
[[nodiscard]] std::int64_t memory_gib();
/// The last-level cache in bytes, kept within 8 to 256 MiB (virtual machines report nonsense).
[[nodiscard]] std::size_t cache_bytes();
/// A small file's text; empty when it cannot be read.
[[nodiscard]] std::string read_text(const std::filesystem::path& file);

}  // namespace disttune::devices
