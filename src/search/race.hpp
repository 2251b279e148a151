// `race`: a lockstep interleaved race. Every candidate is looked at once; those that may still win
// run on in rounds, each round all of them in a new order, and are compared within the round, so
// that a drifting clock cancels out. Slow candidates cost one visit, and a search never takes more
// runs than `fixed` would with the same counts.
//
// After Maron and Moore's races (1993) and Birattari et al.'s F-Race (2002), with the paired
// interleaving of Bulej et al. (2020); sequential halving's cap on survivors bounds the cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "disttune/selector.hpp"

namespace disttune::search {

class RaceSelector final : public Selector {
 public:
  /// `problem.untimed` and `problem.timed` bound the runs of a visit (1 + 2) and all runs together.
  explicit RaceSelector(Problem problem);

  [[nodiscard]] std::span<const Visit> next() override;
  void report(std::span<const std::int64_t> samples) override;
  void stop() override;
  /// A survivor's score comes from all its rounds, another's from the rounds it took part in;
  /// neither claims to be faster than the winner when it was dropped.
  [[nodiscard]] Decision decision() const override;

  /// Who may still win, by index. For tests and traces.
  [[nodiscard]] std::vector<std::uint32_t> survivors() const;

 private:
  struct Runner {
    std::vector<std::int64_t> logs;  ///< log2 of its visits' times, by round
    bool racing = true;
    bool failed = false;
  };

  void plan_screen();
  void plan_rounds(std::size_t rounds);
  void record(std::uint32_t candidate, std::span<const std::int64_t> samples);
  void group_done();
  void drop_after_screen();
  void drop_slower(const std::vector<std::uint32_t>& racing);
  void drop_beyond_cap(std::vector<std::uint32_t> racing, const std::vector<double>& behind);
  [[nodiscard]] std::size_t rounds_next() const;
  [[nodiscard]] std::size_t first_round(std::size_t rounds) const noexcept;
  [[nodiscard]] std::vector<std::int64_t> lags(std::uint32_t c, std::uint32_t leader) const;
  [[nodiscard]] std::uint32_t leader_of(const std::vector<std::uint32_t>& racing) const;
  void shuffle(std::vector<std::uint32_t>& list);

  Problem m_problem;
  std::uint16_t m_untimed;
  std::uint16_t m_timed;
  std::vector<Runner> m_runners;
  std::vector<Visit> m_plan;  ///< the group at hand; [m_begin, m_end) is the batch at hand
  std::size_t m_begin = 0;
  std::size_t m_end = 0;
  std::size_t m_batch = 0;  ///< visits a batch
  std::size_t m_group = 0;  ///< 0: the screen
  std::size_t m_runs_left = 0;
  bool m_has_known = false;
  bool m_level = false;  ///< all that race are the same speed
  std::uint64_t m_random;
};

[[nodiscard]] std::unique_ptr<Selector> make_race(const Problem& problem);

}  // namespace disttune::search
