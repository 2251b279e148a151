#include "session/kept_choice.hpp"

#include <fmt/format.h>

#include "observe/observe.hpp"
#include "session/stored_choice.hpp"

namespace disttune::session {

KeptChoice::KeptChoice(const detail::Launcher& kernel, const detail::Call& call,
                       const Settings& settings, const std::string& outer)
    : m_call(call), m_target(kernel.state(), m_call) {
  m_target.settings = settings;
  auto policy = settings.policy(*m_target.stream.device).entries();
  policy.emplace_back(Value("inside"), Value(outer));
  m_target.key.policy = Value::dict(std::move(policy));
}

std::optional<std::size_t> KeptChoice::load(const Value& group) {
  m_target.key.group = group;
  if (m_target.settings.environment.always_tune) return std::nullopt;
  const auto& spec = m_target.launcher.spec;
  const auto lookup = m_target.store.load(spec.name, m_target.key);
  if (!lookup.record) return std::nullopt;
  const Field field(spec.candidates);
  std::string why;
  const auto stored = choose(*lookup.record, m_target.deps, m_target.settings, field, why);
  // What the record does not know might be better: then all are tuned.
  if (!stored || stored->ranking.empty() || !stored->unknown.empty()) return std::nullopt;
  return field.space_index(stored->ranking.front());
}

void KeptChoice::save(const TuningRecord& tuning) {
  const auto& spec = m_target.launcher.spec;
  const store::Saved saved =
      m_target.store.save(Record{spec.name, spec.module, m_target.key, {tuning}, "{}"});
  if (!saved.problem.empty())
    observe::message(Level::warning, fmt::format("disttune: '{}': {}", spec.name, saved.problem),
                     fmt::format("store {}", m_target.store.root().value_or("-").string()));
}

}  // namespace disttune::session
