// A contextual call: passes of the outer function until every context that it reached is decided,
// then once more. Collectives happen between passes only.
#include "disttune/contextual.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "observe/observe.hpp"
#include "session/contextual_call.hpp"
#include "session/process.hpp"
#include "session/watched_attempt.hpp"

namespace disttune::session {
namespace {

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

using session::DeviceTurn;
using session::WatchedRuns;

void ContextualCall::Impl::run_pass(const std::function<void(Pass&)>& outer) {
  const session::Running running(*this, name);
  {
    const std::lock_guard lock(mutex);
    for (const auto& f : contexts) f->context.next_pass(final_pass);
  }
  const WatchedRuns watched;
  outer(*this);
}

/// Why a kernel of the last pass had nothing left to run on this rank; empty: none had.
std::string ContextualCall::Impl::stuck() {
  const std::lock_guard lock(mutex);
  if (!tools || tools->agreement.alone() || final_pass) return {};
  for (const auto& f : contexts)
    if (!f->context.stuck().empty())
      return fmt::format("{}\n  (on rank {})", f->context.stuck(), tools->agreement.rank());
  return {};
}

/// The outer function has thrown. Where a kernel had nothing left to run, with ranks, that becomes
/// the same error everywhere: what it made of the outer function on this rank is not told.
bool ContextualCall::Impl::settled_between_passes() { return !(broken = stuck()).empty(); }
bool ContextualCall::Impl::settled_between_passes(const std::exception& error) {
  return dynamic_cast<const DeviceLost*>(&error) == nullptr && settled_between_passes();
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
    agreement.run([this] { compare_untuned(); });
  else if (found_any)
    agreement.run([&] { tune(outer); });
  // Where no other rank was needed: those that wait for this one hear that it is gone.
  agreement.abandon("the call had nothing to decide on this rank");
}

/// A rank that does not tune meets the handshake of those that do; once for each key, since ranks
/// that all do not tune have nothing to say to each other but what their first candidates are.
void ContextualCall::Impl::compare_untuned() {
  const std::lock_guard lock(mutex);
  agree::Agreement& a = tools->agreement;
  if (std::ranges::all_of(untuned, [&](auto& met) { return a.remembers(met.first); })) return;
  shake_hands();
  std::vector<std::pair<Value, Value>> lists;
  for (const auto& [met, candidates] : untuned) lists.emplace_back(Value(met), candidates);
  a.same("kernels, keys and candidates of MODE=off", Value::dict(std::move(lists)));
  for (const auto& [met, candidates] : untuned) a.remember(met);
  a.ended_alike();
}

void ContextualCall::Impl::tune(const std::function<void(Pass&)>& outer) {
  const bool tunes = tools->settings.environment.mode == core::Mode::tune;
  const Stream first = first_stream();
  std::unique_ptr<DeviceTurn> turn;
  if (tunes)
    turn = DeviceTurn::take(*first.device, first.device->fingerprint(), true,
                            tools->agreement.alone());
  meet();
  const auto contended = [&] { return tunes && (turn == nullptr || turn->contended()); };
  while (another_pass()) {
    if (tools->agreement.alone()) save_decided(contended());
    try {
      run_pass(outer);
    } catch (const std::exception& e) {
      if (!settled_between_passes(e)) throw;
    }
  }
  agree_on_decisions();
  const bool beside = contended();
  turn.reset();
  publish(beside);
  // The first pass ran the winners already where nothing was left to decide.
  if (!std::ranges::all_of(contexts, [](auto& f) { return f->context.was_settled_alone(); }))
    run_pass(outer);
}

Stream ContextualCall::Impl::first_stream() {
  const std::lock_guard lock(mutex);
  return stream = contexts.front()->stream;
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
  agree::Agreement& agreement = tools->agreement;
  for (const auto& f : contexts)
    if (f->context.tuned()) f->context.know(agreement.medians(f->context.own_median_ns()));
  agreement.finish(decision_text());
  for (const auto& f : contexts)
    if (f->context.makeshift())
      agreement.remember(untuned_note(f->context.kernel(), f->context.key()) +
                         std::string(f->context.winner_identity().text()));
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
  if (!tools->agreement.alone()) {
    // MODE first takes what works, whatever was chosen.
    if (tools->settings.environment.mode != core::Mode::first)
      session::settle_what_all_hold(tools->agreement, contexts, agreed, options.persist);
    session::compare_progress(tools->agreement, contexts);
  }
  bool open = false;
  bool moved = false;
  for (const auto& f : contexts) {
    Context& c = f->context;
    if (!c.open()) continue;
    c.step_between_passes();
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
  // As a call of a tuned launcher does at a group's first use: whichever meets which is told.
  static_cast<void>(tools->agreement.shape(stream.device->fingerprint()));
  agreed = session::shake_hands(tools->agreement, name, tools->settings, options.persist,
                                kept != nullptr ? kept->store_id() : 0);
}

void ContextualCall::Impl::compare_pass() {
  if (!tools->agreement.alone())
    session::compare_pass(tools->agreement, name, contexts, std::exchange(broken, {}));
}

void ContextualCall::Impl::warn_starved(const Context& c) const {
  observe::message(
      Level::warning,
      fmt::format("disttune: contextual call '{}': kernel '{}' (key {}) was not launched in three "
                  "passes; it stays undecided",
                  name, c.kernel().spec().name, c.key().text()),
      fmt::format("starved {} {}", name, c.kernel().spec().name));
}

/// What is decided so far: alone after every pass, since who is ended before the last one has tuned
/// these for good.
void ContextualCall::Impl::save_decided(bool contended) {
  const std::lock_guard lock(mutex);
  for (const auto& f : contexts) {
    // A rank that can write nowhere tries all the same: that warns.
    if (!f->kept || f->saved || !(agreed.writer || f->kept->store_id() == 0)) continue;
    if (f->context.tuned()) {
      if (tools->agreement.alone())
        f->context.know(tools->agreement.medians(f->context.own_median_ns()));
      f->kept->save(f->context.tuning_record(contended));
    } else if (f->adopted && f->context.decided()) {
      f->kept->save(*f->adopted);
    } else {
      continue;
    }
    f->saved = true;
  }
}

void ContextualCall::Impl::publish(bool contended) {
  save_decided(contended);
  if (!decided) return;
  for (const auto& f : contexts)
    if (f->context.decided())
      decided(f->context.kernel(), f->context.key(), f->context.tuning_record(contended),
              f->context.winner());
}

std::string ContextualCall::Impl::decision_text() const {
  std::string text;
  for (const auto& f : contexts)
    text += fmt::format("{} {} {}\n", f->context.kernel().spec().name, f->context.key().text(),
                        f->context.decided() || f->context.makeshift()
                            ? fmt::format("{}", f->context.winner())
                            : "undecided");
  return text;
}

ContextualCall::ContextualCall(std::string name, ContextualOptions options, ContextDecided decided)
    : m_impl(std::make_unique<Impl>(std::move(name), std::move(options), std::move(decided))) {}
ContextualCall::~ContextualCall() = default;
Pass& ContextualCall::pass() noexcept { return *m_impl; }
void ContextualCall::complete(const std::function<void(Pass&)>& outer) { m_impl->complete(outer); }
void ContextualCall::abandon(std::string_view why) noexcept { m_impl->announce_failure(why); }
bool ContextualCall::settled_by_complete() { return m_impl->settled_between_passes(); }
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
