#include "measure/stopwatch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "disttune/error.hpp"
#include "measure/failure.hpp"
#include "measure/gate.hpp"
#include "measure/nesting.hpp"
#include "measure/waiting.hpp"

namespace disttune::timing {
namespace {

using core::Retry;
using core::TimingMode;
using std::chrono::nanoseconds;

/// The gate's shortest bound: longer than any launch, short enough to pay once or twice a tuning.
constexpr std::chrono::milliseconds k_shortest_bound{50};
/// By how much the device's work must outlast the launching that goes on meanwhile: no two launches
/// take the same time, and a candidate may be faster than all before it.
constexpr double k_ahead = 1.25;
/// How long a failed candidate's queued work may still take before the failure is reported.
constexpr std::chrono::seconds k_failure_drain{10};
/// The same on the way out with the caller's own exception, who wants to get on with it.
constexpr std::chrono::seconds k_exit_drain{1};
/// No run takes a year: a clock that says so is broken.
constexpr std::int64_t k_absurd_ns = std::int64_t{365} * 24 * 3600 * 1'000'000'000;

std::int64_t checked(std::int64_t ns) {
  return ns > 0 && ns < k_absurd_ns ? ns : core::sample_of(Retry::bad_clock);
}
std::int64_t difference(std::int64_t from, std::int64_t to) {
  std::int64_t ns = 0;
  return __builtin_sub_overflow(to, from, &ns) ? -1 : ns;
}
double seconds(nanoseconds ns) { return std::chrono::duration<double>(ns).count(); }
std::unique_ptr<StreamTimer> opened(Device& device, void* stream, std::size_t samples) {
  if (auto timer = device.open(stream, samples)) return timer;
  throw Error(
      fmt::format("disttune: the device '{}' {} opened no timer: Device::open returned null",
                  device.kind(), device.index()));
}

}  // namespace

struct Stopwatch::Impl {
  Impl(const Stream& on, Policy with, std::size_t samples)
      : device(on.device ? on.device : host().device),
        policy(complete(std::move(with))),
        timer(opened(*device, on.device ? on.handle : nullptr, samples)),
        gate(*timer, scripted ? policy.now : Now{}),
        readings(samples) {
    if (timer->capturing())
      throw CaptureError(
          "disttune: a new key was met while its stream is being captured into a graph; call once "
          "with these arguments before the capture");
    if (host_timed()) mode = TimingMode::ungated;
  }

  Policy complete(Policy with) {
    scripted = bool(with.now);
    if (!scripted) with.now = [] { return std::chrono::steady_clock::now(); };
    return with;
  }

  // ---- one visit ------------------------------------------------------------------------------
  VisitEnd visit(const Visit& visit, detail::Attempt& attempt, std::span<std::int64_t> samples,
                 std::span<std::int64_t> host_ns);
  void perform(const Visit& visit, detail::Attempt& attempt, Nesting& nesting,
               std::span<std::int64_t> samples, std::span<std::int64_t> host_ns);
  std::optional<Retry> timed_run(const Visit& visit, detail::Attempt& attempt, Nesting& nesting,
                                 std::size_t i, std::int64_t& host_ns);
  void warm_up(const Visit& visit, detail::Attempt& attempt);
  void capture(const Visit& visit, detail::Attempt& attempt);
  void after_failure(const Visit& visit, VisitEnd& end);

  // ---- one sample -----------------------------------------------------------------------------
  template <class Launch>
  std::int64_t marked(std::size_t slot, const Launch& launch);
  std::int64_t elapsed(std::size_t slot) {
    return checked(host_timed() ? readings[slot] : timer->elapsed_ns(slot));
  }
  void close_gate() {
    if (mode != TimingMode::ungated && !gate.close(bound())) weaken(TimingMode::ungated);
  }
  /// Opens the gate; true when it had stalled: then gates are used more carefully from here on.
  bool open_gate(TimingMode next) {
    gate.open();
    if (!gate.take_stalled()) return false;
    weaken(next);
    return true;
  }
  /// Opens the gate of `gate_a_visit` and waits. `behind`: the samples of the runs behind it, worth
  /// nothing where it had stalled.
  void let_run(std::span<std::int64_t> behind) {
    if (open_gate(TimingMode::gate_a_run))
      std::ranges::fill(behind, core::sample_of(Retry::stalled));
    drain();
  }

  void drain() { waiting.drain(policy.patience); }

  /// Work is done when the launcher returns: its result need not be kept, and the next run finds
  /// the memory as a caller's would.
  [[nodiscard]] bool works_on_host() const { return device->clock() == "host"; }
  /// No clock is read beside the marks then.
  [[nodiscard]] bool marks_are_host_time() const { return works_on_host() && !host_timed(); }
  [[nodiscard]] bool pipelined() const { return policy.alone && !policy.cold; }
  /// Whether the device, once it may begin with the `queued` runs, will be busy until the other
  /// `left` are queued too, each of which takes the host as long as one of those has since `began`:
  /// the last must be queued before all others have run, and the next two before the queued ones
  /// have, for the case that one of the two takes twice as long. How long a run takes the device is
  /// not known yet: the fastest run's time stands for it. Where that is too long, one run more
  /// finds the device idle.
  [[nodiscard]] bool outlasts(std::size_t queued, std::size_t left, Deadline began) const {
    if (!fastest_ns || queued == 0) return false;
    const auto ready = static_cast<double>(queued), rest = static_cast<double>(left);
    const auto work = static_cast<double>(*fastest_ns);
    const double launch =
        k_ahead * static_cast<double>(nanoseconds(policy.now() - began).count()) / ready;
    return ready * work >= std::min(2.0, rest) * launch &&
           (ready + rest - 1) * work >= rest * launch;
  }
  [[nodiscard]] bool host_timed() const { return policy.host_clock || policy.clock; }
  [[nodiscard]] std::int64_t read_clock() const {
    if (policy.clock) return passing(policy.clock);
    return nanoseconds(policy.now().time_since_epoch()).count();
  }
  [[nodiscard]] nanoseconds bound() const {
    return std::max<nanoseconds>(k_shortest_bound, 5 * usual_host_time);
  }
  void weaken(TimingMode to) noexcept { mode = std::max(mode, to); }

  std::shared_ptr<Device> device;
  bool scripted = false;
  Policy policy;
  std::unique_ptr<StreamTimer> timer;
  Gate gate;
  TimingMode mode = TimingMode::gate_a_visit;
  Waiting waiting{*timer, policy.now, policy.poll};
  std::vector<std::int64_t> readings;      ///< host-timed samples
  nanoseconds usual_host_time{};           ///< of the candidate at hand, from its untimed runs
  std::optional<std::int64_t> fastest_ns;  ///< of all samples so far
  std::string_view stage;                  ///< what the attempt is asked for, for a failure's text
  struct Taken {
    std::size_t slot;
    std::optional<Retry> retry;
  };
  bool stand_ins_count = false;
  std::vector<Taken> taken;  ///< by `timed`, since the last `collect`
};

VisitEnd Stopwatch::Impl::visit(const Visit& visit, detail::Attempt& attempt,
                                std::span<std::int64_t> samples, std::span<std::int64_t> host_ns) {
  if (visit.timed > readings.size() || samples.size() != visit.timed ||
      host_ns.size() != visit.timed)
    throw std::logic_error("disttune: a visit does not fit its stopwatch");
  Nesting nesting(gate);
  nesting.accept_stand_ins(stand_ins_count);
  waiting.catch_up(policy.patience);

  struct Settle {  // whatever leaves here
    Impl& impl;
    detail::Attempt& attempt;
    bool drained = false;
    ~Settle() {
      impl.gate.open();
      static_cast<void>(impl.gate.take_stalled());
      try {
        if (!drained) static_cast<void>(impl.waiting.drained(k_exit_drain));
      } catch (...) {  // what is already on its way says more
      }
      attempt.drop_results();
    }
  } settle{*this, attempt};

  VisitEnd end;
  try {
    perform(visit, attempt, nesting, samples, host_ns);
  } catch (const Passing& p) {
    std::rethrow_exception(p.cause);
  } catch (const Late&) {
    waiting.leave_behind(fmt::format("candidate #{}", visit.candidate));
    end = {Status::timed_out, fmt::format("{}: its work on the device had not ended after {:g} s",
                                          stage, seconds(policy.patience))};
  } catch (const DeviceLost& e) {
    throw DeviceLost(fmt::format("candidate #{}: {}: {}", visit.candidate, stage, e.what()));
  } catch (const std::exception& e) {
    end = failure_of(stage, e);
  }
  if (end.status != Status::ok) {
    settle.drained = true;
    after_failure(visit, end);
    std::ranges::fill(samples, core::sample_of(end.status));
  }
  settle.drained = true;
  return end;
}

void Stopwatch::Impl::perform(const Visit& visit, detail::Attempt& attempt, Nesting& nesting,
                              std::span<std::int64_t> samples, std::span<std::int64_t> host_ns) {
  stage = "visit set-up";
  attempt.begin_visit(visit.candidate, std::size_t{visit.untimed} + visit.timed);
  warm_up(visit, attempt);
  if (visit.timed == 0) return;
  if (policy.graph) capture(visit, attempt);

  stage = "timed run";
  constexpr std::int64_t k_unread = 0;
  std::ranges::fill(samples, k_unread);
  const auto run = [&](std::size_t i) {
    const auto retry = timed_run(visit, attempt, nesting, i, host_ns[i]);
    if (retry) samples[i] = core::sample_of(*retry);
  };
  const Deadline began = policy.now();
  bool ahead = false;     // the runs queued by then have gone ahead
  std::size_t first = 0;  // of the runs behind the gate at hand
  const auto end_piece = [&](std::size_t i) {
    let_run(samples.subspan(first, i - first));
    if (!policy.graph) attempt.drop_results();
    first = i;
  };
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i > 0 && policy.alone && policy.cold && mode == TimingMode::gate_a_visit) end_piece(i);
    if (!ahead && pipelined() && gate.closed() && outlasts(i, samples.size() - i, began)) {
      gate.advance();
      ahead = true;
    }
    try {
      run(i);
    } catch (const std::exception& e) {
      // All results are kept while one gate is closed: they may be what fills the memory.
      if (i == first || mode != TimingMode::gate_a_visit ||
          failure_of(stage, e).status != Status::out_of_resources)
        throw;
      end_piece(i);
      weaken(TimingMode::gate_a_run);
      run(i);
    }
  }
  stage = "end of visit";
  let_run(samples.subspan(first));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] == k_unread) {
      samples[i] = elapsed(i);
      if (!core::is_retry(samples[i]))
        fastest_ns = std::min(samples[i], fastest_ns.value_or(samples[i]));
    }
    if (marks_are_host_time()) host_ns[i] = std::max<std::int64_t>(timer->elapsed_ns(i), 0);
  }
}

std::optional<Retry> Stopwatch::Impl::timed_run(const Visit& visit, detail::Attempt& attempt,
                                                Nesting& nesting, std::size_t i,
                                                std::int64_t& host_ns) {
  nesting.fresh();
  attempt.before_run();
  close_gate();
  if (policy.cold) timer->flush();
  host_ns = marked(i, [&] {
    if (policy.graph)
      timer->replay();
    else
      attempt.run(visit.candidate);
  });
  std::optional<Retry> retry;
  if (nesting.spoiled()) retry = Retry::spoiled;
  bool done = host_timed() || works_on_host();
  if (mode == TimingMode::gate_a_run) {
    if (open_gate(TimingMode::ungated)) retry = Retry::stalled;
    drain();  // each run finds the device's queue empty
    done = true;
  }
  if (done && !policy.graph) attempt.drop_results();  // a graph's results are written again
  return retry;
}

void Stopwatch::Impl::warm_up(const Visit& visit, detail::Attempt& attempt) {
  stage = "warm-up";
  nanoseconds longest{};
  for (int i = 0; i < visit.untimed; ++i) {
    attempt.before_run();
    const bool gated = mode != TimingMode::ungated;  // else nobody needs to know how long it takes
    const Deadline began = gated ? policy.now() : Deadline{};
    attempt.run(visit.candidate);
    const nanoseconds took = gated ? policy.now() - began : nanoseconds{};
    // The first run may compile and load: it says nothing of the timed ones where others do.
    longest = i == 1 ? took : std::max(longest, took);
    if (works_on_host()) attempt.drop_results();
  }
  if (visit.untimed > 0) usual_host_time = longest;
  const bool goes_on = pipelined() && mode == TimingMode::gate_a_visit && visit.timed > 0;
  if (!goes_on || policy.graph) drain();
  attempt.drop_results();
}

void Stopwatch::Impl::capture(const Visit& visit, detail::Attempt& attempt) {
  stage = "graph capture";
  if (!timer->begin_capture())
    throw Passing{std::make_exception_ptr(
        Error(fmt::format("disttune: timer=\"graph\": a {} stream cannot be captured into a graph; "
                          "use timer=\"auto\"",
                          device->kind())))};
  try {
    attempt.run(visit.candidate);
  } catch (...) {
    try {
      timer->end_capture();
    } catch (...) {  // a capture that broke off cannot end well; the launch's own error is the one
    }
    throw;
  }
  timer->end_capture();
  stage = "graph replay";
  attempt.before_run();
  timer->replay();  // the first one loads the graph onto the device
  drain();
}

template <class Launch>
std::int64_t Stopwatch::Impl::marked(std::size_t slot, const Launch& launch) {
  // The host's time is read outside the marks where they are readings of a host clock, else between
  // them: each where it costs the sample nothing. A host device's marks are that time (`perform`).
  Deadline began;
  Deadline ended;
  if (host_timed()) {
    drain();
    began = policy.now();
    const std::int64_t start = read_clock();
    launch();
    drain();
    readings[slot] = difference(start, read_clock());
    ended = policy.now();
  } else if (marks_are_host_time()) {
    timer->start(slot);
    launch();
    timer->stop(slot);
  } else {
    timer->start(slot);
    gate.progress();
    began = policy.now();
    launch();
    ended = policy.now();
    gate.progress();
    timer->stop(slot);
  }
  return nanoseconds(ended - began).count();
}

void Stopwatch::Impl::after_failure(const Visit& visit, VisitEnd& end) {
  const auto lost = [&](std::string_view why) {
    return DeviceLost(
        fmt::format("disttune: the device is lost: {}; this followed candidate #{} ({}: {})", why,
                    visit.candidate, to_string(end.status), end.reason));
  };
  gate.open();
  try {
    if (!waiting.left_behind() && !unwrapped([&] { return waiting.drained(k_failure_drain); })) {
      waiting.leave_behind(fmt::format("candidate #{}", visit.candidate));
      end.reason +=
          fmt::format("; what it had queued had not ended {:g} s later", seconds(k_failure_drain));
    }
  } catch (const DeviceLost& e) {
    throw lost(e.what());
  }
  if (const auto fault = timer->fault()) throw lost(*fault);
}

Stopwatch::Stopwatch(const Stream& stream, Policy policy, std::size_t samples)
    : m_impl(std::make_unique<Impl>(stream, std::move(policy), samples)) {}
Stopwatch::~Stopwatch() = default;

void Stopwatch::catch_up() { m_impl->waiting.catch_up(m_impl->policy.patience); }

VisitEnd Stopwatch::visit(const Visit& visit, detail::Attempt& attempt,
                          std::span<std::int64_t> samples, std::span<std::int64_t> host_ns) {
  return m_impl->visit(visit, attempt, samples, host_ns);
}

std::int64_t Stopwatch::timed(std::size_t sample, const std::function<void()>& before,
                              const std::function<void()>& launch) {
  Impl& m = *m_impl;
  if (sample >= m.readings.size())
    throw std::logic_error("disttune: a timed launch does not fit its stopwatch");
  struct Open {
    Gate& gate;
    ~Open() {
      gate.open();
      static_cast<void>(gate.take_stalled());
    }
  } open{m.gate};
  Nesting nesting(m.gate);
  if (before) before();
  nesting.fresh();
  m.close_gate();
  if (m.policy.cold) m.timer->flush();
  std::int64_t host_ns = 0;
  try {
    host_ns = m.marked(sample, launch);
  } catch (const Passing& p) {
    std::rethrow_exception(p.cause);
  } catch (const Late&) {
    throw DeviceLost(fmt::format("disttune: the stream's work had not ended after {:g} s",
                                 seconds(m.policy.patience)));
  }
  std::optional<Retry> retry;
  if (nesting.spoiled()) retry = Retry::spoiled;
  if (m.open_gate(TimingMode::ungated)) retry = Retry::stalled;
  m.taken.push_back({sample, retry});
  return host_ns;
}

void Stopwatch::collect(std::span<std::int64_t> samples) {
  Impl& m = *m_impl;
  if (samples.size() != m.taken.size())
    throw std::logic_error("disttune: as many samples are collected as launches were timed");
  const auto taken = std::exchange(m.taken, {});
  if (!unwrapped([&] { return m.waiting.drained(m.policy.patience); })) {
    std::ranges::fill(samples, core::sample_of(Status::timed_out));
    return;
  }
  std::ranges::transform(taken, samples.begin(), [&](const Impl::Taken& t) {
    return t.retry ? core::sample_of(*t.retry) : m.elapsed(t.slot);
  });
}

TimingMode Stopwatch::mode() const noexcept { return m_impl->mode; }
void Stopwatch::weaken(TimingMode mode) noexcept { m_impl->weaken(mode); }
void Stopwatch::accept_stand_ins(bool accept) noexcept { m_impl->stand_ins_count = accept; }
std::string_view Stopwatch::gate() const noexcept {
  return m_impl->gate.used() ? m_impl->timer->gate() : "none";
}

}  // namespace disttune::timing
