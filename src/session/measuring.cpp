#include "session/measuring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "core/statistics.hpp"
#include "observe/observe.hpp"
#include "session/checked_attempt.hpp"
#include "session/prepare.hpp"
#include "session/process.hpp"
#include "session/watched_attempt.hpp"

namespace disttune::session {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Measuring {
 public:
  explicit Measuring(const Assignment& a) : m(a), m_policy(policy_of(a)), m_start(Clock::now()) {
    make_room(std::max<std::size_t>(a.settings.repeat, 1));
  }

  Measured run() {
    prepare();
    const double prepared = seconds_since(m_start);
    if (m.settings.checked) {
      if (!m.field.open().empty()) WatchedAttempt(m.attempt).expect();
      try_each(true);
    }
    const auto contenders = m.field.open();
    Measured out;
    if (!contenders.empty()) {
      // Without a way to compile ahead, ranks vote on a first untimed run of every candidate, so
      // that none is timed that fails somewhere.
      const bool voted_by_running =
          !m.agreement.alone() && !m.attempt.can_prepare() && m.settings.warmup > 0;
      if (voted_by_running) try_each(false);
      race(out, voted_by_running ? 1 : 0);
    }
    out.prepare_seconds = prepared;
    out.measure_seconds = seconds_since(m_start) - prepared;
    // At once: it cools down while ranks confirm and the record is written.
    out.throttled = out.winner.has_value() && m.device.throttled();
    out.gate = std::string(m_watch->gate());
    out.ungated = out.gate != "none" && m_watch->mode() == core::TimingMode::ungated;
    return out;
  }

 private:
  static timing::Policy policy_of(const Assignment& a) {
    timing::Policy policy = a.settings.stopwatch_policy();
    policy.poll = [&a] { a.agreement.poll(); };
    policy.alone = a.agreement.alone();
    return policy;
  }

  /// A strategy may ask for longer visits than `repeat`.
  void make_room(std::size_t samples) {
    if (m_watch && samples <= m_room) return;
    const auto mode = m_watch ? m_watch->mode() : core::TimingMode::gate_a_visit;
    m_watch.reset();  // one timer on the stream at a time
    m_watch.emplace(m.stream, m_policy, samples);
    m_watch->weaken(mode);
    m_room = samples;
  }

  /// Compiles the open candidates, several at once, and lets all ranks vote.
  void prepare() {
    const auto open = m.field.open();
    if (!m.attempt.can_prepare() || open.empty()) return;
    const int workers = m.settings.environment.workers;
    if (m.one_at_a_time || workers == 1 || open.size() == 1)
      for (const std::size_t i : open) prepare_noted(i);
    else
      prepare_together(open, workers);
    for (const std::size_t i : open)
      if (!m.field.is_open(i)) tell(i, {}, 0, open.size());
    vote(open);
  }

  /// Where one ends the process, the next one knows that it was one of them.
  void prepare_together(const std::vector<std::size_t>& open, int workers) {
    struct Noted {
      store::Journal& journal;
      explicit Noted(store::Journal& j) : journal(j) { journal.preparing(); }
      ~Noted() { journal.prepared(); }
      Noted(const Noted&) = delete;
      Noted& operator=(const Noted&) = delete;
    } const noted(m.journal);
    prepare_candidates(m.field, open, m.attempt, workers);
  }
  /// … and here which.
  void prepare_noted(std::size_t i) {
    m.journal.begin(m.field.config(i).identity());
    prepare_candidates(m.field, {i}, m.attempt, 1);
    const CandidateRecord& record = m.field.records()[i];
    if (m.field.is_open(i))
      m.journal.interrupted();  // not a crash, and nothing measured
    else
      m.journal.end(record.config.identity(), record.status, record.reason, {});
  }

  /// One untimed run of every open candidate (with `compare`: its result is checked), then a vote.
  void try_each(bool compare) {
    CheckedAttempt checked(m.attempt);
    detail::Attempt& attempt = compare ? static_cast<detail::Attempt&>(checked) : m.attempt;
    const auto open = m.field.open();
    for (const std::size_t i : open) {
      const Value& identity = m.field.config(i).identity();
      announce(i);
      const auto end =
          visit(i, {static_cast<std::uint32_t>(m.field.space_index(i)), 1, 0}, attempt, {}, {});
      m.journal.end(identity, end.status, end.reason, {});
      if (end.status == Status::ok) continue;
      m.agreement.candidate_failed(static_cast<std::uint32_t>(i));
      m.field.end(i, end.status, end.reason);
      tell(i, {}, 0, open.size());
    }
    vote(open);
  }

  /// What failed anywhere is failed everywhere.
  void vote(const std::vector<std::size_t>& who) {
    if (m.agreement.alone()) return;
    std::vector<Status> statuses;
    for (const std::size_t i : who)
      statuses.push_back(m.field.is_open(i) ? Status::ok : m.field.records()[i].status);
    m.agreement.vote(statuses);
    for (std::size_t k = 0; k < who.size(); ++k)
      if (statuses[k] != Status::ok) fail_everywhere(who[k], statuses[k]);
  }
  void fail_everywhere(std::size_t i, Status status) {
    const bool mine = !m.field.is_open(i);
    m.field.end(i, status, mine ? m.field.records()[i].reason : "failed on another rank");
  }

  void race(Measured& out, std::uint16_t untimed_already) {
    const auto who = m.field.open();
    if (who.empty()) return;
    const Problem p = problem(who, untimed_already);
    Tuning tuning(make_selector(m.settings.strategy, p));
    if (std::ranges::any_of(p.known, [](auto known) { return !known.empty(); })) tuning.one_works();
    tuning.on_reported = [&](const Visit& v, std::span<const std::int64_t> samples,
                             std::span<const std::int64_t> host_ns) {
      reported(who[v.candidate], samples, host_ns);
    };
    while (!tuning.decided()) {
      visit_batch(tuning, who);
      tuning.elapsed_ns() = (Clock::now() - m_start).count();
      tuning.mode() = static_cast<std::int64_t>(m_watch->mode());
      m.agreement.reduce(tuning.block());
      m_watch->weaken(static_cast<core::TimingMode>(tuning.mode()));
      const auto& budget = m.settings.environment.budget_seconds;
      out.out_of_budget |=
          tuning.advance(budget && static_cast<double>(tuning.elapsed_ns()) >= *budget * 1e9);
    }
    conclude(tuning.decision(), who, out);
  }

  Problem problem(const std::vector<std::size_t>& who, std::uint16_t untimed_already) const {
    Problem p;
    p.candidates = who.size();
    p.untimed = static_cast<std::uint16_t>(m.settings.warmup -
                                           std::min(m.settings.warmup, untimed_already));
    p.timed = m.settings.repeat;
    p.one_by_one = m.settings.environment.budget_seconds.has_value();
    p.known.resize(who.size());
    for (std::size_t k = 0; k < who.size(); ++k) {
      if (m.incumbent && *m.incumbent == who[k]) p.incumbent = static_cast<std::uint32_t>(k);
      if (who[k] == 0) p.default_candidate = static_cast<std::uint32_t>(k);
      p.known[k] = m.field.records()[who[k]].samples_ns;
    }
    return p;
  }

  void visit_batch(Tuning& tuning, const std::vector<std::size_t>& who) {
    const auto visits = tuning.visits();
    for (const Visit& v : visits) make_room(v.timed);
    m_watch->accept_stand_ins(tuning.last_repetition());
    for (std::size_t v = 0; v < visits.size(); ++v) {
      const std::size_t i = who[visits[v].candidate];
      const Value& identity = m.field.config(i).identity();
      const Visit visit{static_cast<std::uint32_t>(m.field.space_index(i)), visits[v].untimed,
                        visits[v].timed};
      const auto samples = tuning.samples_of(v);
      announce(i);
      const auto end = this->visit(i, visit, m.attempt, samples, tuning.host_ns_of(v));
      if (end.status != Status::ok) m.agreement.candidate_failed(static_cast<std::uint32_t>(i));
      const bool whole = m.agreement.alone() && std::ranges::none_of(samples, core::is_retry) &&
                         visit.timed == m.settings.repeat;
      m.journal.end(identity, end.status, end.reason,
                    whole && end.status == Status::ok ? std::span<const std::int64_t>(samples)
                                                      : std::span<const std::int64_t>{});
      if (!end.reason.empty()) m_reasons[i] = end.reason;
      m_interrupted[i] =
          std::ranges::find(samples, core::sample_of(core::Retry::spoiled)) != samples.end();
      std::vector<std::int64_t>& own = m_own[i];
      own.reserve(own.size() + samples.size());
      std::ranges::copy_if(samples, std::back_inserter(own), [](std::int64_t ns) {
        return !core::is_retry(ns) && !core::is_failure(ns);
      });
      tell(i, samples, v + 1, visits.size(), end.status);
    }
  }

  /// A lost device is somebody's doing: the error names the configuration.
  timing::VisitEnd visit(std::size_t i, const Visit& visit, detail::Attempt& attempt,
                         std::span<std::int64_t> samples, std::span<std::int64_t> host_ns) {
    try {
      WatchedAttempt watched(attempt);
      auto end = m_watch->visit(visit, watched, samples, host_ns);
      if (end.status == Status::timed_out) m_unended = i;
      return end;
    } catch (const DeviceLost& e) {
      throw lost(i, e);
    }
  }
  [[nodiscard]] DeviceLost lost(std::size_t i, const DeviceLost& e) const {
    return DeviceLost(fmt::format("disttune: '{}', [{}] {}: {}", m.launcher.name,
                                  m.field.space_index(i), m.field.config(i).display(), e.what()));
  }

  /// The journal and the other ranks know what runs here before it runs. A candidate is not said to
  /// run while the work of another one is still waited for: it would be taken for the culprit.
  void announce(std::size_t i) {
    try {
      m_watch->catch_up();
    } catch (const DeviceLost& e) {
      throw lost(m_unended.value_or(i), e);
    }
    m.journal.begin(m.field.config(i).identity());
    m.agreement.visiting(static_cast<std::uint32_t>(i), m.field.config(i).display());
  }

  /// A visit's samples after reduction and repetition.
  void reported(std::size_t i, std::span<const std::int64_t> samples,
                std::span<const std::int64_t> host_ns) {
    CandidateRecord& record = m.field.records()[i];
    const auto failed = std::ranges::find_if(samples, core::is_failure);
    if (failed == samples.end()) {
      record.samples_ns.insert(record.samples_ns.end(), samples.begin(), samples.end());
      record.host_ns.insert(record.host_ns.end(), host_ns.begin(), host_ns.end());
      if (!m.agreement.alone())
        m.journal.end(record.config.identity(), Status::ok, {}, record.samples_ns);
      return;
    }
    record.samples_ns.clear();
    record.host_ns.clear();
    m_failed_status[i] = core::status_of(*failed);
    if (!m_reasons[i].empty()) return;
    if (!m.agreement.alone())
      m_reasons[i] = "failed on another rank";
    else if (m_interrupted[i])
      m_reasons[i] = fmt::format(
          "its timed runs tune or measure something themselves, in {} repetitions too; tune what "
          "it calls beforehand, and measure outside of it",
          Tuning::k_repetitions);
    else
      m_reasons[i] = fmt::format("the {} clock gave no usable time in {} repetitions",
                                 m.settings.clock_text(m.device), Tuning::k_repetitions);
  }

  void conclude(const Decision& decision, const std::vector<std::size_t>& who, Measured& out) {
    for (std::size_t k = 0; k < who.size(); ++k) {
      CandidateRecord& record = m.field.records()[who[k]];
      if (const auto failed = m_failed_status.find(who[k]); failed != m_failed_status.end()) {
        m.field.end(who[k], failed->second, m_reasons[who[k]]);
      } else if (!record.samples_ns.empty()) {
        m.field.end(who[k], Status::ok, {});
        record.score_ns = std::isfinite(decision.scores[k])
                              ? decision.scores[k]
                              : core::middle_half_mean(record.samples_ns);
      } else {
        m.field.end(who[k], Status::skipped,
                    out.out_of_budget ? fmt::format("not visited: the budget of {} s was spent",
                                                    *m.settings.environment.budget_seconds)
                                      : "not visited by the search strategy");
      }
    }
    if (!decision.winner) return;
    out.winner = who[*decision.winner];
    if (const auto& own = m_own[*out.winner]; !own.empty()) out.own_median_ns = core::median(own);
  }

  void tell(std::size_t i, std::span<const std::int64_t> samples, std::size_t done,
            std::size_t total, std::optional<Status> status = std::nullopt) {
    const CandidateRecord& record = m.field.records()[i];
    const Status s = status.value_or(record.status);
    const auto reason = m_reasons.find(i);
    observe::emit(VisitDone{m.launcher.name, m.field.space_index(i), record.config, s,
                            s == Status::ok             ? std::string_view{}
                            : reason != m_reasons.end() ? std::string_view(reason->second)
                                                        : std::string_view(record.reason),
                            samples, done, total, m.agreement.rank()});
  }

  const Assignment& m;
  timing::Policy m_policy;
  std::optional<timing::Stopwatch> m_watch;
  std::size_t m_room = 0;                ///< samples that fit in it
  std::optional<std::size_t> m_unended;  ///< the last whose work had not ended in time
  Clock::time_point m_start;
  std::map<std::size_t, std::string> m_reasons;
  std::map<std::size_t, Status> m_failed_status;
  std::map<std::size_t, bool> m_interrupted;  ///< another tuning ran inside its last timed runs
  std::map<std::size_t, std::vector<std::int64_t>> m_own;  ///< this rank's samples before reduction
};

}  // namespace

Measured measure_field(const Assignment& assignment) { return Measuring(assignment).run(); }

}  // namespace disttune::session
