#include "search/checked.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "disttune/error.hpp"
#include "search/choice.hpp"

namespace disttune::search {

CheckedSelector::CheckedSelector(std::string name, const Problem& problem,
                                 std::unique_ptr<Selector> inner)
    : m_name(std::move(name)),
      m_inner(std::move(inner)),
      m_timed(problem.candidates),
      m_failed(problem.candidates) {
  for (std::uint32_t i = 0; i < problem.candidates; ++i) {
    const auto known = known_samples(problem, i);
    m_timed[i] = !known.empty();
    m_failed[i] = std::ranges::any_of(known, is_unusable);
  }
}

std::span<const Visit> CheckedSelector::next() {
  m_batch = m_inner->next();
  for (const Visit& visit : m_batch)
    if (visit.candidate >= m_timed.size())
      throw Error(
          fmt::format("disttune: the search strategy '{}' asked for a visit of candidate {} of {}",
                      m_name, visit.candidate, m_timed.size()));
  return m_batch;
}

void CheckedSelector::report(std::span<const std::int64_t> samples) {
  std::size_t at = 0;
  for (const Visit& visit : m_batch) {
    if (visit.timed == 0) continue;
    m_timed[visit.candidate] = true;
    if (std::ranges::any_of(samples.subspan(at, visit.timed), is_unusable))
      m_failed[visit.candidate] = true;
    at += visit.timed;
  }
  m_batch = {};  // the span lives until here
  m_inner->report(samples);
}

Decision CheckedSelector::decision() const {
  Decision decision = m_inner->decision();
  decision.scores.resize(m_timed.size(), std::numeric_limits<double>::infinity());
  if (const auto winner = decision.winner) {
    const char* const why = *winner >= m_timed.size() ? "does not exist"
                            : m_failed[*winner]       ? "failed"
                            : !m_timed[*winner]       ? "was never timed"
                                                      : nullptr;
    if (why != nullptr)
      throw Error(
          fmt::format("disttune: the search strategy '{}' chose candidate {} of {}, which {}",
                      m_name, *winner, m_timed.size(), why));
  }
  return decision;
}

}  // namespace disttune::search
