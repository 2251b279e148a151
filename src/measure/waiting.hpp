// Waiting for a stream, and the ways out of a measurement that are no candidate's failure.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "disttune/device.hpp"

namespace disttune::timing {

/// Carries an exception that is not the candidate's past the place where candidates fail.
struct Passing {
  std::exception_ptr cause;
};
/// The stream was not done in time.
struct Late {};

template <class F>
decltype(auto) passing(const F& f) {
  try {
    return f();
  } catch (...) {
    throw Passing{std::current_exception()};
  }
}
template <class F>
decltype(auto) unwrapped(const F& f) {
  try {
    return f();
  } catch (const Passing& p) {
    std::rethrow_exception(p.cause);
  }
}

/// Waits for one stream, with a limit, asking now and then whether to go on.
class Waiting {
 public:
  /// `now`, `poll`: may be changed by nobody while this lives; `poll` may be empty.
  Waiting(StreamTimer& timer, const std::function<Deadline()>& now,
          const std::function<void()>& poll)
      : m_timer(timer), m_now(now), m_poll(poll) {}

  /// False: work was still queued after `patience` (zero: for ever). What `poll` throws comes out
  /// as Passing.
  [[nodiscard]] bool drained(std::chrono::nanoseconds patience);
  /// The same; throws Late.
  void drain(std::chrono::nanoseconds patience) {
    if (!drained(patience)) throw Late{};
  }

  /// Whose work was given up and may still be queued.
  void leave_behind(std::string whose) { m_leftover = std::move(whose); }
  [[nodiscard]] bool left_behind() const noexcept { return !m_leftover.empty(); }
  /// Before anything new is queued. Throws DeviceLost when what was left behind is still there.
  void catch_up(std::chrono::nanoseconds patience);

 private:
  StreamTimer& m_timer;
  const std::function<Deadline()>& m_now;
  const std::function<void()>& m_poll;
  std::string m_leftover;
};

}  // namespace disttune::timing
