// Inside the runtime library: streams, handles, and what one module asks of another.
#pragma once

#include "contract.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace contract {

/// Maps handles to objects. A handle is a number that is given out once and never dereferenced, so
/// a destroyed one is recognised, where a pointer might already name something else.
template <class T>
class HandleTable {
 public:
  HandleTable(const char* what, uintptr_t first) : m_what(what), m_first(first), m_next(first) {}

  void* insert(std::shared_ptr<T> object) {
    const std::lock_guard lock(m_mutex);
    void* handle = reinterpret_cast<void*>(m_next);
    m_next += k_step;
    m_live.emplace(handle, std::move(object));
    return handle;
  }

  Status find(void* handle, std::shared_ptr<T>& object) const {
    const std::lock_guard lock(m_mutex);
    return find_locked(handle, object);
  }

  /// Of two threads that destroy the same object, one succeeds.
  Status take(void* handle, std::shared_ptr<T>& object) {
    const std::lock_guard lock(m_mutex);
    CONTRACT_TRY(find_locked(handle, object));
    m_live.erase(handle);
    return {};
  }

  std::vector<std::shared_ptr<T>> all() const {
    const std::lock_guard lock(m_mutex);
    std::vector<std::shared_ptr<T>> objects;
    for (const auto& entry : m_live) objects.push_back(entry.second);
    return objects;
  }

 private:
  Status find_locked(void* handle, std::shared_ptr<T>& object) const {
    const auto found = m_live.find(handle);
    if (found != m_live.end()) {
      object = found->second;
      return {};
    }
    const auto number = reinterpret_cast<uintptr_t>(handle);
    if (number < m_first || number >= m_next)
      return fail(ACL_ERROR_RT_PARAM_INVALID, "%p is not a %s", handle, m_what);
    note_misuse(Misuse::use_after_destroy);
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s %p used after its destruction", m_what, handle);
  }

  static constexpr uintptr_t k_step =
      16;  // torch keeps flags in the low bits of a stream's address
  const char* m_what;
  const uintptr_t m_first;
  mutable std::mutex m_mutex;
  uintptr_t m_next;
  std::unordered_map<void*, std::shared_ptr<T>> m_live;
};

/// An in-order queue served by one worker thread; with NPU_CONTRACT_SYNC=1 tasks run in the caller.
class Stream {
 public:
  Stream(int id, int device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int id() const { return m_id; }
  int device() const { return m_device; }
  bool synchronous() const { return m_synchronous; }

  void push(std::function<void()> task);
  bool idle() const;
  /// False when tasks remain after the time limit; a negative limit waits for ever.
  [[nodiscard]] bool wait_idle(int timeout_ms) const;

  /// Drops what is queued and lets a blocked task return, so that the stream can be destroyed.
  void abandon();
  /// Called by tasks: blocks the worker until `ready` holds or the stream is abandoned.
  void block_until(const std::function<bool()>& ready) const;

  /// Queues a task that ends only with release().
  void hang();
  void release();

 private:
  void work();

  const int m_id;
  const int m_device;
  const bool m_synchronous;
  mutable std::mutex m_mutex;
  mutable std::condition_variable m_changed;
  std::deque<std::function<void()>> m_tasks;
  bool m_busy = false;
  bool m_stopping = false;
  std::atomic<bool> m_abandoned{false};
  std::atomic<uint64_t> m_hangs{0};
  std::atomic<uint64_t> m_hangs_released{0};
  std::thread m_worker;
};

int64_t monotonic_ns();

/// The calling thread's device, -1 if none.
int current_device();
/// The calling thread's device; having none is counted as misuse.
Status require_device(int& device);

/// The stream behind a handle; null is the default stream of the current device.
Status find_stream(aclrtStream handle, std::shared_ptr<Stream>& stream);
Status synchronize_device(int device, int timeout_ms);

/// Value words must be 8-byte aligned and lie in device memory.
Status check_value_word(const void* address);

struct Usage {
  size_t streams = 0;
  size_t events = 0;
  size_t device_allocations = 0;
  size_t device_bytes = 0;
  size_t host_allocations = 0;
};
/// Bytes of memory that each device pretends to have.
size_t memory_capacity();

size_t live_streams();
size_t live_events();
void add_memory_usage(Usage& usage);

/// Fixes what the report counts as live: what is destroyed later was leaked.
void snapshot_usage();

}  // namespace contract
