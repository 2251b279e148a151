// One cold call from the store to the decision, in the thread that makes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agree/agreement.hpp"
#include "disttune/detail/attempt.hpp"
#include "session/field.hpp"
#include "session/measuring.hpp"
#include "session/stored_choice.hpp"
#include "session/target.hpp"

namespace disttune::session {

class ColdCall {
 public:
  ColdCall(detail::LauncherState& launcher, const detail::Call& call, detail::Attempt& attempt);
  /// The order of design and documentation: store, prune, agreement, measuring, record.
  [[nodiscard]] detail::Outcome run();

 private:
  void look_up();
  [[nodiscard]] std::optional<std::size_t> stored_winner();
  [[nodiscard]] std::optional<std::size_t> earlier_winner() const;
  [[nodiscard]] detail::Outcome decide_alone();
  [[nodiscard]] detail::Outcome decide_together();
  [[nodiscard]] detail::Outcome miss_without_tuning();
  [[nodiscard]] detail::Outcome first_that_works();
  [[nodiscard]] std::optional<std::size_t> find_first_that_works(store::Journal& journal);
  [[nodiscard]] store::Journal new_journal() const;
  [[nodiscard]] detail::Outcome tune();
  void read_remains();
  void leave_out_crashed();
  void resume_alone();
  [[nodiscard]] Measured measure(store::Journal& journal);
  template <class F>
  auto noted(store::Journal& journal, F&& work);

  void name_slow_rank(std::vector<RankMedian> medians) const;

  [[nodiscard]] agree::Hello hello() const;
  [[nodiscard]] std::string offered_record() const;
  [[nodiscard]] std::optional<std::size_t> best_stored() const;
  [[nodiscard]] detail::Outcome adopt(const agree::Agreed& agreed);
  [[nodiscard]] bool holds_crashed() const;
  [[nodiscard]] detail::Outcome retry_crashed(std::size_t best);
  void share_remains(const agree::Agreed& agreed);
  [[nodiscard]] std::string resumable_text() const;
  [[noreturn]] void nothing_works();
  void refuse_capture() const;
  [[nodiscard]] TuningRecord tuning_record(const Measured& measured) const;
  void keep(TuningRecord tuning);
  [[nodiscard]] bool still_cut_short(const std::vector<CandidateRecord>& candidates) const;
  void save(const Record& record);
  void hold(const Record& record);
  [[nodiscard]] detail::Outcome outcome(std::size_t candidate, std::string_view source,
                                        bool restore = false) const;

  Target m_target;
  detail::Attempt& m_attempt;
  agree::Agreement m_agreement;
  Field m_field;
  store::Lookup m_lookup;
  std::optional<StoredChoice> m_stored;
  std::string m_miss_reason;
  std::optional<std::size_t> m_incumbent;
  std::vector<CandidateRecord>
      m_kept;  ///< candidates of the stored tuning that the space lacks now
  store::Remains m_remains;
  bool m_writer = true;  ///< whether this rank writes to its store
};

}  // namespace disttune::session
