#include "measure/gate_watchdog.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "core/fork.hpp"
#include "core/signals.hpp"

namespace disttune::timing {
namespace {

// A scripted clock moves without telling anybody, so a thread that lives by it has to look.
constexpr std::chrono::milliseconds k_look{1};

}  // namespace

struct GateWatchdog::Runner {
  /// `clock`: empty for std::chrono's.
  explicit Runner(Now clock) : scripted_now(std::move(clock)) {
    const core::SignalsBlocked guard;
    thread = std::thread([this] { watch(); });
  }
  ~Runner() {
    {
      const std::lock_guard lock(mutex);
      quit = true;
    }
    wake.notify_one();
    thread.join();
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void watch() {
    std::unique_lock lock(mutex);
    while (!quit) {
      if (timer == nullptr) {
        looks_by = Deadline::max();
        wake.wait(lock);
        continue;
      }
      const auto left = Deadline(Deadline::duration(last.load())) + bound - now();
      if (left <= left.zero()) {
        // Under the mutex: once `disarm` has returned, no late release may open the next gate.
        timer->release();
        timer = nullptr;
        fired = true;
      } else if (scripted_now) {
        wake.wait_for(lock, k_look);
      } else {
        looks_by = now() + left;
        wake.wait_until(lock, looks_by);
      }
    }
  }

  [[nodiscard]] Deadline now() const {
    return scripted_now ? scripted_now() : std::chrono::steady_clock::now();
  }

  const Now scripted_now;
  const std::uint64_t process = core::fork_count();
  std::mutex mutex;
  std::condition_variable wake;
  StreamTimer* timer = nullptr;  // the closed gate, if any
  std::chrono::nanoseconds bound{};
  Deadline looks_by = Deadline::max();  // when the thread wakes by itself
  bool fired = false;
  bool quit = false;
  std::atomic<Deadline::rep> last{0};
  std::thread thread;
};

namespace {

/// The thread of a tuning that is over waits here for the next one: to start it and to join it
/// takes about as long as to tune a small kernel for one visit. Thread-safe.
class Spare {
 public:
  [[nodiscard]] std::unique_ptr<GateWatchdog::Runner> take() {
    const std::lock_guard lock(m_mutex);
    return std::move(m_runner);
  }
  void keep(std::unique_ptr<GateWatchdog::Runner> runner) {
    const std::lock_guard lock(m_mutex);
    if (!m_runner) m_runner = std::move(runner);
  }

 private:
  std::mutex m_mutex;
  std::unique_ptr<GateWatchdog::Runner> m_runner;
};

/// Never destroyed: a tuning may still run while the process ends.
Spare& spare() {
  static auto& of_process = *new core::PerProcess<Spare>;
  return of_process.get();
}

}  // namespace

GateWatchdog::GateWatchdog(Now now) : m_now(std::move(now)) {}

GateWatchdog::~GateWatchdog() {
  if (!m_runner) return;
  // In a forked child the thread does not exist and the mutex may be held for ever by its ghost:
  // neither can be destroyed.
  if (m_runner->process != core::fork_count()) {
    static_cast<void>(m_runner.release());
    return;
  }
  static_cast<void>(disarm());
  if (!m_now) spare().keep(std::move(m_runner));
}

void GateWatchdog::arm(StreamTimer& timer, std::chrono::nanoseconds bound) {
  if (m_runner && m_runner->process != core::fork_count()) static_cast<void>(m_runner.release());
  if (!m_runner && !m_now) m_runner = spare().take();
  if (!m_runner) m_runner = std::make_unique<Runner>(m_now);
  progress();
  bool in_time = false;  // it wakes soon enough for this gate: waking it takes longer than a launch
  {
    const std::lock_guard lock(m_runner->mutex);
    m_runner->timer = &timer;
    m_runner->bound = bound;
    m_runner->fired = false;
    in_time = m_runner->looks_by <= Deadline(Deadline::duration(m_runner->last.load())) + bound;
  }
  if (!in_time) m_runner->wake.notify_one();
}

void GateWatchdog::progress() noexcept {
  if (m_runner) m_runner->last.store(m_runner->now().time_since_epoch().count());
}

bool GateWatchdog::disarm() noexcept {
  if (!m_runner || m_runner->process != core::fork_count()) return false;
  const std::lock_guard lock(m_runner->mutex);
  m_runner->timer = nullptr;
  return std::exchange(m_runner->fired, false);
}

}  // namespace disttune::timing
