// A contextual call: passes of the outer function until every context that it reached is decided,
// then once more. Collectives happen between passes only.
#include "disttune/contextual.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agree/agreement.hpp"
#include "observe/context_log.hpp"
#include "observe/observe.hpp"
#include "session/between_passes.hpp"
#include "session/context.hpp"
#include "session/found_context.hpp"
#include "session/kept_choice.hpp"
#include "session/prepare.hpp"
#include "session/process.hpp"
#include "session/settings.hpp"
#include "session/watched_attempt.hpp"

namespace disttune::session {
namespace {

detail::LauncherOptions launcher_options(const ContextualOptions& o) {
  detail::LauncherOptions out;
  out.warmup = o.n_warmup;
  out.repeat = o.n_repeat;
  if (!o.cache.empty()) out.cache = o.cache;
  if (!o.strategy.empty()) out.strategy = o.strategy;
  if (!o.timer.empty()) out.timer = o.timer;
  out.clock = o.clock;
  out.clock_name = o.clock_name;
  return out;
}

Settings contextual_settings(const ContextualOptions& o) {
  Settings out = settings_of(launcher_options(o), {3, 5, true});
  out.graph = false;  // TIMER may say so: for launchers, which can be replayed by themselves
  return out;
}

/// The contextual call of this thread, for the error of the one inside it.
thread_local const std::string* active_call = nullptr;

void refuse_nesting(const std::string& name) {
  if (active_call != nullptr)
    throw NestedContext(fmt::format(
        "disttune: contextual call '{}' inside contextual call '{}'; call one after the other",
        name, *active_call));
}

/// What is said of a running pass: to this thread's kernels, and to calls inside it.
class Running {
 public:
  Running(detail::Pass& pass, const std::string& name) {
    active_call = &name;
    detail::current_pass = &pass;
  }
  ~Running() {
    active_call = nullptr;
    detail::current_pass = nullptr;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace
}  // namespace disttune::session

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

using session::Context;
using session::DeviceTurn;
using session::Field;
using session::FoundContext;
using session::RunClock;
using session::Settings;
using session::WatchedRuns;

struct ContextualCall::Impl final : Pass {
  Impl(std::string called, ContextualOptions with, ContextDecided tell)
      : Pass(with.group == nullptr ? 0 : with.group->place()),
        name(std::move(called)),
        options(std::move(with)),
        decided(std::move(tell)) {}

  /// Made at the first launch that is not decided.
  struct Tools {
    Tools(const std::string& name, const ContextualOptions& options)
        : settings(session::contextual_settings(options)),
          agreement(options.group, settings.stopwatch_policy().patience,
                    fmt::format("contextual call '{}'", name)),
          log(settings.environment.context_logs,
              options.rank < 0 ? agreement.rank() : options.rank) {}
    Settings settings;
    agree::Agreement agreement;
    observe::ContextLog log;
  };

  // ---- one launch
  void answer(const Launcher& kernel, const Call& launch, Attempt& attempt) override;
  void answer_untuned(const Launcher& kernel, const Call& call, Attempt& attempt);
  static void run_first_working(const Launcher& kernel, Attempt& attempt);
  Context& context_of(const Launcher& kernel, const Call& call, Attempt& attempt);
  Tools& made_tools();

  // ---- passes
  void run_pass(const std::function<void(Pass&)>& outer);
  [[nodiscard]] std::string stuck();
  [[nodiscard]] bool settled_between_passes(const std::exception& error);
  void complete(const std::function<void(Pass&)>& outer);
  void tune(const std::function<void(Pass&)>& outer);
  void announce_failure(std::string_view why) noexcept;

  // ---- between passes
  [[nodiscard]] Stream first_stream();
  void meet();
  void take_stock();
  void compare_modes();
  [[nodiscard]] bool another_pass();
  [[nodiscard]] bool between_passes();
  void agree_on_decisions();
  void shake_hands();
  void compare_pass();
  void publish(bool contended);
  [[nodiscard]] std::string decision_text() const;
  void warn_starved(const Context& context) const;
  void give_up_what_is_open();

  const std::string name;
  const ContextualOptions options;
  const ContextDecided decided;
  /// Of all that follows, since launches come from any thread and between passes too; a kernel may
  /// launch another one. Not held while a pass runs.
  std::recursive_mutex mutex;
  std::unique_ptr<Tools> tools;
  session::Contexts contexts;  ///< in an order that all ranks share
  std::size_t ordered = 0;     ///< how many of them are in it
  std::map<std::tuple<const Launcher*, Value, std::string, int>, FoundContext*> index;
  std::vector<Context*> launching;  ///< whose launch this thread is in, innermost last
  int idle_passes = -1;  ///< in a row, in which nothing but new keys came; the first is not one
  std::set<std::string> untuned;  ///< what was answered without tuning, on ranks
  std::string refused;            ///< the first launch that MODE=strict refused, on ranks
  bool final_pass = false;
  agree::Agreed agreed;  ///< on ranks
};

ContextualCall::Impl::Tools& ContextualCall::Impl::made_tools() {
  if (tools) return *tools;
  tools = std::make_unique<Tools>(name, options);
  const WatchedRuns first_pass;
  tools->agreement.leave_thread();  // which may be any that serves the call
  return *tools;
}

/// From any thread of the outer call; launches are answered one at a time. What is launched while
/// candidates are prepared is not: the launch that waits for that has the lock.
void ContextualCall::Impl::answer(const Launcher& kernel, const Call& launch, Attempt& attempt) {
  if (session::preparing()) return run_first_working(kernel, attempt);
  const std::lock_guard lock(mutex);
  if (RunClock::in_run()) RunClock::run_begins();  // the outer function is getting on
  if (made_tools().settings.environment.mode != core::Mode::tune)
    return answer_untuned(kernel, launch, attempt);
  Call call = launch;
  if (!call.stream.device) call.stream = host();
  const auto found = index.find(
      {&kernel, call.key, std::string(call.stream.device->kind()), call.stream.device->index()});
  if (found == index.end() && final_pass)  // met only now: the next call tunes it
    return run_first_working(kernel, attempt);
  Context& context =
      found == index.end() ? context_of(kernel, call, attempt) : found->second->context;
  if (context.open())
    for (Context* outer : launching) outer->wait_for(context);
  struct Launching {
    std::vector<Context*>& stack;
    ~Launching() { stack.pop_back(); }
  };
  launching.push_back(&context);
  const Launching launching_this{launching};
  context.launch(call, attempt);
}

Context& ContextualCall::Impl::context_of(const Launcher& kernel, const Call& call,
                                          Attempt& attempt) {
  if (call.stream.device->capturing(call.stream.handle))
    throw CaptureError(
        fmt::format("disttune: contextual call '{}' met kernel '{}' with a new key while its "
                    "stream is being captured; call it once before the capture. Key: {}",
                    name, kernel.spec().name, call.key.text()));
  std::unique_ptr<session::KeptChoice> kept;
  if (options.persist)
    kept = std::make_unique<session::KeptChoice>(kernel, call, tools->settings, name);
  contexts.push_back(std::make_unique<FoundContext>(kernel, call, attempt, tools->settings,
                                                    tools->agreement, tools->log, std::move(kept)));
  index[{&kernel, call.key, std::string(call.stream.device->kind()), call.stream.device->index()}] =
      contexts.back().get();
  return contexts.back()->context;
}

/// MODE off, cached, strict and first: no passes, one answer a launch.
void ContextualCall::Impl::answer_untuned(const Launcher& kernel, const Call& call,
                                          Attempt& attempt) {
  const core::Mode mode = tools->settings.environment.mode;
  const auto& spec = kernel.spec();
  if (!tools->agreement.alone())
    untuned.insert(fmt::format("MODE={} {} {} {}", session::mode_text(mode), name, spec.name,
                               call.key.text()));
  if (mode == core::Mode::strict) {
    const std::string why =
        fmt::format("disttune: kernel '{}' is not tuned for key {}; MODE=strict forbids tuning",
                    spec.name, call.key.text());
    if (!tools->agreement.alone() && refused.empty()) refused = why;
    throw NotTuned(why);
  }
  if (mode == core::Mode::cached)
    observe::message(Level::warning,
                     fmt::format("disttune: kernel '{}' is not tuned for key {}; MODE=cached runs "
                                 "its first configuration",
                                 spec.name, call.key.text()),
                     fmt::format("cached {} {}", spec.name, call.key.text()));
  if (mode == core::Mode::first) return run_first_working(kernel, attempt);
  attempt.begin_visit(0, 1);
  attempt.run(0);
}

void ContextualCall::Impl::run_first_working(const Launcher& kernel, Attempt& attempt) {
  Field field(kernel.spec().candidates);
  field.prune(attempt);
  for (const std::size_t i : field.open()) {
    try {
      attempt.begin_visit(field.space_index(i), 1);
      return attempt.run(field.space_index(i));
    } catch (const DeviceLost&) {
      throw;
    } catch (const std::exception& e) {
      field.end(i, Status::launch_failed, e.what());
    }
  }
  throw NoValidConfig(field.failure_text(kernel.spec().name));
}

void ContextualCall::Impl::run_pass(const std::function<void(Pass&)>& outer) {
  const session::Running running(*this, name);
  {
    const std::lock_guard lock(mutex);
    for (const auto& f : contexts) f->context.next_pass();
  }
  const WatchedRuns watched;
  outer(*this);
}

/// Why a kernel of the last pass had nothing left, or nothing allowed, to run on this rank; empty:
/// none had.
std::string ContextualCall::Impl::stuck() {
  const std::lock_guard lock(mutex);
  if (!tools || tools->agreement.alone() || final_pass) return {};
  if (!refused.empty()) return refused;
  for (const auto& f : contexts)
    if (!f->context.stuck().empty())
      return fmt::format("{}\n  (on rank {})", f->context.stuck(), tools->agreement.rank());
  return {};
}

/// With ranks "nothing works" is found on agreed data, and the same everywhere: what it made of the
/// outer function on this rank is not told.
bool ContextualCall::Impl::settled_between_passes(const std::exception& error) {
  return dynamic_cast<const DeviceLost*>(&error) == nullptr && !stuck().empty();
}

void ContextualCall::Impl::announce_failure(std::string_view why) noexcept {
  const std::lock_guard lock(mutex);
  if (tools)
    tools->agreement.abandon(why);
  else if (options.group != nullptr)
    agree::abandon_call(*options.group, why);
}

void ContextualCall::Impl::complete(const std::function<void(Pass&)>& outer) {
  std::unique_lock lock(mutex);
  if (!tools) return;  // steady state: one pass, and nothing was read or allocated
  agree::Agreement& agreement = tools->agreement;
  agreement.enter_thread();
  const bool tunes = untuned.empty();
  const bool found_any = !contexts.empty();
  lock.unlock();
  if (!tunes)
    agreement.run([this] { compare_modes(); });
  else if (found_any)
    agreement.run([&] { tune(outer); });
  // Where no other rank was needed: those that wait for this one hear that it is gone.
  agreement.abandon("the call had nothing to decide on this rank");
}

/// A rank that does not tune meets the handshake of those that do; once for each key, since ranks
/// that all do not tune have nothing to say to each other.
void ContextualCall::Impl::compare_modes() {
  const std::lock_guard lock(mutex);
  agree::Agreement& a = tools->agreement;
  const bool known = std::ranges::all_of(untuned, [&](auto& met) { return a.remembers(met); });
  if (!known) {
    shake_hands();
    for (const std::string& met : untuned) a.remember(met);
    a.ended_alike();
  }
  if (!refused.empty()) throw NotTuned(refused);
}

void ContextualCall::Impl::tune(const std::function<void(Pass&)>& outer) {
  const Stream stream = first_stream();
  auto turn = DeviceTurn::take(*stream.device, stream.device->fingerprint(), true,
                               tools->agreement.alone());
  meet();
  while (another_pass()) {
    try {
      run_pass(outer);
    } catch (const std::exception& e) {
      if (!settled_between_passes(e)) throw;
    }
  }
  agree_on_decisions();
  const bool contended = turn == nullptr || turn->contended();
  turn.reset();
  publish(contended);
  // The first pass ran the winners already where nothing was left to decide.
  if (!std::ranges::all_of(contexts, [](auto& f) { return f->context.was_settled_alone(); }))
    run_pass(outer);
}

Stream ContextualCall::Impl::first_stream() {
  const std::lock_guard lock(mutex);
  return contexts.front()->stream;
}

void ContextualCall::Impl::meet() {
  const std::lock_guard lock(mutex);
  take_stock();
  if (!tools->agreement.alone()) shake_hands();
}

bool ContextualCall::Impl::another_pass() {
  const std::lock_guard lock(mutex);
  take_stock();
  compare_pass();
  return between_passes();
}

/// No context comes after that: a launch with a new key is left to the next call.
void ContextualCall::Impl::agree_on_decisions() {
  const std::lock_guard lock(mutex);
  tools->agreement.finish(decision_text());
  final_pass = true;
}

/// Threads of the outer call may find contexts in another order on another rank.
void ContextualCall::Impl::take_stock() {
  const auto order = [](const std::unique_ptr<FoundContext>& f) {
    return std::tuple(std::string_view(f->context.kernel().spec().name), f->context.key().text());
  };
  if (!tools->agreement.alone())
    std::ranges::stable_sort(contexts.begin() + static_cast<std::ptrdiff_t>(ordered),
                             contexts.end(),
                             [&](const auto& a, const auto& b) { return order(a) < order(b); });
  ordered = contexts.size();
}

/// True when another pass is needed.
bool ContextualCall::Impl::between_passes() {
  for (const auto& f : contexts) f->context.collect();
  if (!tools->agreement.alone())
    session::settle_what_all_hold(tools->agreement, contexts, agreed, options.persist);
  bool open = false;
  bool moved = false;
  for (const auto& f : contexts) {
    Context& c = f->context;
    if (!c.open()) continue;
    if (!tools->agreement.alone() && c.waits_for_vote())
      c.vote();
    else if (c.batch_full())
      c.reduce_and_advance();
    if (c.open() && c.starved()) warn_starved(c);
    moved |= c.moved();
    open |= c.open();
  }
  idle_passes = moved ? 0 : idle_passes + 1;
  if (!open || idle_passes < session::k_idle_passes) return open;
  give_up_what_is_open();
  return false;
}

/// An outer function that reaches new keys in every pass would never end.
void ContextualCall::Impl::give_up_what_is_open() {
  std::map<std::string, int> keys;
  for (const auto& f : contexts)
    if (f->context.open()) {
      f->context.give_up();
      ++keys[f->context.kernel().spec().name];
    }
  for (const auto& [kernel, n] : keys)
    observe::message(
        Level::warning,
        fmt::format("disttune: contextual call '{}' ends: in three passes no tuned kernel came a "
                    "step further; kernel '{}' was met with new keys only, and {} of them stay "
                    "undecided",
                    name, kernel, n),
        fmt::format("new keys {} {}", name, kernel));
}

void ContextualCall::Impl::shake_hands() {
  const auto* kept = contexts.empty() ? nullptr : contexts.front()->kept.get();
  agreed = session::shake_hands(tools->agreement, name, tools->settings, options.persist,
                                kept != nullptr ? kept->store_id() : 0);
}

void ContextualCall::Impl::compare_pass() {
  if (!tools->agreement.alone()) session::compare_pass(tools->agreement, name, contexts, stuck());
}

void ContextualCall::Impl::warn_starved(const Context& c) const {
  observe::message(
      Level::warning,
      fmt::format("disttune: contextual call '{}': kernel '{}' (key {}) was not launched in three "
                  "passes; it stays undecided",
                  name, c.kernel().spec().name, c.key().text()),
      fmt::format("starved {} {}", name, c.kernel().spec().name));
}

void ContextualCall::Impl::publish(bool contended) {
  // A rank that can write nowhere tries all the same: that warns.
  for (const auto& f : contexts) {
    if (!f->kept || !(agreed.writer || f->kept->store_id() == 0)) continue;
    if (f->context.tuned())
      f->kept->save(f->context.tuning_record(contended));
    else if (f->adopted && f->context.decided())
      f->kept->save(*f->adopted);
  }
  if (!decided) return;
  for (const auto& f : contexts)
    if (f->context.decided())
      decided(f->context.kernel(), f->context.key(), f->context.tuning_record(contended),
              f->context.winner());
}

std::string ContextualCall::Impl::decision_text() const {
  std::string text;
  for (const auto& f : contexts)
    text +=
        fmt::format("{} {} {}\n", f->context.kernel().spec().name, f->context.key().text(),
                    f->context.decided() ? fmt::format("{}", f->context.winner()) : "undecided");
  return text;
}

ContextualCall::ContextualCall(std::string name, ContextualOptions options, ContextDecided decided)
    : m_impl(std::make_unique<Impl>(std::move(name), std::move(options), std::move(decided))) {}
ContextualCall::~ContextualCall() = default;
Pass& ContextualCall::pass() noexcept { return *m_impl; }
void ContextualCall::complete(const std::function<void(Pass&)>& outer) { m_impl->complete(outer); }
void ContextualCall::abandon(std::string_view why) noexcept { m_impl->announce_failure(why); }
bool ContextualCall::settled_by_complete() { return !m_impl->stuck().empty(); }
void ContextualCall::note(std::string_view line) noexcept {
  const std::lock_guard lock(m_impl->mutex);
  if (m_impl->tools) m_impl->tools->log.line(line);
}

void run_contextual(const std::string& name, const ContextualOptions& options,
                    const std::function<void(Pass&)>& outer, const ContextDecided& decided) {
  session::refuse_nesting(name);
  ContextualCall call(name, options, decided);
  try {
    call.m_impl->run_pass(outer);
  } catch (const std::exception& e) {
    if (!call.m_impl->settled_between_passes(e)) {
      call.abandon(e.what());
      throw;
    }
  } catch (const ForeignException& e) {
    call.abandon(e.text());
    throw;
  } catch (...) {
    call.abandon("interrupted");
    throw;
  }
  call.complete(outer);
}

}  // namespace detail
DISTTUNE_NAMESPACE_END
