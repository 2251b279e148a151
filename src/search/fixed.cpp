#include "search/fixed.hpp"

#include <limits>
#include <stdexcept>
#include <utility>

#include "search/choice.hpp"

namespace disttune::search {

FixedSelector::FixedSelector(Problem problem) : m_problem(std::move(problem)) {
  check_problem(m_problem);
  m_scores.assign(m_problem.candidates, std::numeric_limits<double>::infinity());
  for (std::uint32_t c = 0; c < m_problem.candidates; ++c) {
    const auto known = known_samples(m_problem, c);
    if (known.empty())
      m_visits.push_back({c, m_problem.untimed, m_problem.timed});
    else
      m_scores[c] = score_of(known);
  }
}

std::span<const Visit> FixedSelector::next() {
  if (m_end == m_begin && m_begin < m_visits.size())
    m_end = m_problem.one_by_one ? m_begin + 1 : m_visits.size();
  return std::span(m_visits).subspan(m_begin, m_end - m_begin);
}

void FixedSelector::report(std::span<const std::int64_t> samples) {
  if (m_end == m_begin) throw std::logic_error("disttune: fixed: a report without a batch");
  if (samples.size() != (m_end - m_begin) * m_problem.timed)
    throw std::invalid_argument("disttune: fixed: a report of another length than its batch");
  for (; m_begin < m_end; ++m_begin) {
    m_scores[m_visits[m_begin].candidate] = score_of(samples.first(m_problem.timed));
    samples = samples.subspan(m_problem.timed);
  }
}

void FixedSelector::stop() {
  m_visits.clear();
  m_begin = m_end = 0;
}

Decision FixedSelector::decision() const { return decide(m_problem, m_scores); }

std::unique_ptr<Selector> make_fixed(const Problem& problem) {
  return std::make_unique<FixedSelector>(problem);
}

}  // namespace disttune::search
