// A cold call among ranks: what this rank says and takes from the others. Every branch is taken on
// agreed data.
#include <fmt/format.h>

#include <algorithm>

#include "session/cold_call.hpp"

namespace disttune::session {

using core::Mode;

detail::Outcome ColdCall::decide_together() {
  const Mode mode = m_target.settings.environment.mode;
  refuse_capture();
  m_target.key.group = m_agreement.shape(m_target.key.hardware);
  if (mode == Mode::tune || mode == Mode::cached || mode == Mode::strict) look_up();
  m_field.prune(m_attempt);
  if (mode == Mode::tune || mode == Mode::first) read_remains();
  const agree::Agreed agreed = m_agreement.handshake(hello());
  m_writer = agreed.writer;
  if (mode == Mode::off) {
    m_agreement.ended_alike();
    return outcome(0, "off");
  }
  if (agreed.record_rank) return adopt(agreed);
  if (m_stored)
    m_miss_reason =
        agreed.always_tune ? k_always_tune : "versions differ, and a rank asks for VERSION_CHECK";
  m_stored.reset();
  if (mode == Mode::cached || mode == Mode::strict) {
    m_agreement.ended_alike();
    return miss_without_tuning();
  }
  if (m_field.open().empty()) nothing_works();
  m_target.settings.environment.retry_crashed = agreed.retry_crashed;
  share_remains(agreed);
  return mode == Mode::first ? first_that_works() : tune();
}

agree::Hello ColdCall::hello() const {
  const Settings& s = m_target.settings;
  agree::Hello h;
  h.function = m_target.launcher.spec.name;
  h.identity = m_target.key.identity;
  h.mode = std::string(mode_text(s.environment.mode));
  h.key = m_target.key.key;
  h.overwritten = m_target.key.overwritten;
  h.policy =
      Value::dict({{Value("budget"),
                    s.environment.budget_seconds ? Value(*s.environment.budget_seconds) : Value()},
                   {Value("checked"), Value(s.checked)},
                   {Value("measuring"), m_target.key.policy},
                   {Value("prepare"), Value(m_attempt.can_prepare())},
                   {Value("repeat"), Value(s.repeat)},
                   {Value("strategy"), Value(s.strategy)},
                   {Value("warmup"), Value(s.warmup)}});
  std::vector<Value> identities;
  for (const std::size_t i : m_field.open()) identities.push_back(m_field.config(i).identity());
  h.candidates = Value::list(identities);
  h.always_tune = s.environment.always_tune && s.environment.mode == Mode::tune;
  h.version_check = s.environment.version_check;
  h.retry_crashed = s.environment.retry_crashed;
  h.record = offered_record();
  h.record_fits_versions = m_stored && m_stored->differences.empty();
  h.crashed = !m_remains.crashed.empty();
  h.resumable = resumable_text().size();
  h.store_id = m_target.store.id();
  return h;
}

/// The stored choice's best candidate that pruning left in.
std::optional<std::size_t> ColdCall::best_stored() const {
  const auto at =
      std::ranges::find_if(m_stored->ranking, [&](std::size_t i) { return m_field.is_open(i); });
  return at == m_stored->ranking.end() ? std::nullopt : std::optional(*at);
}

/// What this rank could hand on: its record with the one tuning that serves it here, since the
/// newest may be that of another environment. Empty: nothing.
std::string ColdCall::offered_record() const {
  if (!m_stored || !best_stored()) return {};
  Record record = *m_lookup.record;
  record.tunings = {m_stored->tuning};
  return store::write_record(record);
}

detail::Outcome ColdCall::adopt(const agree::Agreed& agreed) {
  std::string offered = offered_record();
  const bool mine = !offered.empty();
  Record record = store::read_record(m_agreement.adopt(agreed, std::move(offered)));
  // Another rank's record is about its own hardware; what it holds for this rank's key is the
  // choice.
  record.key = m_target.key;
  std::string why;
  // Whether other versions may serve was part of the handshake: the tuning's own are no obstacle.
  m_stored = choose(record, record.tunings.front().deps, m_target.settings, m_field, why);
  const auto best = m_stored ? best_stored() : std::nullopt;
  if (!best) throw Error(fmt::format("disttune: the adopted record does not serve: {}", why));
  m_stored->differences = store::deps_differences(record.tunings.front().deps, m_target.deps);
  if (agreed.retry_crashed && holds_crashed()) return retry_crashed(*best);
  warn_of_versions(m_target.launcher.spec.name, m_stored->differences, m_lookup.file.string());
  m_agreement.finish(m_field.config(*best).identity().text());
  if (m_writer && !(agreed.record_everywhere && mine))
    save(record);
  else if (!mine)
    hold(record);
  return outcome(*best, mine ? "stored" : "adopted");
}

/// Whether the adopted tuning has crashed candidates that are open: the same on all ranks.
bool ColdCall::holds_crashed() const {
  return m_target.settings.environment.mode == Mode::tune &&
         std::ranges::any_of(m_stored->tuning.candidates, [&](const CandidateRecord& c) {
           const auto at = m_field.find(c.config.identity());
           return c.status == Status::crashed && at && m_field.is_open(*at);
         });
}

/// Measures the adopted record's crashed candidates against its best; all candidates anew where it
/// was tuned under other versions than some rank's.
detail::Outcome ColdCall::retry_crashed(std::size_t best) {
  std::int64_t differs[] = {m_stored->differences.empty() ? 0 : 1};
  m_agreement.unite(differs);
  m_incumbent = best;
  m_miss_reason = "RETRY_CRASHED is set, and the record has crashed candidates";
  if (differs[0] == 0) {
    for (const CandidateRecord& c : m_stored->tuning.candidates)
      if (const auto at = m_field.find(c.config.identity());
          c.status == Status::crashed && at && m_field.is_open(*at))
        m_stored->unknown.push_back(*at);
    m_kept = take_over(*m_stored, best, m_field);
  }
  return tune();
}

/// Crashed candidates are a union over the ranks; samples come from the lowest rank that has any.
void ColdCall::share_remains(const agree::Agreed& agreed) {
  if (agreed.crashed) {
    // One mark a candidate that pruning left in: these lists are agreed, the full ones may differ.
    const auto open = m_field.open();
    std::vector<std::int64_t> marks(open.size(), 0);
    for (const auto& crash : m_remains.crashed)
      if (const auto at = m_field.find(crash.candidate))
        if (const auto k = std::ranges::find(open, *at); k != open.end())
          marks[static_cast<std::size_t>(k - open.begin())] = 1;
    m_agreement.unite(marks);
    leave_out_crashed();
    for (std::size_t k = 0; k < open.size(); ++k)
      if (marks[k] != 0 && m_field.is_open(open[k]) && !agreed.retry_crashed)
        m_field.end(open[k], Status::crashed,
                    "a process died while it ran on another rank; "
                    "TRITON_DIST_AUTOTUNE_RETRY_CRASHED=1 tries it again");
  }
  if (!agreed.resume_rank) return;
  std::string text = m_agreement.rank() == *agreed.resume_rank ? resumable_text() : std::string{};
  m_agreement.broadcast(text, *agreed.resume_rank, agreed.resume_bytes);
  for (const auto& [candidate, samples] : Value::parse(text).entries()) {
    const auto at = m_field.find(candidate);
    if (!at || !m_field.is_open(*at)) continue;
    for (const Value& ns : samples.items())
      m_field.records()[*at].samples_ns.push_back(ns.as<std::int64_t>());
  }
}

/// Reduced samples of an earlier, dead run: identity → nanoseconds.
std::string ColdCall::resumable_text() const {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& noted : m_remains.measured)
    if (const auto at = m_field.find(noted.candidate);
        at && m_field.is_open(*at) && noted.status == Status::ok &&
        noted.samples_ns.size() == m_target.settings.repeat)
      entries.emplace_back(noted.candidate,
                           Value::list({noted.samples_ns.begin(), noted.samples_ns.end()}));
  return entries.empty() ? std::string{} : std::string(Value::dict(std::move(entries)).text());
}

}  // namespace disttune::session
