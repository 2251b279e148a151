#include "session/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/environment.hpp"
#include "core/fork.hpp"
#include "core/sha256.hpp"
#include "disttune/detail/attempt.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {
namespace {

struct Provider {
  std::mutex mutex;
  std::function<Value()> software;
};
// Never destroyed: threads may still tune while the process ends.
Provider& provider() {
  static auto& it = *new Provider;
  return it;
}

}  // namespace

void set_software_provider(std::function<Value()> software) {
  const std::lock_guard lock(provider().mutex);
  provider().software = std::move(software);
}

}  // namespace detail
DISTTUNE_NAMESPACE_END

namespace disttune::session {

Value software_of(const Device& device) {
  std::function<Value()> provider;
  {
    const std::lock_guard lock(detail::provider().mutex);
    provider = detail::provider().software;
  }
  auto entries = device.software().entries();
  if (provider) {
    for (auto& entry : provider().entries())
      if (std::ranges::none_of(entries, [&](const auto& e) { return e.first == entry.first; }))
        entries.push_back(std::move(entry));
  }
  return Value::dict(std::move(entries));
}

struct DeviceTurn::Seat {
  std::mutex mutex;
  std::condition_variable freed;
  std::thread::id owner;
  int depth = 0;
  RunClock runs;
};

namespace {

// Linked through the thread's stack, so that nothing is destroyed when the thread ends. Launchers
// may be called from destructors that run later still.
thread_local const TuningMark* t_tuning = nullptr;

/// What processes of this user that measure on the device lock; empty: there is no folder for it.
/// Processes with other visible devices use other hardware under the same index.
std::string lock_file(const Device& device, const Value& hardware) {
  std::string who = fmt::format("{} {} {}", device.kind(), device.index(), hardware.text());
  std::error_code error;
  std::filesystem::path folder;
  core::while_unchanged([&] {
    for (const char* visible :
         {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"})
      if (const char* value = std::getenv(visible)) who += fmt::format(" {}={}", visible, value);
    folder = std::filesystem::temp_directory_path(error);
  });
  if (error) return {};
  return folder / fmt::format("disttune-{}-{:.16}.lock", ::getuid(), core::sha256_hex(who));
}

}  // namespace

DeviceTurn::DeviceTurn() : m_owner(core::fork_count()) {}

std::unique_ptr<DeviceTurn> DeviceTurn::take(const Device& device, const Value& hardware,
                                             bool may_wait, bool alone) {
  struct Registry {
    std::mutex mutex;
    std::map<std::pair<std::string, int>, std::shared_ptr<Seat>> seats;
  };
  static auto& registries = *new core::PerProcess<Registry>;
  auto turn = std::make_unique<DeviceTurn>();
  if (!alone) return turn;
  std::shared_ptr<Seat> shared;
  {
    Registry& registry = registries.get();
    const std::lock_guard lock(registry.mutex);
    auto& seat = registry.seats[{std::string(device.kind()), device.index()}];
    if (!seat) seat = std::make_shared<Seat>();
    shared = seat;
  }
  const std::string file = lock_file(device, hardware);
  Seat& seat = *shared;
  std::unique_lock lock(seat.mutex);
  while (seat.depth > 0 && seat.owner != std::this_thread::get_id()) {
    if (!may_wait || seat.runs.overdue(RunClock::patience())) return nullptr;
    seat.freed.wait_for(lock, std::chrono::milliseconds(100));
    lock.unlock();
    check_for_interrupt();
    lock.lock();
  }
  seat.owner = std::this_thread::get_id();
  turn->m_seat = shared;  // only now: a turn that was waited for in vain gives nothing back
  if (++seat.depth == 1) {
    seat.runs.watch_this_thread();
    turn->lock_among_processes(file);
  }
  return turn;
}

/// Tells, and never waits: a flag in the record is worth more than a queue of jobs.
void DeviceTurn::lock_among_processes(const std::string& file) {
  if (file.empty()) return;
  m_lock = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  m_contended = m_lock >= 0 && ::flock(m_lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

DeviceTurn::~DeviceTurn() {
  const bool mine = m_owner == core::fork_count();
  // A child forked meanwhile has the descriptor too; closing ours would not release the lock.
  if (m_lock >= 0 && mine) static_cast<void>(::flock(m_lock, LOCK_UN));
  if (m_lock >= 0) ::close(m_lock);
  if (!m_seat || !mine) return;
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
