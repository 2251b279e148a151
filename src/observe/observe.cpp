#include "observe/observe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "observe/event_lines.hpp"
#include "observe/log_file.hpp"
#include "observe/messages.hpp"
#include "observe/progress.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace {

using Observers = std::vector<std::pair<std::uint64_t, std::shared_ptr<Observer>>>;

/// Never destroyed: events may come from threads that outlive `main`.
struct Registry {
  std::mutex mutex;
  std::shared_ptr<const Observers> observers = std::make_shared<Observers>();
  std::uint64_t next = 1;
};
Registry& registry() {
  static Registry& it = *new Registry;
  return it;
}
/// Observers are called outside this lock: they may add or remove some.
std::shared_ptr<const Observers> observers() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.observers;
}
/// One thread at a time, whichever tunings run beside each other. Recursive: an observer may call
/// what tells events itself.
template <class F>
void for_each_observer(const F& f) {
  static auto* const turn = new std::recursive_mutex;  // as long as the registry
  const auto all = observers();
  if (all->empty()) return;
  const std::lock_guard lock(*turn);
  for (const auto& [token, observer] : *all) f(*observer);
}

}  // namespace

std::uint64_t add_observer(std::shared_ptr<Observer> observer) {
  if (!observer) throw std::invalid_argument("disttune: add_observer: no observer");
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  auto changed = std::make_shared<Observers>(*r.observers);
  changed->emplace_back(r.next, std::move(observer));
  r.observers = std::move(changed);
  return r.next++;
}

void remove_observer(std::uint64_t token) {
  std::shared_ptr<const Observers> before;  // dies outside the lock
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  auto changed = std::make_shared<Observers>(*r.observers);
  std::erase_if(*changed, [&](const auto& entry) { return entry.first == token; });
  before = std::exchange(r.observers, std::move(changed));
}

DISTTUNE_NAMESPACE_END

namespace disttune::observe {
namespace {

/// Who listens to one tuning.
class Listener {
 public:
  Listener(std::filesystem::path log_file, bool verbose, std::string_view progress)
      : m_log(std::move(log_file)), m_shown_from(log_level()) {
    if (verbose) m_shown_from = std::min(m_shown_from, Level::info);
    const int columns = progress == "off" ? 0 : stderr_columns();
    if (progress == "on" || columns > 0) m_progress.emplace(columns, write_stderr);
  }

  void miss(const Miss& e) {
    m_key = e.key.text().text();
    write_lines(e, facts());
    flush();
  }
  void visit_done(const VisitDone& e) {
    write_lines(e, m_key, facts());
    flush();
    if (m_progress) m_progress->visit_done(e);
  }
  void decided(const Decided& e) {
    if (m_progress) m_progress->decided(e);
    write_lines(e, facts());
    flush();
  }
  void note(Level level, std::string_view text) {
    add(level, text);
    flush();
  }
  void show_here(Level level, std::string_view text) {
    if (level < m_shown_from) return;
    if (m_progress) m_progress->clear();
    show(level, text);
  }

  Listener* outer = nullptr;

 private:
  static constexpr std::string_view k_prefix = "disttune: ";

  /// Whatever a tuning tells of itself, a failing candidate too, is information to who is watching.
  Write facts() {
    return [this](Level level, std::string_view text) {
      add(level, text);
      show_here(Level::info, text);
    };
  }
  void add(Level level, std::string_view text) {
    if (text.starts_with(k_prefix)) text.remove_prefix(k_prefix.size());
    m_log.add(level, text);
  }
  void flush() {
    if (m_log.flush()) return;
    const std::string root = m_log.file().parent_path().parent_path().string();
    if (!first_of(core::unreadable_cause(root, m_log.problem()))) return;  // said already
    // A store that cannot be written is one cause, whichever of its files is met first.
    message(
        Level::warning,
        fmt::format("disttune: cannot write the log {} ({}); tuning goes on without it, and what "
                    "cannot be stored is kept in this process only",
                    m_log.file().string(), m_log.problem()),
        "store " + root);
  }

  LogFile m_log;
  Level m_shown_from;
  std::optional<Progress> m_progress;
  std::string m_key;
};

thread_local Listener* t_listener = nullptr;

/// Listening never disturbs what is listened to.
template <class F>
void quietly(const F& f) noexcept {
  try {
    f();
  } catch (...) {  // out of memory, a sink that throws: a line is lost, nothing else
  }
}

template <class Event, class ToListener, class ToObserver>
void tell(const Event& event, ToListener to_listener, ToObserver to_observer) noexcept {
  quietly([&] {
    if (t_listener != nullptr) (t_listener->*to_listener)(event);
  });
  quietly([&] { for_each_observer([&](Observer& o) { (o.*to_observer)(event); }); });
}

}  // namespace

struct Scope::Impl : Listener {
  using Listener::Listener;
};

Scope::Scope(std::filesystem::path log_file, bool verbose, std::string_view progress)
    : m_impl(std::make_unique<Impl>(std::move(log_file), verbose, progress)) {
  m_impl->outer = std::exchange(t_listener, m_impl.get());
}
Scope::~Scope() { t_listener = m_impl->outer; }

void emit(const Miss& e) noexcept { tell(e, &Listener::miss, &Observer::miss); }
void emit(const VisitDone& e) noexcept { tell(e, &Listener::visit_done, &Observer::visit_done); }
void emit(const Decided& e) noexcept { tell(e, &Listener::decided, &Observer::decided); }

void message(Level level, std::string_view text, std::string_view cause) noexcept {
  quietly([&] {
    Listener* const here = t_listener;
    if (here != nullptr) here->note(level, text);
    if (level == Level::warning && !first_of(cause)) return;
    for_each_observer([&](Observer& o) { o.message({level, text, cause}); });
    if (here != nullptr)
      here->show_here(level, text);
    else if (level >= log_level())
      show(level, text);
  });
}

std::filesystem::path log_file_name(const std::filesystem::path& record_file, int rank) {
  std::filesystem::path log = record_file;
  log.replace_extension(fmt::format(".log-{}{}", core::utc_stamp(),
                                    rank < 0 ? std::string() : fmt::format("-rank{}", rank)));
  return log;
}

}  // namespace disttune::observe
