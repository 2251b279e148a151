// The caller's code, seen by those who wait for the thread that runs it: it may be waiting for one
// of them. A thread that has a key or a turn runs the caller's code in one of these.
#pragma once

#include <cstddef>

#include "disttune/detail/attempt.hpp"
#include "session/process.hpp"

namespace disttune::session {

/// The caller's code runs in this thread. `RunClock::run_begins` in it says that it is getting on.
class WatchedRuns {
 public:
  WatchedRuns() noexcept : m_is_nested(RunClock::in_run()) { RunClock::run_begins(); }
  /// Behind a tuning inside a run, that run goes on.
  ~WatchedRuns() { m_is_nested ? RunClock::run_begins() : RunClock::runs_end(); }
  WatchedRuns(const WatchedRuns&) = delete;
  WatchedRuns& operator=(const WatchedRuns&) = delete;

 private:
  bool m_is_nested;
};

/// An attempt for one visit.
class WatchedAttempt final : public detail::Attempt {
 public:
  explicit WatchedAttempt(detail::Attempt& inner) noexcept : m_inner(inner) {}
  void begin_visit(std::size_t candidate, std::size_t runs) override {
    m_inner.begin_visit(candidate, runs);
  }
  void before_run() override {
    RunClock::run_begins();
    m_inner.before_run();
  }
  void run(std::size_t candidate) override { m_inner.run(candidate); }
  void expect() override {
    RunClock::run_begins();
    m_inner.expect();
  }
  void drop_results() noexcept override { m_inner.drop_results(); }
  void decided(std::size_t) override {}

 private:
  detail::Attempt& m_inner;
  WatchedRuns m_runs;
};

}  // namespace disttune::session
