#include "session/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "devices/host_facts.hpp"
#include "session/watched_attempt.hpp"

namespace disttune::session {
namespace {

thread_local int t_preparing = 0;

}  // namespace

bool preparing() noexcept { return t_preparing > 0; }

void prepare_candidates(Field& field, const std::vector<std::size_t>& which,
                        detail::Attempt& attempt, int workers) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr interrupt;
  const auto work = [&] {
    struct Marked {
      Marked() { ++t_preparing; }
      ~Marked() { --t_preparing; }
    } const marked;
    for (std::size_t k = next++; k < which.size(); k = next++) {
      const std::size_t i = which[k];
      RunClock::run_begins();
      try {
        attempt.prepare(field.space_index(i));
      } catch (const detail::CandidateFailed& e) {
        const std::lock_guard lock(mutex);
        field.end(i, e.status(), e.what());
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        field.end(i, Status::compile_failed, fmt::format("prepare: {}", e.what()));
      } catch (...) {
        const std::lock_guard lock(mutex);
        interrupt = std::current_exception();
        next = which.size();
      }
    }
  };
  const auto wanted = static_cast<std::size_t>(workers > 0 ? workers : devices::usable_cores());
  const WatchedRuns watched;
  // Their signal masks stay the caller's: a compiler that a preparation starts inherits one.
  std::vector<std::thread> threads;
  try {
    for (std::size_t t = 1; t < std::min(wanted, which.size()); ++t) threads.emplace_back(work);
  } catch (const std::exception&) {  // no more threads can be had: those that are there do it all
  }
  work();
  for (std::thread& t : threads) t.join();
  if (interrupt) std::rethrow_exception(interrupt);
}

}  // namespace disttune::session
