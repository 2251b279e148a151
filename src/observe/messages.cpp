#include "observe/messages.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/environment.hpp"
#include "observe/event_lines.hpp"
#include "observe/observe.hpp"

namespace disttune::observe {
namespace {

constexpr std::size_t k_causes = 4096;
constexpr std::string_view k_prefix = "disttune: ";

/// Never destroyed: a message may come from a thread that outlives `main`.
struct Shared {
  std::mutex mutex;
  std::unordered_set<std::string> causes;
  std::shared_ptr<const MessageSink> sink;
};
Shared& shared() {
  static Shared& it = *new Shared;
  return it;
}

}  // namespace

Level log_level() noexcept {
  try {
    const std::string level = core::Environment::read().log_level;
    for (const Level l : {Level::debug, Level::info, Level::error})
      if (level == (l == Level::debug ? "debug" : l == Level::info ? "info" : "error")) return l;
  } catch (const std::exception&) {
  }
  return Level::warning;
}

bool first_of(std::string_view cause) {
  if (cause.empty()) return true;
  Shared& s = shared();
  const std::lock_guard lock(s.mutex);
  // Forgetting all of them repeats some warnings; refusing new ones would lose some.
  if (s.causes.size() >= k_causes) s.causes.clear();
  return s.causes.emplace(cause).second;
}

void set_message_sink(MessageSink sink) {
  auto next = sink ? std::make_shared<const MessageSink>(std::move(sink)) : nullptr;
  Shared& s = shared();
  const std::lock_guard lock(s.mutex);
  s.sink.swap(next);
}

void show(Level level, std::string_view text) {
  std::shared_ptr<const MessageSink> sink;
  {
    Shared& s = shared();
    const std::lock_guard lock(s.mutex);
    sink = s.sink;
  }
  if (sink) {  // outside the lock: a sink may say something itself
    (*sink)(level, text);
    return;
  }
  if (text.starts_with(k_prefix)) text.remove_prefix(k_prefix.size());
  const std::string_view tag = level == Level::warning ? "warning: "
                               : level == Level::error ? "error: "
                                                       : "";
  write_stderr(fmt::format("{}{}{}\n", k_prefix, tag, text));
}

void write_stderr(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace disttune::observe
