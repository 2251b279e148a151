// A launch inside a contextual call: the context that it belongs to answers it.
#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "session/contextual_call.hpp"
#include "session/prepare.hpp"
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

}  // namespace
}  // namespace disttune::session

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

using session::Field;
using session::RunClock;
using session::WatchedRuns;

ContextualCall::Impl::Tools::Tools(const std::string& name, const ContextualOptions& options)
    : settings(session::contextual_settings(options)),
      agreement(options.group, settings.stopwatch_policy().patience,
                fmt::format("contextual call '{}'", name)),
      log(settings.environment.context_logs, options.rank < 0 ? agreement.rank() : options.rank) {}

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
  if (session::preparing()) return run_first_working(kernel, attempt, nullptr);
  const std::lock_guard lock(mutex);
  if (RunClock::in_run()) RunClock::run_begins();  // the outer function is getting on
  made_tools().agreement.goes_on();
  Call call = launch;
  if (!call.stream.device) call.stream = host();
  if (answered_untuned(kernel, call, attempt)) return;
  const auto found = index.find(
      {&kernel, call.key, std::string(call.stream.device->kind()), call.stream.device->index()});
  if (found == index.end() && final_pass)  // met only now: the next call tunes it
    return run_first_working(kernel, attempt, nullptr);
  Context& context =
      found == index.end() ? context_of(kernel, call, attempt) : found->second->context;
  if (context.open())
    for (Context* outer : launching) outer->wait_for(context);
  if (!launching.empty()) context.is_below(*launching.front());
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
  const bool one_run =
      tools->agreement.alone() && tools->settings.environment.mode != core::Mode::tune;
  if (!one_run && call.stream.device->capturing(call.stream.handle))
    throw CaptureError(
        fmt::format("disttune: contextual call '{}' met kernel '{}' with a new key while its "
                    "stream is being captured; call it once before the capture. Key: {}",
                    name, kernel.spec().name, call.key.text()));
  contexts.push_back(std::make_unique<FoundContext>(kernel, call, attempt, tools->settings,
                                                    tools->agreement, tools->log,
                                                    kept_choice(kernel, call)));
  index[{&kernel, call.key, std::string(call.stream.device->kind()), call.stream.device->index()}] =
      contexts.back().get();
  return contexts.back()->context;
}

std::unique_ptr<session::KeptChoice> ContextualCall::Impl::kept_choice(const Launcher& kernel,
                                                                       const Call& call) const {
  if (!options.persist) return nullptr;
  return std::make_unique<session::KeptChoice>(kernel, call, tools->settings, name);
}

/// What ranks have compared once; with a candidate's identity behind it: what they run.
std::string ContextualCall::Impl::untuned_note(const Launcher& kernel, const Value& key) const {
  return fmt::format("MODE={} {} {} {} ", session::mode_text(tools->settings.environment.mode),
                     name, kernel.spec().name, key.text());
}

/// What needs neither a choice nor another pass: MODE off, MODE first alone, and what all ranks
/// run already for want of a choice.
bool ContextualCall::Impl::answered_untuned(const Launcher& kernel, const Call& call,
                                            Attempt& attempt) {
  const core::Mode mode = tools->settings.environment.mode;
  const bool alone = tools->agreement.alone();
  if (mode == core::Mode::tune || mode == core::Mode::strict) return false;
  if (mode == core::Mode::first && alone) {
    run_first_working(kernel, attempt, kept_choice(kernel, call).get());
    return true;
  }
  const auto& space = kernel.spec().candidates;
  const auto run = [&](std::size_t candidate) {
    attempt.begin_visit(candidate, 1);
    attempt.run(candidate);
    return true;
  };
  if (mode == core::Mode::off) {
    if (!alone) {
      std::vector<Value> identities;
      for (const Config& config : space) identities.push_back(config.identity());
      untuned.emplace(untuned_note(kernel, call.key), Value::list(identities));
      stream = call.stream;
    }
    return run(0);
  }
  if (alone) return false;
  const std::string note = untuned_note(kernel, call.key);
  for (std::size_t i = 0; i < space.size(); ++i)
    if (tools->agreement.remembers(note + std::string(space[i].identity().text()))) return run(i);
  return false;
}

void ContextualCall::Impl::run_first_working(const Launcher& kernel, Attempt& attempt,
                                             session::KeptChoice* kept) {
  Field field(kernel.spec().candidates);
  field.prune(attempt);
  if (kept != nullptr) kept->leave_out_crashed(field);
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

}  // namespace detail
DISTTUNE_NAMESPACE_END
