#include "session/kept_choice.hpp"

#include <fmt/format.h>

#include "observe/observe.hpp"
#include "session/stored_choice.hpp"

namespace disttune::session {

KeptChoice::KeptChoice(const detail::Launcher& kernel, const detail::Call& call,
                       const Settings& settings, const std::string& outer)
    : m_call(call), m_target(kernel.state(), m_call), m_field(kernel.spec().candidates) {
  m_target.settings = settings;
  m_target.settings.checked = kernel.spec().options.checked;  // of each kernel by itself
  auto policy = settings.policy(*m_target.stream.device).entries();
  policy.emplace_back(Value("inside"), Value(outer));
  m_target.key.policy = Value::dict(std::move(policy));
}

/// However the call ended, this process has lived through it.
KeptChoice::~KeptChoice() {
  if (!m_journal) return;
  m_journal->interrupted();
  m_journal->close(false);
}

std::optional<StoredChoice> KeptChoice::load(const Value& group) {
  m_target.key.group = group;
  const auto& env = m_target.settings.environment;
  if (env.always_tune && env.mode == core::Mode::tune) return std::nullopt;
  const auto lookup = m_target.store.load(m_target.launcher.spec.name, m_target.key);
  if (!lookup.record) return std::nullopt;
  std::string why;
  return choose(*lookup.record, m_target.deps, m_target.settings, m_field, why);
}

void KeptChoice::follow(const agree::Agreed& agreed) {
  auto& env = m_target.settings.environment;
  env.always_tune = agreed.always_tune;
  env.version_check = agreed.version_check;
  env.retry_crashed = agreed.retry_crashed;
}

KeptChoice::Offer KeptChoice::offer(const Value& group) {
  const auto stored = load(group);
  if (!stored) return {};
  const auto& spec = m_target.launcher.spec;
  const Record record{spec.name, spec.module, m_target.key, {stored->tuning}, "{}"};
  return {store::write_record(record), !stored->differences.empty()};
}

/// Whether other versions may serve was asked where it was offered: the tuning's own are no
/// obstacle.
std::optional<StoredChoice> KeptChoice::read(const std::string& offered) const {
  const Record record = store::read_record(offered);
  const Value& deps = record.tunings.front().deps;
  std::string why;
  auto stored = choose(record, deps, m_target.settings, m_field, why);
  if (stored) stored->differences = store::deps_differences(deps, m_target.deps);
  return stored;
}

void KeptChoice::save(const TuningRecord& tuning) {
  const auto& spec = m_target.launcher.spec;
  const store::Saved saved =
      m_target.store.save(Record{spec.name, spec.module, m_target.key, {tuning}, "{}"});
  if (!saved.problem.empty())
    observe::message(Level::warning, fmt::format("disttune: '{}': {}", spec.name, saved.problem),
                     fmt::format("store {}", m_target.store.root().value_or("-").string()));
  store::remove_files(m_remains);
}

void KeptChoice::leave_out_crashed(Field& field) {
  m_remains = m_target.remains();
  if (!m_target.settings.environment.retry_crashed) session::leave_out_crashed(m_remains, field);
}

void KeptChoice::begins(const Value& candidate) {
  if (!m_journal && m_target.store.root())
    m_journal.emplace(m_target.store.file(m_target.launcher.spec.name, m_target.key),
                      m_target.key.text(), m_target.journal_policy());
  if (m_journal) m_journal->begin(candidate);
}

void KeptChoice::ended(const Value& candidate, Status status, std::string_view reason) noexcept {
  if (m_journal) m_journal->end(candidate, status, reason, {});
}

}  // namespace disttune::session
