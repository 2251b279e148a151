#include "session/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/sha256.hpp"
#include "core/statistics.hpp"
#include "core/text.hpp"
#include "measure/failure.hpp"
#include "session/checked_attempt.hpp"
#include "session/kept_choice.hpp"
#include "session/prepare.hpp"
#include "session/process.hpp"

namespace disttune::session {

namespace {

/// Timed launches of one context in one pass; the steps beyond wait for the next pass.
constexpr std::size_t k_samples_a_pass = 64;

double seconds_of(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Context::Context(const detail::Launcher& kernel, const detail::Call& call, detail::Attempt& attempt,
                 const Settings& settings, agree::Agreement& agreement, observe::ContextLog& log,
                 KeptChoice* kept)
    : m_kernel(kernel),
      m_key(call.key),
      m_deps(software_of(*call.stream.device)),
      m_clock(settings.clock_text(*call.stream.device)),
      m_settings(settings),
      m_agreement(agreement),
      m_log(log),
      m_kept_choice(kept),
      m_field(kernel.spec().candidates),
      m_reasons(m_field.size()),
      m_looked_at(m_field.size()) {
  m_field.prune(attempt);
  if (kept != nullptr && !settings.environment.retry_crashed)
    leave_out_crashed(kept->remains(), m_field);
  if (m_field.open().empty() && agreement.alone())
    throw NoValidConfig(m_field.failure_text(kernel.spec().name));
  hold(attempt.held());
  if (kept != nullptr && !m_held)
    if (const auto stored = kept->load(Value())) start_from(*stored, !stored->differences.empty());
  if (agreement.alone() && m_held) {
    m_settled_alone = true;
    settle_held();
    return;
  }
  prepare(attempt);
  if (agreement.alone()) begin_measuring();
}

void Context::hold(std::optional<std::size_t> candidate) {
  const auto& space = m_kernel.spec().candidates;
  if (m_held || !candidate || *candidate >= space.size()) return;
  m_held = m_field.find(space[*candidate].identity());
  if (m_held && !m_field.is_open(*m_held)) m_held.reset();
}

/// The stored best is the choice; where candidates are new, it is measured beside these, and beside
/// all where samples of other versions would count as those of this one. By what ranks agree on:
/// the candidates that pruning left in.
void Context::start_from(const StoredChoice& stored, bool other_versions) {
  const auto admitted = [&](std::size_t i) {
    return m_field.records()[i].status != Status::pruned;
  };
  const auto best = std::ranges::find_if(stored.ranking, admitted);
  if (best == stored.ranking.end()) return;
  m_held.reset();
  if (std::ranges::none_of(stored.unknown, admitted)) {
    m_held = *best;
    warn_of_versions(m_kernel.spec().name, stored.differences, m_key.text());
    return;
  }
  m_incumbent = *best;
  if (!other_versions) m_kept = take_over(stored, *best, m_field);
}

void Context::adopt(const StoredChoice& stored, bool other_versions) {
  start_from(stored, other_versions);
  if (m_held) settle_held();
}

/// Inside the launch that found the context, since only there its arguments are at hand; nothing is
/// launched by it and no rank is waited for.
void Context::prepare(detail::Attempt& attempt) {
  if (!attempt.can_prepare()) return;
  m_compiled_ahead = true;
  const auto began = std::chrono::steady_clock::now();
  prepare_candidates(m_field, m_field.open(), attempt, m_settings.environment.workers);
  m_prepare_seconds = seconds_of(std::chrono::steady_clock::now() - began);
  for (std::size_t i = 0; i < m_field.size(); ++i) {
    const CandidateRecord& record = m_field.records()[i];
    if (!m_field.is_open(i) && record.status != Status::pruned)
      m_log.line(fmt::format("{} {}: {}", line_about(i), to_string(record.status), record.reason));
  }
  if (m_field.open().empty() && m_agreement.alone())
    throw NoValidConfig(m_field.failure_text(m_kernel.spec().name));
}

std::string Context::line_about(std::size_t i) const {
  return fmt::format("{} key {} candidate {} [{}]", m_kernel.spec().name, m_key.text(),
                     m_field.space_index(i), m_field.config(i).display());
}

void Context::next_pass() noexcept {
  m_launches = 0;
  m_timed_steps = 0;
  m_told = false;
}

bool Context::waits_for_vote() const noexcept {
  return m_phase == Phase::found ||
         (m_phase == Phase::first_runs && m_next_first_run == m_who.size());
}

void Context::launch(const detail::Call& call, detail::Attempt& attempt) {
  ++m_launches;
  switch (m_phase) {
    case Phase::decided:
      // Once a pass: the front may have to put something back that a tuning's runs left behind.
      if (!std::exchange(m_told, true)) attempt.decided(winner());
      if (tuned() && !std::exchange(m_final_run, true)) attempt.before_final_run();
      attempt.run(winner());
      return;
    case Phase::measuring:
      take_step(call, attempt);
      return;
    case Phase::first_runs:
      first_run(attempt);
      return;
    case Phase::found:
    case Phase::given_up:
      run_stand_in(attempt);
      return;
  }
}

/// Alone, a failing candidate gives way to the next one within the same launch. With ranks its
/// failure is a value, and the default runs in its place, so that the outer function goes on and
/// every rank takes as many steps.
void Context::take_step(const detail::Call& call, detail::Attempt& attempt) {
  while (const auto step = m_tuning->next()) {
    m_progress = true;
    if (step->timed && m_timed_steps == k_samples_a_pass) {
      m_tuning->put_back();
      break;
    }
    if (step->timed) ++m_timed_steps;
    if (m_tuning->failed(*step)) {
      m_moved = true;
      break;
    }
    if (run_step(*step, call, attempt)) return;
    if (!m_agreement.alone()) break;
  }
  run_stand_in(attempt);
}

void Context::run_untimed(std::size_t i, detail::Attempt& attempt) {
  const std::size_t entry = m_field.space_index(i);
  attempt.begin_visit(entry, 1);
  attempt.before_run();
  if (!checked() || std::exchange(m_looked_at[i], char{1}) != 0) return attempt.run(entry);
  CheckedAttempt(attempt).run(entry);
}

bool Context::run_step(const Step& step, const detail::Call& call, detail::Attempt& attempt) {
  const std::size_t i = m_who[step.candidate];
  const std::size_t entry = m_field.space_index(i);
  m_agreement.visiting(static_cast<std::uint32_t>(i), m_field.config(i).display());
  const bool timed = step.timed && !blocked();
  const Value& identity = m_field.config(i).identity();
  if (m_kept_choice != nullptr) m_kept_choice->begins(identity);
  try {
    if (timed) {
      auto& watch = stopwatch(call.stream);
      auto& pending = m_watches[{call.stream.device.get(), call.stream.handle}].pending;
      attempt.begin_visit(entry, 1);
      watch.timed(
          pending.size(), [&] { attempt.before_run(); }, [&] { attempt.run(entry); });
      pending.emplace_back(step);
      if (blocked()) pending.back().reset();
    } else {
      run_untimed(i, attempt);
      m_log.line(line_about(i) + " untimed");
    }
    if (m_kept_choice != nullptr) m_kept_choice->ended(identity, Status::ok, {});
    if (blocked())
      m_tuning->put_back();
    else
      m_moved = true;
    return true;
  } catch (const DeviceLost&) {
    if (m_kept_choice != nullptr) m_kept_choice->lost();
    throw;
  } catch (const std::exception& e) {
    m_tuning->finish(step, core::sample_of(timing::failure_of("launch", e).status));
    m_moved = true;
    failed(i, e);
    return false;
  }
}

void Context::first_run(detail::Attempt& attempt) {
  if (m_next_first_run == m_who.size()) return run_stand_in(attempt);
  m_progress = true;
  const std::size_t i = m_who[m_next_first_run];
  m_agreement.visiting(static_cast<std::uint32_t>(i), m_field.config(i).display());
  try {
    run_untimed(i, attempt);
    m_log.line(line_about(i) + " untimed");
    if (!blocked()) {
      ++m_next_first_run;
      m_moved = true;
    }
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& e) {
    ++m_next_first_run;
    m_moved = true;
    failed(i, e);
    run_stand_in(attempt);
  }
}

/// The first candidate that has not failed: the stored best, else entry 0, wherever it works.
void Context::run_stand_in(detail::Attempt& attempt) {
  const std::size_t first = m_incumbent.value_or(0);
  for (std::size_t k = 0; k < m_field.size(); ++k) {
    const std::size_t i = k == 0 ? first : k - (k <= first ? 1 : 0);
    if (!m_reasons[i].empty() || (!m_field.is_open(i) && m_field.records()[i].status != Status::ok))
      continue;
    try {
      return run_untimed(i, attempt);
    } catch (const DeviceLost&) {
      throw;
    } catch (const std::exception& e) {
      failed(i, e);
    }
  }
  for (std::size_t i = 0; i < m_field.size(); ++i)
    if (m_field.is_open(i)) m_field.end(i, Status::launch_failed, m_reasons[i]);
  m_stuck = m_field.failure_text(m_kernel.spec().name);
  throw NoValidConfig(m_stuck);
}

/// Nothing launches candidate `i` on this rank any more. Before the vote that is all that peers
/// hear of it; in a batch the failed visit tells them.
void Context::failed(std::size_t i, const std::exception& error) {
  const auto [status, reason] = timing::failure_of("launch", error);
  m_agreement.candidate_failed(static_cast<std::uint32_t>(i));
  m_log.line(fmt::format("{} {}: {}", line_about(i), to_string(status), reason));
  m_reasons[i] = reason;
  if (m_kept_choice != nullptr) m_kept_choice->ended(m_field.config(i).identity(), status, reason);
  if (m_phase == Phase::found || m_phase == Phase::first_runs) m_field.end(i, status, reason);
}

timing::Stopwatch& Context::stopwatch(const Stream& stream) {
  auto& timed = m_watches[{stream.device.get(), stream.handle}];
  if (!timed.watch) {
    timing::Policy policy = m_settings.stopwatch_policy();
    policy.poll = [this] { m_agreement.poll(); };
    timed.watch = std::make_unique<timing::Stopwatch>(stream, policy, k_samples_a_pass);
  }
  return *timed.watch;
}

void Context::collect() {
  for (auto& [stream, timed] : m_watches) {
    if (timed.pending.empty()) continue;
    std::vector<std::int64_t> samples(timed.pending.size());
    timed.watch->collect(samples);
    for (std::size_t k = 0; k < samples.size(); ++k) {
      if (!timed.pending[k]) continue;
      m_tuning->finish(*timed.pending[k], samples[k]);
      m_log.line(fmt::format("{} {}", line_about(m_who[timed.pending[k]->candidate]),
                             core::is_failure(samples[k])
                                 ? std::string(to_string(core::status_of(samples[k])))
                             : core::is_retry(samples[k]) ? "to be timed again"
                                                          : fmt::format("{} ns", samples[k])));
    }
    timed.pending.clear();
  }
}

std::int64_t Context::held_word() const {
  return m_held ? std::max<std::int64_t>(
                      core::sha256_word(m_field.config(*m_held).identity().text()), 1)
                : 0;
}

void Context::settle_held() {
  m_winner = m_held;
  m_phase = Phase::decided;
  m_log.line(line_about(*m_winner) + " was decided already");
}

/// Where the default ran while the context waited for its first vote, it ran on all ranks.
std::size_t Context::first_admitted() const noexcept {
  std::size_t i = 0;
  while (m_field.records()[i].status == Status::pruned) ++i;
  return i;
}

void Context::vote() {
  std::vector<Status> statuses;
  for (std::size_t i = 0; i < m_field.size(); ++i)
    statuses.push_back(m_field.is_open(i) ? Status::ok : m_field.records()[i].status);
  m_agreement.vote(statuses);
  for (std::size_t i = 0; i < m_field.size(); ++i)
    if (statuses[i] != Status::ok && m_field.is_open(i))
      m_field.end(i, statuses[i], "failed on another rank");
  if (m_field.open().empty()) {
    m_agreement.ended_alike();
    throw NoValidConfig(m_field.failure_text(m_kernel.spec().name));
  }
  m_progress = m_moved = true;
  if (m_phase == Phase::found && !m_compiled_ahead && m_settings.warmup > 0) {
    m_phase = Phase::first_runs;
    m_who = m_field.open();
    std::erase(m_who, first_admitted());
    if (!m_who.empty()) return;
  }
  begin_measuring();
}

void Context::begin_measuring() {
  const std::uint16_t ran = m_phase == Phase::first_runs ? 1 : 0;
  m_who = m_field.open();
  Problem p;
  p.candidates = m_who.size();
  p.untimed = static_cast<std::uint16_t>(m_settings.warmup - std::min(m_settings.warmup, ran));
  if (checked() && m_settings.warmup == 0) p.untimed = 1;
  p.timed = m_settings.repeat;
  p.one_by_one = m_settings.environment.budget_seconds.has_value();
  const auto first = std::ranges::find(m_who, std::size_t{0});
  if (m_incumbent)
    if (const auto at = std::ranges::find(m_who, *m_incumbent); at != m_who.end())
      p.incumbent = static_cast<std::uint32_t>(at - m_who.begin());
  p.default_candidate =
      first == m_who.end() ? 0 : static_cast<std::uint32_t>(first - m_who.begin());
  m_tuning = std::make_unique<Tuning>(make_selector(m_settings.strategy, p), !m_agreement.alone());
  m_tuning->on_reported = [this](const Visit& v, std::span<const std::int64_t> samples,
                                 std::span<const std::int64_t>) { report(v, samples); };
  m_phase = Phase::measuring;
}

void Context::report(const Visit& visit, std::span<const std::int64_t> samples) {
  const std::size_t i = m_who[visit.candidate];
  CandidateRecord& record = m_field.records()[i];
  if (std::ranges::none_of(samples, core::is_failure)) {
    record.samples_ns.insert(record.samples_ns.end(), samples.begin(), samples.end());
    return;
  }
  if (!m_field.is_open(i)) return;
  if (m_reasons[i].empty())
    m_reasons[i] = m_tuning->never_came_good()
                       ? fmt::format("the {} clock gave no usable time in {} repetitions", m_clock,
                                     Tuning::k_repetitions)
                       : "failed on another rank";
  m_field.end(i, core::status_of(samples[0]), m_reasons[i]);
}

bool Context::batch_full() const { return m_phase == Phase::measuring && m_tuning->batch_full(); }

void Context::reduce_and_advance() {
  auto mode = core::TimingMode::gate_a_visit;
  for (const auto& [stream, timed] : m_watches) mode = std::max(mode, timed.watch->mode());
  m_tuning->mode() = static_cast<std::int64_t>(mode);
  m_tuning->elapsed_ns() = (std::chrono::steady_clock::now() - m_born).count();
  m_agreement.reduce(m_tuning->block());
  for (auto& [stream, timed] : m_watches)
    timed.watch->weaken(static_cast<core::TimingMode>(m_tuning->mode()));
  const auto& budget = m_settings.environment.budget_seconds;
  m_out_of_budget |=
      m_tuning->advance(budget && static_cast<double>(m_tuning->elapsed_ns()) >= *budget * 1e9);
  m_progress = m_moved = true;
  if (m_tuning->decided()) conclude();
}

void Context::conclude() {
  const Decision decision = m_tuning->decision();
  for (std::size_t k = 0; k < m_who.size(); ++k) {
    CandidateRecord& record = m_field.records()[m_who[k]];
    if (!m_field.is_open(m_who[k])) continue;
    if (record.samples_ns.empty()) {
      m_field.end(m_who[k], Status::skipped,
                  m_out_of_budget ? fmt::format("not visited: the budget of {} s was spent",
                                                *m_settings.environment.budget_seconds)
                                  : "not visited by the search strategy");
    } else {
      m_field.end(m_who[k], Status::ok, {});
      record.score_ns = std::isfinite(decision.scores[k])
                            ? decision.scores[k]
                            : core::middle_half_mean(record.samples_ns);
    }
  }
  if (!decision.winner) {
    m_agreement.ended_alike();
    throw NoValidConfig(m_field.failure_text(m_kernel.spec().name));
  }
  m_winner = m_who[*decision.winner];
  m_phase = Phase::decided;
  m_log.line(fmt::format("{} key {} decided: candidate {} [{}] {:.0f} ns", m_kernel.spec().name,
                         m_key.text(), winner(), m_field.config(*m_winner).display(),
                         m_field.records()[*m_winner].score_ns.value_or(0)));
  m_measure_seconds = seconds_of(std::chrono::steady_clock::now() - m_born) - m_prepare_seconds;
  for (const auto& [stream, timed] : m_watches) {
    if (timed.watch->gate() == "none") continue;
    m_gate = timed.watch->gate();
    m_ungated |= timed.watch->mode() == core::TimingMode::ungated;
  }
  // Whichever stream: a context is on one device.
  if (!m_watches.empty()) m_throttled = m_watches.begin()->first.first->throttled();
  m_watches.clear();  // marks and flush buffers go with the tuning
}

bool Context::starved() {
  m_idle_passes = std::exchange(m_progress, false) ? 0 : m_idle_passes + 1;
  if (m_idle_passes < k_idle_passes) return false;
  give_up();
  return true;
}

void Context::give_up() {
  m_phase = Phase::given_up;
  m_watches.clear();
}

bool Context::moved() noexcept {
  const bool first = !std::exchange(m_seen_before, true);
  return std::exchange(m_moved, false) && !first;
}

Value Context::candidates() const {
  std::vector<Value> out;
  if (m_phase == Phase::found)
    for (std::size_t i = 0; i < m_field.size(); ++i)
      if (m_field.records()[i].status != Status::pruned)
        out.push_back(m_field.config(i).identity());
  return Value::list(out);
}

TuningRecord Context::tuning_record(bool contended) const {
  TuningRecord t;
  t.deps = m_deps;
  t.candidates = m_field.records();
  t.candidates.insert(t.candidates.end(), m_kept.begin(), m_kept.end());
  if (m_winner) t.winner = m_field.config(*m_winner).identity();
  t.default_config = m_field.config(0).identity();
  t.created = core::utc_now();
  t.strategy = m_settings.strategy;
  t.warmup = m_settings.warmup;
  t.repeat = m_settings.repeat;
  t.checked = checked();
  t.prepare_seconds = m_prepare_seconds;
  t.measure_seconds = m_measure_seconds;
  t.gate = m_gate;
  if (contended) t.quality.emplace_back("contended");
  if (m_ungated) t.quality.emplace_back("ungated");
  if (m_throttled) t.quality.emplace_back("throttled");
  if (m_out_of_budget) t.quality.emplace_back("budget");
  t.host = core::host_name();
  t.tool_version = k_version;
  return t;
}

}  // namespace disttune::session
