#include "session/cold_call.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/text.hpp"
#include "observe/observe.hpp"
#include "session/checked_attempt.hpp"
#include "session/prepare.hpp"
#include "session/process.hpp"
#include "session/watched_attempt.hpp"

namespace disttune::session {
namespace {

using core::Mode;

/// What the environment says may be refused on this rank alone: the others must not wait for it.
Target target_of(detail::LauncherState& launcher, const detail::Call& call) {
  try {
    return Target(launcher, call);
  } catch (const std::exception& e) {
    if (call.group != nullptr) agree::abandon_call(*call.group, e.what());
    throw;
  }
}

}  // namespace

ColdCall::ColdCall(detail::LauncherState& launcher, const detail::Call& call,
                   detail::Attempt& attempt)
    : m_target(target_of(launcher, call)),
      m_attempt(attempt),
      m_agreement(call.group, m_target.settings.stopwatch_policy().patience,
                  fmt::format("'{}' for key {}", launcher.spec.name, call.key.text())),
      m_field(launcher.spec.candidates) {}

detail::Outcome ColdCall::outcome(std::size_t candidate, std::string_view source,
                                  bool restore) const {
  return {m_field.space_index(candidate), true, source, restore};
}

detail::Outcome ColdCall::run() {
  if (m_target.settings.environment.mode == Mode::off && m_agreement.alone())
    return outcome(0, "off");
  return m_agreement.run([&] { return m_agreement.alone() ? decide_alone() : decide_together(); });
}

detail::Outcome ColdCall::decide_alone() {
  const Mode mode = m_target.settings.environment.mode;
  if (mode != Mode::first) {
    look_up();
    if (const auto winner = stored_winner()) return outcome(*winner, "stored");
    if (mode != Mode::tune) return miss_without_tuning();
  }
  if (m_field.open().size() == m_field.size()) m_field.prune(m_attempt);
  if (m_field.open().empty()) nothing_works();
  read_remains();
  leave_out_crashed();
  if (mode == Mode::first) return first_that_works();
  if (!m_incumbent) m_incumbent = earlier_winner();
  resume_alone();
  return tune();
}

/// The winner of the record's newest tuning, where a key is tuned anew.
std::optional<std::size_t> ColdCall::earlier_winner() const {
  if (!m_lookup.record || m_lookup.record->tunings.empty()) return std::nullopt;
  const auto& winner = m_lookup.record->tunings.front().winner;
  const auto at = winner ? m_field.find(*winner) : std::nullopt;
  return at && m_field.is_open(*at) ? at : std::nullopt;
}

void ColdCall::nothing_works() {
  m_agreement.ended_alike();
  if (std::ranges::find(m_field.records(), Status::ok, &CandidateRecord::status) !=
      m_field.records().end())
    throw Error(fmt::format(
        "disttune: '{}': the strategy '{}' ended without naming a winner although candidates work",
        m_target.launcher.spec.name, m_target.settings.strategy));
  throw NoValidConfig(m_field.failure_text(m_target.launcher.spec.name));
}

void ColdCall::refuse_capture() const {
  if (!m_target.stream.device->capturing(m_target.stream.handle)) return;
  throw CaptureError(
      fmt::format("disttune: '{}' met a new key while its stream is being captured into a graph; "
                  "call it once with these "
                  "arguments before the capture. Key: {}",
                  m_target.launcher.spec.name, m_target.call.key.text()));
}

void ColdCall::look_up() {
  const auto& spec = m_target.launcher.spec;
  m_lookup = m_target.store.load(spec.name, m_target.key);
  if (!m_lookup.record) {
    const std::lock_guard lock(m_target.launcher.records_mutex);
    if (const auto kept = m_target.launcher.unstored.find(m_target.key.text());
        kept != m_target.launcher.unstored.end())
      m_lookup.record = kept->second;
  }
  for (const store::Note& note : m_lookup.notes)
    observe::message(Level::warning, fmt::format("disttune: '{}': {}", spec.name, note.text),
                     note.cause);
  m_miss_reason = m_lookup.reason;
  const auto& env = m_target.settings.environment;
  if (!m_lookup.record) return;
  if (env.always_tune && env.mode == Mode::tune) {
    m_miss_reason = k_always_tune;
    return;
  }
  m_stored = choose(*m_lookup.record, m_target.deps, m_target.settings, m_field, m_miss_reason);
}

/// The record's best candidate that passes prune_fn. Nothing: tune what is open in the field then.
std::optional<std::size_t> ColdCall::stored_winner() {
  if (!m_stored) return std::nullopt;
  const WatchedRuns watched;
  const auto winner = std::ranges::find_if(
      m_stored->ranking, [&](std::size_t i) { return m_attempt.admits(m_field.space_index(i)); });
  if (winner == m_stored->ranking.end()) {
    m_miss_reason = k_all_refused;
    m_stored.reset();
    return std::nullopt;
  }
  std::vector<std::size_t> fresh, refused;
  if (m_target.settings.environment.mode == Mode::tune)
    for (const std::size_t i : m_stored->unknown)
      (m_attempt.admits(m_field.space_index(i)) ? fresh : refused).push_back(i);
  if (fresh.empty()) {
    warn_of_versions(m_target.launcher.spec.name, m_stored->differences, m_lookup.file.string());
    return *winner;
  }
  m_incumbent = *winner;
  m_miss_reason =
      fmt::format("{} of {} candidates are not in the record", fresh.size(), m_field.size());
  if (!m_stored->differences.empty()) {
    // Samples of other versions would count as those of this one: all are measured anew.
    m_miss_reason += fmt::format(", which was tuned under other versions ({})",
                                 fmt::join(m_stored->differences, "; "));
    return std::nullopt;
  }
  m_miss_reason += "; they are measured against its best";
  for (const std::size_t i : refused)
    m_field.end(i, Status::pruned, "refused by the prune function");
  m_kept = take_over(*m_stored, *winner, m_field);
  return std::nullopt;
}

detail::Outcome ColdCall::miss_without_tuning() {
  const auto& spec = m_target.launcher.spec;
  const std::string what = fmt::format("'{}' is not tuned for key {} ({})", spec.name,
                                       m_target.call.key.text(), m_miss_reason);
  if (m_target.settings.environment.mode == Mode::strict)
    throw NotTuned(fmt::format("disttune: {}; MODE=strict forbids tuning. Looked for {}", what,
                               m_lookup.file.string()));
  observe::message(Level::warning, fmt::format("disttune: {}; MODE=cached runs entry 0", what),
                   fmt::format("cached {} {}", spec.name, m_target.call.key.text()));
  return outcome(0, "default");
}

/// How `work` ends says what the next process may believe of the journal.
template <class F>
auto ColdCall::noted(store::Journal& journal, F&& work) {
  try {
    return work();
  } catch (const DeviceLost&) {
    throw;  // the journal keeps its open entry: the next process skips that candidate
  } catch (const agree::NotDrained&) {
    throw;  // likewise: this rank's device still has it
  } catch (...) {
    journal.interrupted();
    journal.close(true);
    throw;
  }
}

/// Untimed; nothing is stored. With ranks the first candidate that works on all of them.
detail::Outcome ColdCall::first_that_works() {
  refuse_capture();
  store::Journal journal = new_journal();
  const auto found = noted(journal, [&] { return find_first_that_works(journal); });
  journal.close(false);
  if (!found) nothing_works();
  return outcome(*found, "first", true);
}

std::optional<std::size_t> ColdCall::find_first_that_works(store::Journal& journal) {
  timing::Stopwatch watch(m_target.stream, m_target.settings.stopwatch_policy(), 1);
  CheckedAttempt checked(m_attempt);
  detail::Attempt& attempt =
      m_target.settings.checked ? static_cast<detail::Attempt&>(checked) : m_attempt;
  for (const std::size_t i : m_field.open()) {
    const Visit once{static_cast<std::uint32_t>(m_field.space_index(i)), 1, 0};
    const Value identity = m_field.config(i).identity();
    journal.begin(identity);
    const auto end = [&] {
      WatchedAttempt watched(attempt);
      return watch.visit(once, watched, {}, {});
    }();
    journal.end(identity, end.status, end.reason, {});
    Status worst[] = {end.status};
    m_agreement.vote(worst);
    if (worst[0] == Status::ok) {
      m_agreement.finish(identity.text());
      return i;
    }
    m_field.end(i, worst[0], end.reason.empty() ? "failed on another rank" : end.reason);
  }
  return std::nullopt;
}

store::Journal ColdCall::new_journal() const {
  return store::Journal(m_target.store.root()
                            ? m_target.store.file(m_target.launcher.spec.name, m_target.key)
                            : std::filesystem::path{},
                        m_target.key.text(), m_target.journal_policy());
}

/// MODE=first takes no choice from the record, but heeds what it says of crashes.
void ColdCall::read_remains() {
  m_remains = m_target.remains();
  if (m_target.settings.environment.mode != Mode::first) return;
  const auto lookup = m_target.store.load(m_target.launcher.spec.name, m_target.key);
  if (!lookup.record) return;
  for (const TuningRecord& t : lookup.record->tunings)
    for (const CandidateRecord& c : t.candidates)
      if (c.status == Status::crashed)
        m_remains.crashed.push_back(
            {c.config.identity(), t.created, fmt::format("record of {}", t.created)});
}

void ColdCall::leave_out_crashed() {
  if (!m_target.settings.environment.retry_crashed) session::leave_out_crashed(m_remains, m_field);
}

void ColdCall::resume_alone() {
  for (const auto& noted : m_remains.measured) {
    const auto at = m_field.find(noted.candidate);
    if (!at || !m_field.is_open(*at)) continue;
    if (noted.status != Status::ok)
      m_field.end(*at, noted.status, noted.reason);
    else if (noted.samples_ns.size() == m_target.settings.repeat)
      m_field.records()[*at].samples_ns = noted.samples_ns;
  }
}

detail::Outcome ColdCall::tune() {
  refuse_capture();
  auto turn = DeviceTurn::take(*m_target.stream.device, m_target.key.hardware,
                               !timing::inside_visit() && !preparing(), m_agreement.alone());
  if (!turn) {
    timing::stand_in_sample();
    return {0, false, "busy", false};
  }
  const auto& spec = m_target.launcher.spec;
  const int rank = m_agreement.alone() ? -1 : m_agreement.rank();
  const std::filesystem::path file = m_target.store.file(spec.name, m_target.key);
  const observe::Scope scope(
      m_target.store.root() ? observe::log_file_name(file, rank) : std::filesystem::path{},
      m_target.call.verbose, m_target.settings.environment.progress);
  observe::emit(Miss{spec.name, m_target.key, m_miss_reason, m_field.open().size(), rank,
                     m_target.deps.text(), m_field.records()});
  if (m_field.duplicates() > 0)
    observe::message(
        Level::info,
        fmt::format("disttune: '{}': {} entries equal an earlier one; each is timed once",
                    spec.name, m_field.duplicates()),
        "duplicates " + spec.name);
  store::Journal journal = new_journal();
  Measured measured = noted(journal, [&] { return measure(journal); });
  measured.contended = turn->contended();
  turn.reset();  // others need not wait for the store
  if (measured.winner) keep(tuning_record(measured));
  journal.close(false);  // only now: who is ended before has the samples still
  if (!measured.winner) nothing_works();
  store::remove_files(m_remains);
  return outcome(*measured.winner, "tuned", true);
}

void ColdCall::name_slow_rank(std::vector<RankMedian> medians) const {
  if (medians.size() < 2) return;
  std::ranges::sort(medians, {}, &RankMedian::median_ns);
  const auto& slowest = medians.back();
  // NOLINTNEXTLINE(bugprone-integer-division): an index
  const auto typical = static_cast<double>(medians[(medians.size() - 1) / 2].median_ns);
  const double excess = static_cast<double>(slowest.median_ns) / typical - 1;
  if (excess > 0.03)
    observe::message(
        Level::info,
        fmt::format(
            "disttune: '{}': rank {} is {:.1f} % slower than the group's median with the chosen "
            "configuration",
            m_target.launcher.spec.name, slowest.rank, 100 * excess));
}

Measured ColdCall::measure(store::Journal& journal) {
  const auto& spec = m_target.launcher.spec;
  Measured measured =
      measure_field({spec, m_target.settings, *m_target.stream.device, m_target.stream, m_field,
                     m_attempt, journal, m_agreement, m_incumbent, m_remains.died_preparing});
  if (measured.winner) {
    const auto& winner = m_field.records()[*measured.winner];
    measured.rank_medians = m_agreement.finish(winner.config.identity().text(),
                                               static_cast<std::int64_t>(measured.own_median_ns));
    name_slow_rank(measured.rank_medians);
  }
  return measured;
}

/// Whether what an earlier budget left out is left out still.
bool ColdCall::still_cut_short(const std::vector<CandidateRecord>& candidates) const {
  return m_stored &&
         std::ranges::find(m_stored->tuning.quality, "budget") != m_stored->tuning.quality.end() &&
         std::ranges::find(candidates, Status::skipped, &CandidateRecord::status) !=
             candidates.end();
}

TuningRecord ColdCall::tuning_record(const Measured& measured) const {
  TuningRecord t;
  t.deps = m_target.deps;
  t.candidates = m_field.records();
  t.candidates.insert(t.candidates.end(), m_kept.begin(), m_kept.end());
  t.winner = m_field.config(*measured.winner).identity();
  t.default_config = m_field.config(0).identity();
  t.created = core::utc_now();
  t.strategy = m_target.settings.strategy;
  t.warmup = m_target.settings.warmup;
  t.repeat = m_target.settings.repeat;
  t.checked = m_target.settings.checked;
  t.prepare_seconds = measured.prepare_seconds;
  t.measure_seconds = measured.measure_seconds;
  t.gate = measured.gate;
  t.rank_medians = measured.rank_medians;
  if (measured.contended) t.quality.emplace_back("contended");
  if (measured.throttled) t.quality.emplace_back("throttled");
  if (measured.ungated) t.quality.emplace_back("ungated");
  if (measured.out_of_budget || still_cut_short(t.candidates)) t.quality.emplace_back("budget");
  t.host = core::host_name();
  t.tool_version = k_version;
  return t;
}

void ColdCall::keep(TuningRecord tuning) {
  const auto& spec = m_target.launcher.spec;
  Record record{spec.name, spec.module, m_target.key, {}, "{}"};
  record.tunings.push_back(std::move(tuning));
  m_writer ? save(record) : hold(record);
  const bool stored = m_writer && m_target.store.root();
  observe::emit(
      Decided{spec.name, m_target.key, record.tunings.front(),
              stored ? m_target.store.file(spec.name, m_target.key).string() : std::string{},
              m_agreement.alone() ? -1 : m_agreement.rank()});
}

/// Another rank writes it; `result` may be asked here before.
void ColdCall::hold(const Record& record) {
  const std::lock_guard lock(m_target.launcher.records_mutex);
  m_target.launcher.written_elsewhere.insert_or_assign(m_target.key.text(), record);
}

void ColdCall::save(const Record& record) {
  const auto& spec = m_target.launcher.spec;
  const store::Saved saved = m_target.store.save(record);
  if (!saved.problem.empty())
    observe::message(Level::warning, fmt::format("disttune: '{}': {}", spec.name, saved.problem),
                     fmt::format("store {}", m_target.store.root().value_or("-").string()));
  if (!saved.file.empty()) return;
  const std::lock_guard lock(m_target.launcher.records_mutex);
  m_target.launcher.unstored.insert_or_assign(m_target.key.text(), record);
}

}  // namespace disttune::session
