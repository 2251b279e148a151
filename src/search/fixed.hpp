// `fixed`, the default strategy: every candidate, in list order, with exact counts. What users of a
// plain autotuner expect, and cheap where candidates are few.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "disttune/selector.hpp"

namespace disttune::search {

/// One batch of all candidates that are not known yet; with `one_by_one` one candidate a batch.
class FixedSelector final : public Selector {
 public:
  explicit FixedSelector(Problem problem);

  [[nodiscard]] std::span<const Visit> next() override;
  void report(std::span<const std::int64_t> samples) override;
  void stop() override;
  [[nodiscard]] Decision decision() const override;

 private:
  Problem m_problem;
  std::vector<Visit> m_visits;  ///< all of them; [m_begin, m_end) is the batch at hand
  std::size_t m_begin = 0;
  std::size_t m_end = 0;
  std::vector<double> m_scores;
};

[[nodiscard]] std::unique_ptr<Selector> make_fixed(const Problem& problem);

}  // namespace disttune::search
