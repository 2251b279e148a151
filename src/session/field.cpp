#include "session/field.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/text.hpp"
#include "session/watched_attempt.hpp"

namespace disttune::session {

Field::Field(std::span<const Config> space) {
  for (std::size_t i = 0; i < space.size(); ++i) {
    if (!m_by_identity.try_emplace(space[i].identity(), m_records.size()).second) {
      ++m_duplicates;
      continue;
    }
    m_index.push_back(i);
    m_records.emplace_back().config = space[i];
  }
}

std::optional<std::size_t> Field::find(const Value& identity) const {
  const auto at = m_by_identity.find(identity);
  return at == m_by_identity.end() ? std::nullopt : std::optional(at->second);
}

void Field::end(std::size_t i, Status status, std::string reason) {
  m_records[i].status = status;
  m_records[i].reason = core::bounded(std::move(reason));
}

void Field::prune(detail::Attempt& attempt) {
  const WatchedRuns watched;
  for (std::size_t i = 0; i < size(); ++i) {
    RunClock::run_begins();
    if (!attempt.admits(m_index[i])) end(i, Status::pruned, "refused by the prune function");
  }
}

std::vector<std::size_t> Field::open() const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < size(); ++i)
    if (is_open(i)) out.push_back(i);
  return out;
}

std::string Field::failure_text(std::string_view function) const {
  std::string text =
      fmt::format("disttune: no valid configuration for '{}'; {} candidates:", function, size());
  for (std::size_t i = 0; i < size(); ++i)
    text += fmt::format("\n  [{}] {}: {}{}{}", m_index[i], config(i).display(),
                        to_string(m_records[i].status), m_records[i].reason.empty() ? "" : ": ",
                        m_records[i].reason);
  return text;
}

}  // namespace disttune::session
