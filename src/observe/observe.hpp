// Who listens: the per-function log file, the progress line, warnings once a cause, and the
// observers that users added.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "disttune/observer.hpp"

namespace disttune::observe {

/// Sends an event to every observer of the process and of this thread's scope. Never throws.
void emit(const MissEvent&) noexcept;
void emit(const VisitEvent&) noexcept;
void emit(const DecidedEvent&) noexcept;
/// Messages also go to the standard error at LOG_LEVEL, a cause once a process for warnings.
void message(Level level, std::string_view text, std::string_view cause = {}) noexcept;

/// Where messages go instead of standard error (Python: `warnings` and `logging`). Thread-safe.
using MessageSink = std::function<void(Level, std::string_view text)>;
void set_message_sink(MessageSink sink);

/// The observers of one tuning, for its lifetime, on this thread: its log file
/// `<sha>.log-<UTC time>[-rank<r>]` beside the record and, when asked for, the progress line.
class Scope {
 public:
  /// `log_file` empty: no log. `verbose`: INFO lines also go to standard error for this call.
  Scope(std::filesystem::path log_file, bool verbose, std::string_view progress);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> m_impl;
};

/// The name of a log file beside `record_file`; `rank` < 0: no group.
[[nodiscard]] std::filesystem::path log_file_name(const std::filesystem::path& record_file,
                                                  int rank);

}  // namespace disttune::observe
