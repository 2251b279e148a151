// A contextual call: passes of the outer function until every context that it reached is decided,
// then once more. Collectives happen between passes only.
#include "disttune/contextual.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agree/agreement.hpp"
#include "observe/context_log.hpp"
#include "observe/observe.hpp"
#include "session/context.hpp"
#include "session/process.hpp"
#include "session/settings.hpp"

namespace disttune::session {
namespace {

using core::Mode;

detail::LauncherOptions launcher_options(const ContextualOptions& o) {
  detail::LauncherOptions out;
  out.warmup = o.n_warmup;
  out.repeat = o.n_repeat;
  out.cache = o.cache;
  if (!o.strategy.empty()) out.strategy = o.strategy;
  return out;
}

class ContextualCall final : public detail::Pass {
 public:
  ContextualCall(const std::string& name, const ContextualOptions& options,
                 const detail::ContextDecided& decided)
      : m_name(name), m_options(options), m_decided(decided) {}

  void run(const std::function<void(detail::Pass&)>& outer) {
    try {
      pass(outer);
    } catch (const std::exception& e) {
      announce_failure(e.what());
      throw;
    } catch (...) {
      announce_failure("interrupted");
      throw;
    }
    if (m_contexts.empty()) return;  // steady state: one pass, and nothing was read or allocated
    m_tools->agreement.run([&] {
      m_turn = DeviceTurn::take(*m_contexts.front()->stream.device, true);
      shake_hands();
      while (between_passes()) {
        pass(outer);
        agree_on_launches();
      }
      m_tools->agreement.finish(decision_text());
      m_final = true;
      pass(outer);
    });
  }

  /// One launch. From any thread of the outer call; launches are answered one at a time.
  void answer(const detail::Launcher& kernel, const detail::Call& launch,
              detail::Attempt& attempt) override {
    const std::lock_guard lock(m_mutex);
    if (!m_tools) m_tools = std::make_unique<Tools>(m_name, m_options);
    if (m_tools->settings.environment.mode != Mode::tune)
      return answer_untuned(kernel, launch, attempt);
    detail::Call call = launch;
    if (!call.stream.device) call.stream = host();
    auto& found = m_index[{&kernel, call.key, std::string(call.stream.device->kind()),
                           call.stream.device->index()}];
    if (found == nullptr) {
      if (m_final) return run_entry(attempt, 0);  // met only now: the next call tunes it
      if (call.stream.device->capturing(call.stream.handle))
        throw CaptureError(fmt::format(
            "disttune: contextual call '{}' met kernel '{}' with a new key while its stream "
            "is being captured; call it once before the capture. Key: {}",
            m_name, kernel.spec().name, call.key.text()));
      m_contexts.push_back(std::make_unique<Found>(kernel, call, attempt, *m_tools));
      found = m_contexts.back().get();
    }
    found->context.launch(call, attempt);
  }

 private:
  /// Made at the first launch that is not decided.
  struct Tools {
    Tools(const std::string& name, const ContextualOptions& options)
        : settings(settings_of(launcher_options(options), {3, 5, true})),
          agreement(options.group, settings.stopwatch_policy().patience,
                    fmt::format("contextual call '{}'", name)),
          log(settings.environment.context_logs, agreement.rank()) {}
    Settings settings;
    agree::Agreement agreement;
    observe::ContextLog log;
  };

  struct Found {
    Found(const detail::Launcher& kernel, const detail::Call& call, detail::Attempt& attempt,
          Tools& tools)
        : stream(call.stream),
          context(kernel, call, attempt, tools.settings, tools.agreement, tools.log) {}
    Stream stream;
    Context context;
  };

  void announce_failure(std::string_view why) noexcept {
    if (m_tools)
      m_tools->agreement.abandon(why);
    else if (m_options.group != nullptr)
      agree::abandon_call(*m_options.group, why);
  }

  [[nodiscard]] Value found_parts() const {
    std::vector<Value> parts;
    for (const auto& f : m_contexts) parts.push_back(f->context.agreed_part());
    return Value::list(parts);
  }

  void shake_hands() {
    const Settings& s = m_tools->settings;
    agree::Hello hello;
    hello.function = m_name;
    hello.policy = Value::dict({{Value("cold"), Value(s.cold)},
                                {Value("n_repeat"), Value(s.repeat)},
                                {Value("n_warmup"), Value(s.warmup)},
                                {Value("strategy"), Value(s.strategy)}});
    hello.candidates = found_parts();
    static_cast<void>(m_tools->agreement.handshake(hello));
  }

  void pass(const std::function<void(detail::Pass&)>& outer) {
    struct Running {
      explicit Running(detail::Pass* p) { detail::current_pass = p; }
      ~Running() { detail::current_pass = nullptr; }
    } running(this);
    for (const auto& f : m_contexts) f->context.next_pass();
    outer(*this);
  }

  /// True when another pass is needed.
  bool between_passes() {
    for (const auto& f : m_contexts) f->context.collect();
    bool open = false;
    for (const auto& f : m_contexts) {
      Context& c = f->context;
      if (!m_tools->agreement.alone() && c.waits_for_vote())
        c.vote();
      else if (c.batch_full())
        c.reduce_and_advance();
      if (c.open() && c.starved()) warn_starved(c);
      if (c.decided() && !f->context.announced()) announce(c);
      open |= c.open();
    }
    return open;
  }

  /// Different launches on ranks are the same error everywhere, with the counts.
  void agree_on_launches() {
    m_tools->agreement.same(fmt::format("launches of tuned kernels in a pass of '{}'", m_name),
                            found_parts());
  }

  void warn_starved(const Context& c) {
    observe::message(Level::warning,
                     fmt::format("disttune: contextual call '{}': kernel '{}' (key {}) was not "
                                 "launched in three passes; "
                                 "it stays undecided",
                                 m_name, c.kernel().spec().name, c.key().text()),
                     fmt::format("starved {} {}", m_name, c.kernel().spec().name));
  }

  void announce(Context& c) {
    c.set_announced();
    if (m_decided) m_decided(c.kernel(), c.key(), c.tuning_record(), c.winner());
  }

  std::string decision_text() const {
    std::string text;
    for (const auto& f : m_contexts)
      text +=
          fmt::format("{} {} {}\n", f->context.kernel().spec().name, f->context.key().text(),
                      f->context.decided() ? fmt::format("{}", f->context.winner()) : "undecided");
    return text;
  }

  /// MODE off, cached, strict and first: no passes, one answer a launch.
  void answer_untuned(const detail::Launcher& kernel, const detail::Call& call,
                      detail::Attempt& attempt) {
    const Mode mode = m_tools->settings.environment.mode;
    const auto& spec = kernel.spec();
    if (mode == Mode::strict)
      throw NotTuned(
          fmt::format("disttune: kernel '{}' is not tuned for key {}; MODE=strict forbids tuning",
                      spec.name, call.key.text()));
    if (mode == Mode::cached)
      observe::message(Level::warning,
                       fmt::format("disttune: kernel '{}' is not tuned for key {}; MODE=cached "
                                   "runs its first configuration",
                                   spec.name, call.key.text()),
                       fmt::format("cached {} {}", spec.name, call.key.text()));
    if (mode != Mode::first) return run_entry(attempt, 0);
    Field field(spec.candidates);
    field.prune(attempt);
    for (const std::size_t i : field.open()) {
      try {
        return run_entry(attempt, field.space_index(i));
      } catch (const DeviceLost&) {
        throw;
      } catch (const std::exception& e) {
        field.end(i, Status::launch_failed, e.what());
      }
    }
    throw NoValidConfig(field.failure_text(spec.name));
  }

  static void run_entry(detail::Attempt& attempt, std::size_t entry) {
    attempt.begin_visit(entry, 1);
    attempt.run(entry);
  }

  const std::string& m_name;
  const ContextualOptions& m_options;
  const detail::ContextDecided& m_decided;
  std::recursive_mutex m_mutex;  // a kernel may launch another one
  std::unique_ptr<Tools> m_tools;
  std::vector<std::unique_ptr<Found>> m_contexts;  ///< in the order found, the same on all ranks
  std::map<std::tuple<const detail::Launcher*, Value, std::string, int>, Found*> m_index;
  std::unique_ptr<DeviceTurn> m_turn;
  bool m_final = false;
};

/// The contextual call of this thread, for the error of the one inside it.
thread_local const std::string* active_call = nullptr;

}  // namespace
}  // namespace disttune::session

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

void run_contextual(const std::string& name, const ContextualOptions& options,
                    const std::function<void(Pass&)>& outer, const ContextDecided& decided) {
  if (session::active_call != nullptr)
    throw NestedContext(fmt::format(
        "disttune: contextual call '{}' inside contextual call '{}'; call one after the other",
        name, *session::active_call));
  struct Active {
    explicit Active(const std::string* n) { session::active_call = n; }
    ~Active() { session::active_call = nullptr; }
  } active(&name);
  session::ContextualCall(name, options, decided).run(outer);
}

}  // namespace detail
DISTTUNE_NAMESPACE_END
