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

/// Sends an event to every observer of the process and to the innermost Scope of this thread. Its
/// lines also go to standard error at LOG_LEVEL, or from INFO on in a verbose scope. Never throws.
void emit(const Miss&) noexcept;
void emit(const VisitDone&) noexcept;
void emit(const Decided&) noexcept;
/// Messages go to the scope's log file, and to observers and standard error (at LOG_LEVEL). A
/// warning with a cause goes there once a process; its memory is bounded: after 4096 causes it
/// starts anew, so that a warning may be repeated but none is ever lost. Never throws.
void message(Level level, std::string_view text, std::string_view cause = {}) noexcept;

/// Where what is to be shown goes instead of standard error (Python: `warnings` and `logging`);
/// empty: standard error again. LOG_LEVEL, `verbose` and causes are dealt with before. Thread-safe;
/// the sink is called by the thread that has something to say, and must not throw.
using MessageSink = std::function<void(Level, std::string_view text)>;
void set_message_sink(MessageSink sink);

/// The observers of one tuning, for its lifetime, on this thread: its log file
/// `<sha>.log-<UTC time>[-rank<r>]` beside the record and, when asked for, the progress line.
/// Scopes nest: a tuning inside a tuning has its own.
class Scope {
 public:
  /// `log_file` empty: no log; one that cannot be written is one warning a folder. `verbose`: INFO
  /// lines also go to standard error for this call. `progress`: PROGRESS (auto, on, off).
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
