// What happens to a context between two passes: samples are read, votes and reductions counted, and
// in the end there is a winner, or nothing that works.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/sha256.hpp"
#include "core/statistics.hpp"
#include "core/text.hpp"
#include "observe/observe.hpp"
#include "session/context.hpp"

namespace disttune::session {

void Context::collect() {
  for (auto& [stream, timed] : m_watches) {
    if (timed.pending.empty()) continue;
    std::vector<std::int64_t> samples(timed.pending.size());
    timed.watch->collect(samples);
    for (std::size_t k = 0; k < samples.size(); ++k) {
      const auto& [step, host_ns] = timed.pending[k];
      if (!step) continue;
      const std::int64_t ns = samples[k];
      const std::size_t i = m_who[step->candidate];
      m_tuning->finish(*step, ns);
      if (!core::is_failure(ns) && !core::is_retry(ns)) {
        m_own[i].push_back(ns);
        // Where the marks are the host's, a sample is the host's time.
        m_field.records()[i].host_ns.push_back(host_ns > 0 ? host_ns : ns);
      }
      m_log.line(fmt::format("{} {}", line_about(i),
                             core::is_failure(ns) ? std::string(to_string(core::status_of(ns)))
                             : core::is_retry(ns) ? "to be timed again"
                                                  : fmt::format("{} ns", ns)));
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

void Context::vote_on_failures() {
  std::vector<Status> statuses;
  for (std::size_t i = 0; i < m_field.size(); ++i)
    statuses.push_back(m_field.is_open(i) ? Status::ok : m_field.records()[i].status);
  m_agreement.vote(statuses);
  for (std::size_t i = 0; i < m_field.size(); ++i)
    if (statuses[i] != Status::ok && m_field.is_open(i))
      m_field.end(i, statuses[i], "failed on another rank");
  m_progress = m_moved = true;
  if (m_field.open().empty()) nothing_works();
}

void Context::vote() {
  vote_on_failures();
  if (!open()) return;
  if (m_phase == Phase::found && !m_compiled_ahead && m_settings.warmup > 0) {
    m_phase = Phase::first_runs;
    m_who = m_field.open();
    std::erase(m_who, first_admitted());
    if (!m_who.empty()) return;
  }
  begin_measuring();
}

/// MODE first takes what ran in this pass, if it failed nowhere; else another pass tries the next.
void Context::settle_untuned() {
  if (m_settings.environment.mode != core::Mode::first) return go_without_choice();
  vote_on_failures();
  if (!open()) return;
  const std::size_t tried = std::exchange(m_untuned, m_field.open().front());
  if (m_untuned != tried) return;
  m_makeshift = true;
  m_winner = tried;
  m_phase = Phase::decided;
}

void Context::go_without_choice() {
  const std::string& kernel = m_kernel.spec().name;
  const std::string what =
      fmt::format("disttune: kernel '{}' is not tuned for key {}", kernel, m_key.text());
  if (m_settings.environment.mode == core::Mode::strict) {
    m_agreement.ended_alike();
    throw NotTuned(what + "; MODE=strict forbids tuning");
  }
  observe::message(Level::warning, what + "; MODE=cached runs its first configuration",
                   fmt::format("cached {} {}", kernel, m_key.text()));
  m_makeshift = true;
  m_settled_alone = m_agreement.alone();
  m_winner = first_admitted();
  m_phase = Phase::decided;
}

Context::Progress Context::progress() const {
  return {waits_for_vote() || batch_full(), m_progress, m_moved};
}

void Context::agreed_on(const Progress& all) noexcept {
  m_all_ready = all.ready;
  m_progress = all.progress;
  m_moved = all.moved;
}

void Context::step_between_passes() {
  if (!std::exchange(m_all_ready, true)) return;
  if (m_agreement.alone() || !waits_for_vote()) {
    if (batch_full()) reduce_and_advance();
  } else if (tunes()) {
    vote();
  } else {
    settle_untuned();
  }
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
  m_measuring_since = std::chrono::steady_clock::now();
  m_phase = Phase::measuring;
}

void Context::report(const Visit& visit, std::span<const std::int64_t> samples) {
  const std::size_t i = m_who[visit.candidate];
  CandidateRecord& record = m_field.records()[i];
  if (std::ranges::none_of(samples, core::is_failure)) {
    record.samples_ns.insert(record.samples_ns.end(), samples.begin(), samples.end());
    return;
  }
  record.host_ns.clear();
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
  if (!decision.winner) return nothing_works();
  m_measure_seconds = seconds_since(m_measuring_since);
  for (const auto& [stream, timed] : m_watches) {
    if (timed.watch->gate() == "none") continue;
    m_gate = timed.watch->gate();
    m_ungated |= timed.watch->mode() == core::TimingMode::ungated;
  }
  // Whichever stream: a context is on one device.
  if (!m_watches.empty()) m_throttled = m_watches.begin()->first.first->throttled();
  m_winner = m_who[*decision.winner];
  m_phase = Phase::decided;
  m_log.line(fmt::format("{} key {} decided: candidate {} [{}] {:.0f} ns", m_kernel.spec().name,
                         m_key.text(), winner(), m_field.config(*m_winner).display(),
                         m_field.records()[*m_winner].score_ns.value_or(0)));
  m_watches.clear();  // marks and flush buffers go with the tuning
}

/// Candidates of another context that is open reach this one when their turn comes.
bool Context::starved() {
  const bool comes_again = m_outermost != nullptr && m_outermost->open();
  m_idle_passes = std::exchange(m_progress, false) || comes_again ? 0 : m_idle_passes + 1;
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

std::int64_t Context::own_median_ns() const {
  const auto& own = m_own[*m_winner];
  return own.empty() ? -1 : static_cast<std::int64_t>(core::median(own));
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
  t.rank_medians = m_medians;
  if (contended) t.quality.emplace_back("contended");
  if (m_ungated) t.quality.emplace_back("ungated");
  if (m_throttled) t.quality.emplace_back("throttled");
  if (m_out_of_budget) t.quality.emplace_back("budget");
  t.host = core::host_name();
  t.tool_version = k_version;
  return t;
}

}  // namespace disttune::session
