// Who a process is, so that a number used again by the system is not mistaken for the one before.
#pragma once

#include <cstdint>
#include <string>

namespace disttune::store {

struct ProcessId {
  std::string host;
  std::string boot;        ///< the kernel's boot id and the process namespace; empty: unknown
  std::int64_t pid = 0;    ///< within that namespace
  std::int64_t start = 0;  ///< clock ticks after boot; 0: unknown
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

/// The calling process; right in a forked child too.
[[nodiscard]] const ProcessId& this_process();
/// Whether `a` can be looked up in this process's /proc.
[[nodiscard]] bool is_visible(const ProcessId& a);
/// For a visible process: whether it still runs (a zombie does not).
[[nodiscard]] bool is_alive(const ProcessId& a);

}  // namespace disttune::store
