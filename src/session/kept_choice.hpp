// Where the choice of a contextual call is kept for other processes: a record like that of a
// function-level launcher, whose policy names the outer function besides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agree/agreement.hpp"
#include "session/stored_choice.hpp"
#include "session/target.hpp"
#include "store/journal.hpp"

namespace disttune::session {

class KeptChoice {
 public:
  KeptChoice(const detail::Launcher& kernel, const detail::Call& call, const Settings& settings,
             const std::string& outer);
  ~KeptChoice();
  KeptChoice(const KeptChoice&) = delete;  // the target refers to the call
  KeptChoice& operator=(const KeptChoice&) = delete;

  /// What is stored and serves; `group`: the shape of the ranks that decide, None for one.
  [[nodiscard]] std::optional<StoredChoice> load(const Value& group);
  /// One rank's wish holds for all.
  void follow(const agree::Agreed& agreed);
  /// What this rank could hand on to the others.
  struct Offer {
    std::string text;  ///< a record; empty: nothing
    bool other_versions = false;
  };
  [[nodiscard]] Offer offer(const Value& group);
  /// What a rank has handed on; its `differences` are those from this rank's versions.
  [[nodiscard]] std::optional<StoredChoice> read(const std::string& offered) const;
  void save(const TuningRecord& tuning);

  // Alone only: ranks know the key's group when they have met.
  /// By what processes that died while they tuned this have left.
  void leave_out_crashed(Field& field);
  /// A candidate is about to run, and has run: for who comes after a process that died in between.
  void begins(const Value& candidate);
  void ended(const Value& candidate, Status status, std::string_view reason) noexcept;
  /// The device is lost: what was noted last stays, as if the process had died.
  void lost() noexcept { m_journal.reset(); }

  [[nodiscard]] Value hardware() const { return m_target.key.hardware; }
  [[nodiscard]] std::uint64_t store_id() const { return m_target.store.id(); }

 private:
  detail::Call m_call;
  Target m_target;
  Field m_field;
  store::Remains m_remains;
  std::optional<store::Journal> m_journal;  ///< from the first note on
};

}  // namespace disttune::session
