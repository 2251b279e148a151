// Ranks as threads of one process, with faults and a clock of their own: for tests of selectors,
// devices and launchers that must behave alike on all ranks. Target disttune::testing.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "disttune/group.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace testing {

/// What goes wrong when `rank` begins its `reduction`-th collective (the first is 1).
struct Fault {
  enum class Kind {
    fail,        ///< all_reduce_max throws InjectedFault; the rank's caller sees an exception
    vanish,      ///< as a process that was stopped: throws, and nothing is heard of it any more
    disconnect,  ///< as a process that was killed: the same, and the others see a broken connection
    delay,       ///< it sleeps first, giving signs of life
    hang,        ///< it sleeps first, silent
  };
  int rank = 0;
  std::uint64_t reduction = 1;
  Kind kind = Kind::fail;
  std::chrono::nanoseconds time{};  ///< of delay and hang
};

class InjectedFault : public Error {
 public:
  using Error::Error;
};

enum class Time {
  real,      ///< the monotonic clock
  scripted,  ///< stands still while any rank runs; when all wait, it jumps to the next deadline
};

/// A group of 1 to 64 ranks (more work too, slowly). The seats live as long as this object.
class Ranks {
 public:
  /// Throws std::invalid_argument as ProcessGroup does.
  explicit Ranks(int size, Time time = Time::scripted, std::vector<int> ranks_per_node = {});
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] ProcessGroup& operator[](int rank) noexcept;
  /// Before `run`, or between two.
  void inject(Fault fault);

  /// Runs `body` once a rank, each in its own thread, except on the ranks `absent`; returns when
  /// all have ended. By rank, what it threw; null for a rank that ended well or was absent. One
  /// thread a rank may use the group; scripted time stands still outside.
  std::vector<std::exception_ptr> run(const std::function<void(ProcessGroup&)>& body,
                                      const std::vector<int>& absent = {});

  /// In a rank's thread: it is busy for `time`, with or without signs of life.
  void sleep(int rank, std::chrono::nanoseconds time, bool alive = true);
  /// Nothing is heard of `rank` any more; `broken`: the others see a broken connection.
  void kill(int rank, bool broken);
  [[nodiscard]] Deadline now() const;
  /// Collectives that `rank` began, and words that it passed in them.
  [[nodiscard]] std::uint64_t reductions(int rank) const;
  [[nodiscard]] std::uint64_t words(int rank) const;
  /// Waits (in real time) until `count` ranks are waiting in a collective.
  void wait_until_waiting(int count) const;

 private:
  class Hub;
  class Seat;
  std::unique_ptr<Hub> m_hub;
  std::vector<std::unique_ptr<Seat>> m_seats;
};

/// "" for null, else what() of the exception; "not a std::exception" for others.
[[nodiscard]] std::string what(const std::exception_ptr& error);

}  // namespace testing
DISTTUNE_NAMESPACE_END
