// How far a tuning has come, for a person who waits: one line that is rewritten on a terminal, a
// plain line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "disttune/observer.hpp"

namespace disttune::observe {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds k_redraw{100};  ///< on a terminal
  static constexpr std::chrono::seconds k_heartbeat{5};      ///< elsewhere

  /// `columns` > 0: a terminal of that width. `out` takes raw text.
  Progress(int columns, std::function<void(std::string_view)> out,
           std::function<Clock::time_point()> now = Clock::now)
      : m_columns(columns), m_out(std::move(out)), m_now(std::move(now)) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void visit_done(const VisitDone& e);
  void decided(const Decided& e);
  /// Takes the line off the terminal, before anything else is written there.
  void clear();

 private:
  void show(std::string text);

  int m_columns;
  std::function<void(std::string_view)> m_out;
  std::function<Clock::time_point()> m_now;
  std::optional<Clock::time_point> m_shown_at;
  std::optional<Clock::time_point> m_began;
  bool m_on_screen = false;
  double m_best_ns = 0;  ///< 0: none yet
  std::string m_best;
};

/// The width of the terminal that standard error is; 0: it is none.
[[nodiscard]] int stderr_columns() noexcept;

}  // namespace disttune::observe
