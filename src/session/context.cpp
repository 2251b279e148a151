#include "session/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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
      m_looked_at(m_field.size()),
      m_own(m_field.size()) {
  m_field.prune(attempt);
  if (kept != nullptr) kept->leave_out_crashed(m_field);
  if (m_field.open().empty() && agreement.alone())
    throw NoValidConfig(m_field.failure_text(kernel.spec().name));
  if (!m_field.open().empty()) m_untuned = m_field.open().front();
  if (settings.environment.mode != core::Mode::first) hold(attempt.held());
  if (kept != nullptr && !m_held)
    if (const auto stored = kept->load(Value())) start_from(*stored, !stored->differences.empty());
  if (agreement.alone() && m_held) {
    m_settled_alone = true;
    settle_held();
    return;
  }
  if (!tunes()) {
    if (agreement.alone()) go_without_choice();
    return;
  }
  prepare(attempt);
  if (agreement.alone()) begin_measuring();
}

bool Context::tunes() const noexcept { return m_settings.environment.mode == core::Mode::tune; }

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
  if (!tunes() || std::ranges::none_of(stored.unknown, admitted)) {
    m_held = *best;
    warn_of_versions(m_kernel.spec().name, stored.differences, m_key.text());
    return;
  }
  m_incumbent = *best;
  if (!other_versions) m_kept = take_over(stored, *best, m_field);
}

void Context::adopt(const StoredChoice& stored, bool other_versions) {
  m_held.reset();  // this rank's own
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
  m_prepare_seconds = seconds_since(began);
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

void Context::next_pass(bool last) noexcept {
  ++m_passes;
  m_last_pass = last;
  m_launches_before = std::exchange(m_launches, 0);
  m_timed_steps = 0;
  m_stuck.clear();
}

bool Context::waits_for_vote() const noexcept {
  return m_phase == Phase::found ||
         (m_phase == Phase::first_runs && m_next_first_run == m_who.size());
}

void Context::launch(const detail::Call& call, detail::Attempt& attempt) {
  ++m_launches;
  m_was_blocked = blocked();
  m_inner = nullptr;
  switch (m_phase) {
    case Phase::decided:
      return run_winner(attempt);
    case Phase::measuring:
      return take_step(call, attempt);
    case Phase::first_runs:
      return first_run(attempt);
    case Phase::found:
    case Phase::given_up:
      return run_stand_in(attempt);
    case Phase::nothing_works:
      refuse();
  }
}

/// While others are still tuned another pass will follow, and what this run does to its arguments
/// has to be put back like what a candidate's run does. In the last pass each launch may have data
/// of its own in which these runs have left something; what was put back once holds the caller's
/// own.
void Context::run_winner(detail::Attempt& attempt) {
  if (m_passes > 0 && !m_last_pass) {
    begin_run(winner(), attempt);
    attempt.before_run();
  } else {
    bool left = m_ran && !std::exchange(m_final_run, true);
    for (const std::uintptr_t data : attempt.data()) left |= m_left.erase(data) > 0;
    if (left) attempt.before_final_run(winner());
    // From then on the front may answer by itself.
    if (!m_makeshift && (m_left.empty() || m_launches >= m_launches_before))
      attempt.decided(winner());
  }
  attempt.run(winner());
}

void Context::begin_run(std::size_t entry, detail::Attempt& attempt) {
  m_ran = true;
  for (const std::uintptr_t data : attempt.data()) m_left.insert(data);
  attempt.begin_visit(entry, 1);
}

void Context::refuse() {
  m_stuck = m_field.failure_text(m_kernel.spec().name);
  throw NoValidConfig(m_stuck);
}

/// Who launches it is told so, and may know what to do: another context's candidate fails, an outer
/// function may fall back on something else.
void Context::nothing_works() {
  m_phase = Phase::nothing_works;
  m_watches.clear();
  m_log.line(fmt::format("{} key {}: no candidate works", m_kernel.spec().name, m_key.text()));
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
  begin_run(entry, attempt);
  attempt.before_run();
  if (!checked() || std::exchange(m_looked_at[i], char{1}) != 0) return attempt.run(entry);
  CheckedAttempt(attempt).run(entry);
}

bool Context::run_step(const Step& step, const detail::Call& call, detail::Attempt& attempt) {
  const std::size_t i = m_who[step.candidate];
  const std::size_t entry = m_field.space_index(i);
  m_agreement.visiting(static_cast<std::uint32_t>(i), m_field.config(i).display());
  const bool timed = step.timed && !m_was_blocked;
  const Value& identity = m_field.config(i).identity();
  if (m_kept_choice != nullptr) m_kept_choice->begins(identity);
  try {
    if (timed) {
      auto& watch = stopwatch(call.stream);
      auto& pending = m_watches[{call.stream.device.get(), call.stream.handle}].pending;
      begin_run(entry, attempt);
      const std::int64_t host_ns = watch.timed(
          pending.size(), [&] { attempt.before_run(); }, [&] { attempt.run(entry); });
      pending.push_back({step, host_ns});
      if (blocked()) pending.back().step.reset();
    } else {
      timing::spoil_sample();  // of a launcher around this one: it would time a candidate of ours
      run_untimed(i, attempt);
      m_log.line(line_about(i) + " untimed");
    }
    if (m_kept_choice != nullptr) m_kept_choice->ended(identity, Status::ok, {});
    if (blocked() || timed != step.timed)
      m_tuning->put_back();
    else
      m_moved = true;
    return true;
  } catch (const DeviceLost&) {
    if (m_kept_choice != nullptr) m_kept_choice->lost();
    throw;
  } catch (const std::exception& e) {
    if (inner_undecided_everywhere()) {
      m_tuning->put_back();
      return false;
    }
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
    timing::spoil_sample();
    run_untimed(i, attempt);
    m_log.line(line_about(i) + " untimed");
    if (!blocked()) {
      ++m_next_first_run;
      m_moved = true;
    }
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& e) {
    if (!inner_undecided_everywhere()) {
      ++m_next_first_run;
      m_moved = true;
      failed(i, e);
    }
    run_stand_in(attempt);
  }
}

/// The first candidate that has not failed: the stored best, else entry 0, wherever it works.
void Context::run_stand_in(detail::Attempt& attempt) {
  if (open()) timing::stand_in_sample();
  bool too_early = false;  // to say that nothing works
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
      if (inner_undecided_everywhere())
        too_early = true;
      else
        failed(i, e);
    }
  }
  if (too_early) refuse();
  for (std::size_t i = 0; i < m_field.size(); ++i)
    if (m_field.is_open(i)) m_field.end(i, Status::launch_failed, m_reasons[i]);
  refuse();
}

/// Nothing of the kernel that the last launch reached works on this rank, which the others have not
/// heard: they are still in this very step, and so does this rank stay in it until they have voted.
bool Context::inner_undecided_everywhere() const noexcept {
  return !m_agreement.alone() && blocked() && !m_inner->stuck().empty();
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

}  // namespace disttune::session
