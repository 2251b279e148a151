// What a call finds around it in the process: the group and the device that its choice belongs to,
// and where messages go. The Python package sets the hooks once. Holds the interpreter lock, but
// for the message sink.
#pragma once

#include "object.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "disttune/group.hpp"
#include "disttune/observer.hpp"
#include "errors.hpp"

namespace disttune::python {

/// The group of a call, and the number that stands for it in memory tables. Two group objects are
/// two numbers even where their shape is the same: what one of them decided is not known to all
/// ranks of the other.
struct GroupSeat {
  Ref object;                     ///< keeps `group` alive for the call
  ProcessGroup* group = nullptr;  ///< null: alone
  std::uint32_t serial = 0;       ///< 0: alone
};

/// `resolve(group_or_None)` returns a disttune.ProcessGroup, or None for a call that is alone.
void set_group_resolver(PyObject* resolve);
/// The default group may have changed (`set_default_group`).
void forget_default_group() noexcept;
/// The serial of the default group; what a warm call asks. Costs two dict look-ups at most while
/// the default group stays the same. Throws ErrorSet.
[[nodiscard]] std::uint32_t default_group_serial();
/// `autotune_pg` → group; null or None: the default group. Throws ErrorSet.
[[nodiscard]] GroupSeat group_of(PyObject* autotune_pg);

/// The same for a group that was resolved last or needs no resolving; else none. Never waits.
[[nodiscard]] GroupSeat known_group(PyObject* autotune_pg) noexcept;

/// Whether tensors can lie on different devices; then a warm call reads where its first one lies.
extern bool g_devices_differ;
/// `current()` returns the number of the device that a call without tensors uses.
void set_devices_differ(bool differ, PyObject* current);
/// 0: the host, else one more than the device's index. `args`: all arguments of the call.
[[nodiscard]] std::uint32_t device_number(PyObject* const* args, Py_ssize_t count,
                                          Py_ssize_t& remembered);

/// Warnings of the session on this thread are kept until its call returns, so that they are given
/// where the caller stands and may be turned into an exception.
class Messages {
 public:
  /// Runs `body` without the interpreter lock, then gives its messages to `warnings` and `logging`:
  /// also when it throws, since much is said only once a process. What it throws passes, and counts
  /// for more than a warning that is an error; else that is an ErrorSet.
  static void around(const std::function<void()>& body);
  /// The sink that the session is given. Callable without the interpreter lock.
  static void sink(Level level, std::string_view text);

  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

 private:
  Messages() noexcept;
  ~Messages();
  /// Gives what was kept; returns the first exception that a warning became, if any.
  [[nodiscard]] std::optional<Raised> give();

  std::vector<std::pair<Level, std::string>> m_kept;
  Messages* m_outer;
};
/// `log(level, text)`, with level "debug", "info", "warning" or "error".
void set_log(PyObject* log);

}  // namespace disttune::python
