#include "session/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/fork.hpp"
#include "core/sha256.hpp"
#include "disttune/detail/attempt.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {
namespace {

struct Hooks {
  std::mutex mutex;
  std::function<Value()> software;
  std::function<void()> interrupt;
};
// Never destroyed: threads may still tune while the process ends.
Hooks& hooks() {
  static Hooks* const h = new Hooks;
  return *h;
}

}  // namespace

void set_software_provider(std::function<Value()> provider) {
  const std::lock_guard lock(hooks().mutex);
  hooks().software = std::move(provider);
}
void set_interrupt_hook(std::function<void()> hook) {
  const std::lock_guard lock(hooks().mutex);
  hooks().interrupt = std::move(hook);
}

}  // namespace detail
DISTTUNE_NAMESPACE_END

namespace disttune::session {

Value software_of(const Device& device) {
  std::function<Value()> provider;
  {
    const std::lock_guard lock(detail::hooks().mutex);
    provider = detail::hooks().software;
  }
  auto entries = device.software().entries();
  if (provider) {
    for (auto& entry : provider().entries())
      if (std::ranges::none_of(entries, [&](const auto& e) { return e.first == entry.first; }))
        entries.push_back(std::move(entry));
  }
  return Value::dict(std::move(entries));
}

void check_for_interrupt() {
  std::function<void()> hook;
  {
    const std::lock_guard lock(detail::hooks().mutex);
    hook = detail::hooks().interrupt;
  }
  if (hook) hook();
}

struct DeviceTurn::Seat {
  std::mutex mutex;
  std::condition_variable freed;
  std::thread::id owner;
  int depth = 0;
  RunClock runs;
};

namespace {

/// To a few milliseconds, which is enough for seconds of patience: it is read before every run.
std::int64_t steady_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
// What a thread is doing: linked through its stack, so that nothing is destroyed when the thread
// ends. Launchers may be called from destructors that run later still.
/// Those who wait for this thread look here.
thread_local RunClock* t_clocks = nullptr;
thread_local const TuningMark* t_tuning = nullptr;
/// When this thread's run at hand began; 0: it is between runs.
thread_local std::int64_t t_run_began_ns = 0;

}  // namespace

void RunClock::watch_this_thread() {
  m_outer = std::exchange(t_clocks, this);
  m_began_ns.store(0, std::memory_order_relaxed);
  m_overdue.store(false, std::memory_order_relaxed);
}
void RunClock::stop() noexcept {
  RunClock** at = &t_clocks;
  while (*at != nullptr && *at != this) at = &(*at)->m_outer;
  if (*at != nullptr) *at = m_outer;
}
bool RunClock::overdue(std::chrono::nanoseconds patience) noexcept {
  const std::int64_t began_ns = m_began_ns.load(std::memory_order_relaxed);
  if (began_ns != 0 && steady_ns() - began_ns > patience.count())
    m_overdue.store(true, std::memory_order_relaxed);
  return m_overdue.load(std::memory_order_relaxed);
}

void RunClock::run_begins() noexcept {
  if (t_clocks == nullptr) return;
  t_run_began_ns = steady_ns();
  for (RunClock* clock = t_clocks; clock != nullptr; clock = clock->m_outer)
    clock->m_began_ns.store(t_run_began_ns, std::memory_order_relaxed);
}
void RunClock::runs_end() noexcept {
  t_run_began_ns = 0;
  for (RunClock* clock = t_clocks; clock != nullptr; clock = clock->m_outer)
    clock->m_began_ns.store(0, std::memory_order_relaxed);
}
bool RunClock::in_run() noexcept { return t_run_began_ns != 0; }
std::chrono::nanoseconds& RunClock::patience() noexcept {
  static std::chrono::nanoseconds value = std::chrono::seconds(10);
  return value;
}

std::unique_ptr<DeviceTurn> DeviceTurn::take(const Device& device, const Value& hardware,
                                             bool may_wait, bool alone) {
  struct Registry {
    std::mutex mutex;
    std::map<std::pair<std::string, int>, std::shared_ptr<Seat>> seats;
  };
  static auto& registries = *new core::PerProcess<Registry>;
  auto turn = std::make_unique<DeviceTurn>();
  if (!alone) return turn;
  {
    Registry& registry = registries.get();
    const std::lock_guard lock(registry.mutex);
    auto& seat = registry.seats[{std::string(device.kind()), device.index()}];
    if (!seat) seat = std::make_shared<Seat>();
    turn->m_seat = seat;
  }
  Seat& seat = *turn->m_seat;
  std::unique_lock lock(seat.mutex);
  while (seat.depth > 0 && seat.owner != std::this_thread::get_id()) {
    if (!may_wait || seat.runs.overdue(RunClock::patience())) {
      turn->m_seat.reset();
      return nullptr;
    }
    seat.freed.wait_for(lock, std::chrono::milliseconds(100));
    lock.unlock();
    check_for_interrupt();
    lock.lock();
  }
  seat.owner = std::this_thread::get_id();
  if (++seat.depth == 1) {
    seat.runs.watch_this_thread();
    turn->lock_among_processes(device, hardware);
  }
  return turn;
}

/// Tells, and never waits: a flag in the record is worth more than a queue of jobs. Processes with
/// other visible devices use other hardware under the same index.
void DeviceTurn::lock_among_processes(const Device& device, const Value& hardware) {
  std::string who = fmt::format("{} {} {}", device.kind(), device.index(), hardware.text());
  for (const char* visible :
       {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"})
    if (const char* value = std::getenv(visible)) who += fmt::format(" {}={}", visible, value);
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  if (error) return;
  const auto file =
      folder / fmt::format("disttune-{}-{:.16}.lock", ::getuid(), core::sha256_hex(who));
  m_lock = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  m_contended = m_lock >= 0 && ::flock(m_lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

DeviceTurn::~DeviceTurn() {
  if (m_lock >= 0) ::close(m_lock);
  if (!m_seat) return;
  const std::lock_guard lock(m_seat->mutex);
  if (--m_seat->depth > 0) return;
  m_seat->runs.stop();
  m_seat->freed.notify_one();
}

TuningMark::TuningMark(std::string_view what, std::string_view shown) noexcept
    : m_what(what), m_shown(shown), m_outer(std::exchange(t_tuning, this)) {}
TuningMark::~TuningMark() { t_tuning = m_outer; }
bool TuningMark::holds(std::string_view what) noexcept {
  const TuningMark* at = t_tuning;
  while (at != nullptr && at->m_what != what) at = at->m_outer;
  return at != nullptr;
}
std::string_view TuningMark::innermost() noexcept {
  return t_tuning == nullptr ? std::string_view{} : t_tuning->m_shown;
}

}  // namespace disttune::session
