// The function-level entry points: one tuning a key at a time, whoever else asks for it waits.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/environment.hpp"
#include "core/seconds.hpp"
#include "disttune/detail/attempt.hpp"
#include "measure/stopwatch.hpp"
#include "session/cold_call.hpp"
#include "session/launcher_state.hpp"
#include "session/prepare.hpp"
#include "session/process.hpp"

namespace disttune::session {
namespace {

/// What makes two calls the same cold key in this process.
std::string flight_name(const detail::Call& call) {
  const bool on_device = call.stream.device != nullptr;
  return fmt::format("{}\n{}\n{}:{}\n{}", call.key.text(), call.overwritten.text(),
                     on_device ? call.stream.device->kind() : "host",
                     on_device ? call.stream.device->index() : 0,
                     static_cast<const void*>(call.group));
}

/// Joins the key's flight, or starts it (`mine`).
std::shared_ptr<Flight> board(detail::LauncherState& launcher, const std::string& name,
                              bool& mine) {
  Flights& flights = launcher.flights.get();
  const std::lock_guard lock(flights.mutex);
  auto& flight = flights.by_name[name];
  mine = flight == nullptr;
  if (mine) flight = std::make_shared<Flight>();
  return flight;
}

void land(detail::LauncherState& launcher, const std::string& name, Flight& flight,
          std::optional<detail::Outcome> outcome, std::exception_ptr error) {
  {
    Flights& flights = launcher.flights.get();
    const std::lock_guard lock(flights.mutex);
    flights.by_name.erase(name);
  }
  const std::lock_guard lock(flight.mutex);
  flight.outcome = outcome;
  flight.error = std::move(error);
  flight.done = true;
  flight.ended.notify_all();
}

/// Runs the default in place of a tuning that cannot be waited for: of this key in this thread, or
/// in another one that this thread is inside of, or that may be waiting for this one.
detail::Outcome stand_in(const detail::LauncherSpec& launcher, const detail::Call& call) {
  if (call.group != nullptr && call.group->size() > 1)
    throw Error(fmt::format(
        "disttune: '{}' met a key that is not decided (key {}) while {}; with a group both cannot "
        "go on. Call one of them before the other",
        launcher.name, call.key.text(),
        TuningMark::innermost().empty()
            ? std::string("another thread is tuning it and seems to wait for this call")
            : fmt::format("this thread is tuning {}", TuningMark::innermost())));
  timing::stand_in_sample();
  return {0, false, "busy", false};
}

/// The other thread's outcome; nothing when it was interrupted, and this thread may try. A run may
/// compile for minutes, and one that runs beside it would spoil its times: TIMEOUT is the patience.
std::optional<detail::Outcome> wait_for(Flight& flight, detail::LauncherState& launcher,
                                        const detail::Call& call, detail::Attempt& attempt) {
  const auto patience = core::in_nanoseconds(core::Environment::read().timeout_seconds);
  std::unique_lock lock(flight.mutex);
  while (!flight.done) {
    if (flight.runs.overdue(patience)) return stand_in(launcher.spec, call);
    flight.ended.wait_for(lock, std::chrono::milliseconds(100));
    lock.unlock();
    check_for_interrupt();
    lock.lock();
  }
  if (flight.error) std::rethrow_exception(flight.error);
  if (!flight.outcome) return std::nullopt;
  detail::Outcome outcome = *flight.outcome;
  lock.unlock();  // what follows may be the caller's code
  if (outcome.decided) attempt.decided(outcome.candidate);
  outcome.source = "waited";
  outcome.restore = false;
  return outcome;
}

detail::Outcome fly(detail::LauncherState& launcher, const detail::Call& call,
                    detail::Attempt& attempt, const std::string& name, const std::string& mark,
                    Flight& flight) {
  struct Watched {
    RunClock& runs;
    explicit Watched(RunClock& r) : runs(r) { runs.watch_this_thread(); }
    ~Watched() { runs.stop(); }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
  } const watched(flight.runs);
  try {
    const std::string shown = fmt::format("'{}' for key {}", launcher.spec.name, call.key.text());
    const TuningMark marked(mark, shown);
    if (timing::inside_visit()) timing::spoil_sample();
    const detail::Outcome outcome = ColdCall(launcher, call, attempt).run();
    if (outcome.decided) attempt.decided(outcome.candidate);
    land(launcher, name, flight, outcome, nullptr);
    return outcome;
  } catch (const std::exception&) {
    land(launcher, name, flight, std::nullopt, std::current_exception());
    throw;
  } catch (...) {  // an interrupt of this thread is not the others'
    land(launcher, name, flight, std::nullopt, nullptr);
    throw;
  }
}

}  // namespace
}  // namespace disttune::session

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

Launcher::Launcher(LauncherSpec spec) : m_state(std::make_unique<LauncherState>(std::move(spec))) {}
Launcher::~Launcher() = default;
Launcher::Launcher(Launcher&&) noexcept = default;
Launcher& Launcher::operator=(Launcher&&) noexcept = default;
const LauncherSpec& Launcher::spec() const noexcept { return m_state->spec; }

Outcome decide(const Launcher& launcher, const Call& call, Attempt& attempt) {
  LauncherState& state = launcher.state();
  const std::string name = session::flight_name(call);
  const std::string mark = fmt::format("{}\n{}", static_cast<const void*>(&state), name);
  for (;;) {
    if (session::TuningMark::holds(mark)) return session::stand_in(state.spec, call);
    bool mine = false;
    const auto flight = session::board(state, name, mine);
    if (mine) return session::fly(state, call, attempt, name, mark, *flight);
    if (timing::inside_visit() || session::preparing()) return session::stand_in(state.spec, call);
    if (const auto outcome = session::wait_for(*flight, state, call, attempt)) return *outcome;
  }
}

Explanation explain(const Launcher& launcher, const Call& call,
                    const std::function<bool(std::size_t)>& admits) {
  session::Target target(launcher.state(), call);
  target.fill_in_known_group();
  const session::Field field(launcher.spec().candidates);
  const core::Environment& env = target.settings.environment;
  if (env.mode == core::Mode::off || env.mode == core::Mode::first) {
    Explanation e;
    e.file = target.store.file(launcher.spec().name, target.key).string();
    const bool off = env.mode == core::Mode::off;
    e.source = off ? "default" : "none";
    if (off) e.config = field.config(0);
    e.miss_reason =
        off ? "MODE=off runs entry 0" : "MODE=first runs the first candidate that works, untimed";
    return e;
  }
  const auto lookup = target.store.load(launcher.spec().name, target.key);
  Explanation e;
  e.file = lookup.file.string();
  e.miss_reason = lookup.reason;
  e.source = "none";
  if (lookup.record && env.always_tune && env.mode == core::Mode::tune) {
    e.miss_reason = session::k_always_tune;
  } else if (lookup.record) {
    const auto stored =
        session::choose(*lookup.record, target.deps, target.settings, field, e.miss_reason);
    if (!stored) return e;
    const auto admitted = [&](std::size_t i) { return admits(field.space_index(i)); };
    const auto best = std::ranges::find_if(stored->ranking, admitted);
    if (best == stored->ranking.end()) {
      e.miss_reason = session::k_all_refused;
      return e;
    }
    e.source = lookup.from_layer ? "layer" : "store";
    e.config = field.config(*best);
    e.miss_reason.clear();
    e.differences = stored->differences;
    for (const CandidateRecord& c : stored->tuning.candidates)
      if (c.status == Status::crashed)
        e.differences.push_back(fmt::format("{}: crashed, {}", c.config.display(), c.reason));
    for (const std::size_t i : stored->unknown)
      if (admitted(i))
        e.differences.push_back(fmt::format(
            "{}: not in the record; the next cold call measures {}", field.config(i).display(),
            stored->differences.empty() ? "it against the record's best" : "all candidates anew"));
  } else {
    for (const auto& crash : target.remains().crashed)
      if (const auto at = field.find(crash.candidate))
        e.miss_reason += fmt::format("; {} crashed: a process died while it ran ({})",
                                     field.config(*at).display(), crash.what);
    e.differences = target.store.nearest_differences(launcher.spec().name, target.key);
  }
  return e;
}

std::optional<Record> result(const Launcher& launcher, const Call& call) {
  session::Target target(launcher.state(), call);
  target.fill_in_known_group();
  if (auto lookup = target.store.load(launcher.spec().name, target.key); lookup.record)
    return lookup.record;
  LauncherState& state = launcher.state();
  const std::lock_guard lock(state.records_mutex);
  for (const auto* records : {&state.unstored, &state.written_elsewhere})
    if (const auto kept = records->find(target.key.text()); kept != records->end())
      return kept->second;
  return std::nullopt;
}

void abandon_call(ProcessGroup& group, std::string_view why) noexcept {
  agree::abandon_call(group, why);
}

std::string folder(const Launcher& launcher) {
  const auto settings = session::settings_of(launcher.spec().options, session::k_function_defaults);
  return settings.store(launcher.spec().options).folder(launcher.spec().name).string();
}

}  // namespace detail
DISTTUNE_NAMESPACE_END
