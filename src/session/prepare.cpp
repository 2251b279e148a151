#include "session/prepare.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace disttune::session {
namespace {

std::size_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0)
    return std::max(1u, std::thread::hardware_concurrency());
  return static_cast<std::size_t>(CPU_COUNT(&set));
}

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
  const std::size_t wanted = workers > 0 ? static_cast<std::size_t>(workers) : usable_cores();
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < std::min(wanted, which.size()); ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (interrupt) std::rethrow_exception(interrupt);
}

}  // namespace disttune::session
