// A strategy of the user's, held to the contract of Selector: a slip in it is an error that says
// what it did, not an access beyond the candidates or a record that nobody can read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "disttune/selector.hpp"

namespace disttune::search {

/// Throws Error, naming the strategy, for a visit of a candidate that does not exist, a winner that
/// does not exist, failed or was never timed. Scores that are missing become infinity.
class CheckedSelector final : public Selector {
 public:
  CheckedSelector(std::string name, const Problem& problem, std::unique_ptr<Selector> inner);

  [[nodiscard]] std::span<const Visit> next() override;
  void report(std::span<const std::int64_t> samples) override;
  void stop() override { m_inner->stop(); }
  [[nodiscard]] Decision decision() const override;

 private:
  std::string m_name;
  std::unique_ptr<Selector> m_inner;
  std::span<const Visit> m_batch;
  std::vector<bool> m_timed;
  std::vector<bool> m_failed;
};

}  // namespace disttune::search
