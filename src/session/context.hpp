// One context: the tuning of one (kernel, key, device) inside a contextual call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agree/agreement.hpp"
#include "disttune/detail/attempt.hpp"
#include "measure/stopwatch.hpp"
#include "observe/context_log.hpp"
#include "session/field.hpp"
#include "session/settings.hpp"
#include "session/stored_choice.hpp"
#include "session/tuning.hpp"

namespace disttune::session {

class KeptChoice;

/// What makes no progress for so many passes in a row is given up.
inline constexpr int k_idle_passes = 3;

class Context {
 public:
  /// Born at a kernel's first launch with a new key; prunes, and compiles ahead where it can.
  /// `kept`: where choices are kept, for one process that keeps them; outlives this.
  Context(const detail::Launcher& kernel, const detail::Call& call, detail::Attempt& attempt,
          const Settings& settings, agree::Agreement& agreement, observe::ContextLog& log,
          KeptChoice* kept);

  Context(const Context&) = delete;  // the tuning calls back into this very object
  Context& operator=(const Context&) = delete;

  /// Answers one launch: the next step, the default while a batch waits for its reduction, or the
  /// winner. NoValidConfig where nothing is left to run.
  void launch(const detail::Call& call, detail::Attempt& attempt);
  /// A launch of this context has launched `inner`, which is not decided: that one comes first,
  /// since a time with a tuning inside it says nothing. Until then this one repeats its step.
  void wait_for(const Context& inner) noexcept { m_inner = &inner; }
  /// It was launched below `outermost`, whose candidates reach it in some passes only.
  void is_below(const Context& outermost) noexcept { m_outermost = &outermost; }

  // Between passes, and only there. With a group every one of these is a collective or branches on
  // agreed data, in an order that all ranks share.
  void collect();  ///< reads the samples of the pass
  /// Which choice this rank's kernel has for the key already, as a word for one MAX with its
  /// complement; 0: none.
  [[nodiscard]] std::int64_t held_word() const;
  /// All ranks have the same one.
  void settle_held();
  /// On ranks: all go by this one. `other_versions`: it was tuned under others than those of the
  /// rank that handed it on.
  void adopt(const StoredChoice& stored, bool other_versions);
  /// Votes, or reduces a full batch and advances, where that is due.
  void step_between_passes();
  /// On ranks: whether a step between passes is due, and whether the pass brought anything. Below
  /// another context, whose candidate may have failed on one rank, these differ between ranks; then
  /// the last one to be ready is waited for.
  struct Progress {
    bool ready = false;
    bool progress = false;
    bool moved = false;
  };
  [[nodiscard]] Progress progress() const;
  void agreed_on(const Progress& all) noexcept;
  /// Counts passes that brought nothing; true when the context gives up.
  [[nodiscard]] bool starved();
  /// Whether it came a step further since the last call of this; what its first pass brought does
  /// not count.
  [[nodiscard]] bool moved() noexcept;
  /// Stays undecided.
  void give_up();

  [[nodiscard]] bool open() const noexcept {
    return m_phase == Phase::found || m_phase == Phase::first_runs || m_phase == Phase::measuring;
  }
  [[nodiscard]] bool just_found() const noexcept { return m_phase == Phase::found; }
  /// Whether there is a choice, to be told and kept.
  [[nodiscard]] bool decided() const noexcept { return m_phase == Phase::decided && !m_makeshift; }
  /// What runs for want of a choice: MODE cached and first.
  [[nodiscard]] bool makeshift() const noexcept { return m_makeshift; }
  /// Whether times were taken for the decision.
  [[nodiscard]] bool tuned() const noexcept { return m_tuning != nullptr && decided(); }
  /// Decided at its birth: the passes so far ran the winner.
  [[nodiscard]] bool was_settled_alone() const noexcept { return m_settled_alone; }
  [[nodiscard]] std::size_t winner() const noexcept { return m_field.space_index(*m_winner); }
  [[nodiscard]] const Value& winner_identity() const {
    return m_field.config(*m_winner).identity();
  }
  /// Whether results are compared with a reference.
  [[nodiscard]] bool checked() const noexcept { return m_kernel.spec().options.checked; }
  /// `contended`: something else was measured on the device at the same time.
  [[nodiscard]] TuningRecord tuning_record(bool contended) const;
  /// This rank's median of the winner; below 0: none.
  [[nodiscard]] std::int64_t own_median_ns() const;
  void know(std::vector<RankMedian> medians) { m_medians = std::move(medians); }
  [[nodiscard]] const detail::Launcher& kernel() const noexcept { return m_kernel; }
  [[nodiscard]] const Value& key() const noexcept { return m_key; }
  [[nodiscard]] std::size_t launches() const noexcept { return m_launches; }  ///< in this pass
  [[nodiscard]] bool is_below_another() const noexcept { return m_outermost != nullptr; }
  /// The identities of those that can be launched, in order, until the first vote; empty
  /// afterwards.
  [[nodiscard]] Value candidates() const;
  /// Why a launch of this pass on this rank found nothing to run; empty: none did.
  [[nodiscard]] const std::string& stuck() const noexcept { return m_stuck; }
  /// `last`: its results are the caller's.
  void next_pass(bool last) noexcept;

 private:
  enum class Phase { found, first_runs, measuring, decided, given_up, nothing_works };

  void hold(std::optional<std::size_t> candidate);
  void start_from(const StoredChoice& stored, bool other_versions);
  void prepare(detail::Attempt& attempt);
  void begin_measuring();
  void take_step(const detail::Call& call, detail::Attempt& attempt);
  void first_run(detail::Attempt& attempt);
  [[nodiscard]] bool run_step(const Step& step, const detail::Call& call, detail::Attempt& attempt);
  void run_untimed(std::size_t i, detail::Attempt& attempt);
  void run_stand_in(detail::Attempt& attempt);
  [[nodiscard]] static double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  /// A run is about to be made whose result is not the caller's.
  void begin_run(std::size_t entry, detail::Attempt& attempt);
  void run_winner(detail::Attempt& attempt);
  [[noreturn]] void refuse();
  void nothing_works();
  void vote();
  void vote_on_failures();
  void reduce_and_advance();
  void settle_untuned();
  void go_without_choice();
  [[nodiscard]] bool inner_undecided_everywhere() const noexcept;
  void failed(std::size_t i, const std::exception& error);
  void report(const Visit& visit, std::span<const std::int64_t> samples);
  [[nodiscard]] bool blocked() const noexcept { return m_inner != nullptr && m_inner->open(); }
  [[nodiscard]] bool tunes() const noexcept;
  [[nodiscard]] bool batch_full() const;
  [[nodiscard]] bool waits_for_vote() const noexcept;
  [[nodiscard]] std::size_t first_admitted() const noexcept;
  [[nodiscard]] std::string line_about(std::size_t i) const;
  [[nodiscard]] timing::Stopwatch& stopwatch(const Stream& stream);
  void conclude();

  const detail::Launcher& m_kernel;
  Value m_key;
  Value m_deps;
  std::string m_clock;  ///< for messages
  const Settings& m_settings;
  agree::Agreement& m_agreement;
  observe::ContextLog& m_log;
  KeptChoice* m_kept_choice;
  Field m_field;
  Phase m_phase = Phase::found;
  bool m_compiled_ahead = false;
  std::vector<std::size_t> m_who;  ///< candidate of the selector → field index
  std::size_t m_next_first_run = 0;
  std::unique_ptr<Tuning> m_tuning;
  struct Taken {
    std::optional<Step> step;  ///< none: dropped
    std::int64_t host_ns = 0;
  };
  struct Timed {
    std::unique_ptr<timing::Stopwatch> watch;
    std::vector<Taken> pending;  ///< timed since the last `collect`
  };
  std::map<std::pair<const Device*, void*>, Timed> m_watches;
  std::size_t m_timed_steps = 0;           ///< in this pass
  std::vector<std::string> m_reasons;      ///< by field index
  std::vector<char> m_looked_at;           ///< by field index: its result was checked
  std::optional<std::size_t> m_held;       ///< field index
  std::optional<std::size_t> m_winner;     ///< field index
  std::optional<std::size_t> m_incumbent;  ///< field index: the stored best, among newer ones
  std::vector<CandidateRecord> m_kept;     ///< stored candidates that the space lacks now
  const Context* m_inner = nullptr;        ///< open, and launched by this one's last launch
  bool m_was_blocked = false;              ///< by what the launch before launched
  const Context* m_outermost = nullptr;    ///< whose launch this one's was part of
  bool m_settled_alone = false;
  bool m_makeshift = false;           ///< the winner is no choice
  std::size_t m_untuned = 0;          ///< field index: what MODE first tries next
  bool m_ran = false;                 ///< runs were made whose results are not the caller's
  bool m_final_run = false;           ///< the winner has run
  std::set<std::uintptr_t> m_left;    ///< data in which those runs have left something
  std::size_t m_launches_before = 0;  ///< in the pass before
  std::size_t m_passes = 0;           ///< begun since it was found
  bool m_last_pass = false;
  std::size_t m_launches = 0;  ///< in this pass
  bool m_all_ready = true;     ///< on ranks: as far as they have compared it
  std::string m_stuck;
  std::chrono::steady_clock::time_point m_born = std::chrono::steady_clock::now();
  double m_prepare_seconds = 0;
  std::chrono::steady_clock::time_point m_measuring_since;
  double m_measure_seconds = 0;
  std::string m_gate = "none";
  bool m_ungated = false;                        ///< the device has a gate and a launch defeated it
  std::vector<std::vector<std::int64_t>> m_own;  ///< by field index: samples before reduction
  std::vector<RankMedian> m_medians;
  bool m_out_of_budget = false;
  bool m_throttled = false;
  bool m_progress = true;
  bool m_moved = false;
  bool m_seen_before = false;
  int m_idle_passes = 0;
};

}  // namespace disttune::session
