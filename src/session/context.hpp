// One context: the tuning of one (kernel, key, device) inside a contextual call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agree/agreement.hpp"
#include "disttune/detail/attempt.hpp"
#include "measure/stopwatch.hpp"
#include "observe/context_log.hpp"
#include "session/field.hpp"
#include "session/settings.hpp"
#include "session/tuning.hpp"

namespace disttune::session {

class Context {
 public:
  /// Born at a kernel's first launch with a new key; prunes, and compiles ahead where it can.
  Context(const detail::Launcher& kernel, const detail::Call& call, detail::Attempt& attempt,
          const Settings& settings, agree::Agreement& agreement, observe::ContextLog& log);

  Context(const Context&) = delete;  // the tuning calls back into this very object
  Context& operator=(const Context&) = delete;

  /// Answers one launch: the next step, the default while a batch waits for its reduction, or the
  /// winner.
  void launch(const detail::Call& call, detail::Attempt& attempt);

  // Between passes, and only there. With a group every one of these is a collective or branches on
  // agreed data, in the order in which the contexts were found.
  void collect();  ///< reads the samples of the pass
  void vote();     ///< what failed anywhere is launched nowhere from now on
  [[nodiscard]] bool batch_full() const;
  void reduce_and_advance();
  /// Counts passes that brought nothing; true when the context gives up.
  [[nodiscard]] bool starved();

  [[nodiscard]] bool open() const noexcept {
    return m_phase != Phase::decided && m_phase != Phase::given_up;
  }
  [[nodiscard]] bool decided() const noexcept { return m_phase == Phase::decided; }
  [[nodiscard]] bool waits_for_vote() const noexcept;
  [[nodiscard]] std::size_t winner() const noexcept { return m_field.space_index(*m_winner); }
  [[nodiscard]] TuningRecord tuning_record() const;
  [[nodiscard]] const detail::Launcher& kernel() const noexcept { return m_kernel; }
  [[nodiscard]] const Value& key() const noexcept { return m_key; }
  /// What ranks must have in common after a pass: name, key, candidates, launches.
  [[nodiscard]] Value agreed_part() const;
  void next_pass() noexcept { m_launches = 0; }
  /// Whether the decision was told to the front.
  [[nodiscard]] bool announced() const noexcept { return m_announced; }
  void set_announced() noexcept { m_announced = true; }

 private:
  enum class Phase { found, first_runs, measuring, decided, given_up };

  void prepare(detail::Attempt& attempt);
  void begin_measuring();
  void take_step(const detail::Call& call, detail::Attempt& attempt);
  void first_run(detail::Attempt& attempt);
  [[nodiscard]] bool run_step(const Step& step, const detail::Call& call, detail::Attempt& attempt);
  void run_stand_in(detail::Attempt& attempt);
  void fail(std::size_t i, Status status, std::string reason);
  [[nodiscard]] measure::Stopwatch& stopwatch(const Stream& stream);
  void conclude();

  const detail::Launcher& m_kernel;
  Value m_key;
  Value m_deps;
  const Settings& m_settings;
  agree::Agreement& m_agreement;
  observe::ContextLog& m_log;
  Field m_field;
  Phase m_phase = Phase::found;
  bool m_compiled_ahead = false;
  std::vector<std::size_t> m_who;  ///< candidate of the selector → field index
  std::size_t m_next_first_run = 0;
  std::unique_ptr<Tuning> m_tuning;
  struct Timed {
    std::unique_ptr<measure::Stopwatch> watch;
    std::vector<Step> pending;  ///< timed since the last `collect`
  };
  std::map<std::pair<const Device*, void*>, Timed> m_watches;
  std::vector<std::string> m_reasons;   ///< by field index
  std::optional<std::size_t> m_winner;  ///< field index
  bool m_published = false;
  bool m_announced = false;
  std::size_t m_launches = 0;  ///< in this pass
  bool m_progress = true;
  int m_idle_passes = 0;
};

}  // namespace disttune::session
