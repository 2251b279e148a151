// Streams, and the tasks that only concern streams: host functions, value words, test hooks.
#include "runtime.h"

#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <map>

namespace contract {
namespace {

// A blocked worker looks again this often. Short against anything a test measures, long enough for
// dozens of blocked streams to share two cores.
constexpr std::chrono::microseconds k_poll{50};

struct Streams {
  HandleTable<Stream> created{"stream", 0x10'0000'0000};
  std::mutex mutex;
  std::map<int, std::shared_ptr<Stream>> defaults;  // by device
  std::atomic<int> next_id{1};
};

// Never destroyed: at exit a worker may still be blocked, and joining it would hang the process.
Streams& streams() {
  static Streams* instance = new Streams;
  return *instance;
}

std::shared_ptr<Stream> default_stream(int device) {
  const std::lock_guard lock(streams().mutex);
  auto& stream = streams().defaults[device];
  if (stream == nullptr) stream = std::make_shared<Stream>(0, device);
  return stream;
}

Status create_stream(aclrtStream* handle) {
  int device = -1;
  CONTRACT_TRY(require_device(device));
  *handle = streams().created.insert(std::make_shared<Stream>(streams().next_id++, device));
  return {};
}

bool value_reached(const uint64_t* word, uint64_t value, uint32_t flag) {
  const uint64_t found = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  switch (flag) {
    case ACL_STREAM_WAIT_VALUE_GEQ:
      return static_cast<int64_t>(found - value) >= 0;
    case ACL_STREAM_WAIT_VALUE_EQ:
      return found == value;
    case ACL_STREAM_WAIT_VALUE_AND:
      return (found & value) != 0;
    default:
      return ~(found | value) != 0;
  }
}

Status check_value_words_offered() {
  if (knob("NO_VALUE_WAIT", int64_t{0}) == 0) return {};
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "value words are switched off");
}

}  // namespace

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Stream::Stream(int id, int device)
    : m_id(id), m_device(device), m_synchronous(knob("SYNC", int64_t{0}) != 0) {
  if (!m_synchronous) m_worker = std::thread([this] { work(); });
}

Stream::~Stream() {
  if (!m_worker.joinable()) return;
  {
    const std::lock_guard lock(m_mutex);
    m_stopping = true;
  }
  m_changed.notify_all();
  m_worker.join();
}

void Stream::work() {
  std::unique_lock lock(m_mutex);
  for (;;) {
    m_changed.wait(lock, [this] { return m_stopping || !m_tasks.empty(); });
    if (m_tasks.empty()) return;
    auto task = std::move(m_tasks.front());
    m_tasks.pop_front();
    m_busy = true;
    lock.unlock();
    task();
    task = nullptr;  // what the task holds must be gone before the stream counts as idle
    lock.lock();
    m_busy = false;
    m_changed.notify_all();
  }
}

void Stream::push(std::function<void()> task) {
  if (m_synchronous) {
    task();
    return;
  }
  {
    const std::lock_guard lock(m_mutex);
    m_tasks.push_back(std::move(task));
  }
  m_changed.notify_all();
}

bool Stream::idle() const {
  const std::lock_guard lock(m_mutex);
  return m_tasks.empty() && !m_busy;
}

bool Stream::wait_idle(int timeout_ms) const {
  const auto done = [this] { return m_tasks.empty() && !m_busy; };
  std::unique_lock lock(m_mutex);
  if (timeout_ms >= 0) return m_changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), done);
  m_changed.wait(lock, done);
  return true;
}

void Stream::abandon() {
  {
    const std::lock_guard lock(m_mutex);
    m_tasks.clear();
    m_abandoned = true;
  }
  m_changed.notify_all();  // another thread may be waiting for the stream to become idle
}

void Stream::block_until(const std::function<bool()>& ready) const {
  while (!m_abandoned && !ready()) std::this_thread::sleep_for(k_poll);
}

void Stream::hang() {
  const uint64_t number = ++m_hangs;
  push([this, number] { block_until([this, number] { return m_hangs_released >= number; }); });
}

void Stream::release() { m_hangs_released = m_hangs.load(); }

Status find_stream(aclrtStream handle, std::shared_ptr<Stream>& stream) {
  if (handle != nullptr) return streams().created.find(handle, stream);
  int device = -1;
  CONTRACT_TRY(require_device(device));
  stream = default_stream(device);
  return {};
}

Status enqueue(aclrtStream handle, std::function<void()> task) {
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(find_stream(handle, stream));
  stream->push(std::move(task));
  return {};
}

Status synchronize_device(int device, int timeout_ms) {
  auto waited_for = streams().created.all();
  waited_for.push_back(default_stream(device));
  for (const auto& stream : waited_for)
    if (stream->device() == device && !stream->wait_idle(timeout_ms))
      return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "device %d: work remains", device);
  return {};
}

size_t live_streams() { return streams().created.all().size(); }

}  // namespace contract

using namespace contract;

CONTRACT_API aclError aclrtCreateStream(aclrtStream* stream) {
  CONTRACT_ENTER();
  return create_stream(stream);
}

CONTRACT_API aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
  CONTRACT_ENTER();
  return create_stream(stream);
}

CONTRACT_API aclError aclrtDestroyStream(aclrtStream handle) {
  CONTRACT_ENTER();
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(streams().created.take(handle, stream));
  (void)stream->wait_idle(-1);
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtDestroyStreamForce(aclrtStream handle) {
  CONTRACT_ENTER();
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(streams().created.take(handle, stream));
  stream->abandon();
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream handle, int32_t timeout_ms) {
  CONTRACT_ENTER();
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(find_stream(handle, stream));
  if (stream->wait_idle(timeout_ms)) return ACL_SUCCESS;
  return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "stream %d: work remains", stream->id());
}

CONTRACT_API aclError aclrtSynchronizeStream(aclrtStream handle) {
  CONTRACT_ENTER();
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(find_stream(handle, stream));
  (void)stream->wait_idle(-1);
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) {
  CONTRACT_ENTER();
  int device = -1;
  CONTRACT_TRY(require_device(device));
  return synchronize_device(device, timeout_ms);
}

CONTRACT_API aclError aclrtSynchronizeDevice() {
  CONTRACT_ENTER();
  int device = -1;
  CONTRACT_TRY(require_device(device));
  return synchronize_device(device, -1);
}

CONTRACT_API aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus* status) {
  CONTRACT_ENTER();
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(find_stream(handle, stream));
  *status = stream->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtStreamGetId(aclrtStream handle, int32_t* id) {
  CONTRACT_ENTER();
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(find_stream(handle, stream));
  *id = stream->id();
  return ACL_SUCCESS;
}

// The function runs in the stream's worker, so later tasks start only after it has returned.
CONTRACT_API aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc function, void* args) {
  CONTRACT_ENTER();
  return enqueue(stream, [function, args] { function(args); });
}

// Blocking or not: callbacks also run in the worker, so no thread needs to process reports.
CONTRACT_API aclError aclrtLaunchCallback(aclrtCallback function, void* args,
                                          aclrtCallbackBlockType, aclrtStream stream) {
  CONTRACT_ENTER();
  return enqueue(stream, [function, args] { function(args); });
}

CONTRACT_ACCEPT(aclrtSubscribeReport, uint64_t, aclrtStream)
CONTRACT_ACCEPT(aclrtUnSubscribeReport, uint64_t, aclrtStream)
CONTRACT_ACCEPT(aclrtSetStreamFailureMode, aclrtStream, uint64_t)
CONTRACT_ACCEPT(aclrtSetStreamAttribute, aclrtStream, aclrtStreamAttr, aclrtStreamAttrValue*)

CONTRACT_API aclError aclrtProcessReport(int32_t timeout_ms) {
  CONTRACT_ENTER();
  constexpr int longest_ms = 100;  // the caller polls a stop flag between two calls
  const int wait_ms = timeout_ms < 0 ? longest_ms : std::min(timeout_ms, longest_ms);
  std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
  return ACL_ERROR_RT_REPORT_TIMEOUT;
}

CONTRACT_API aclError aclrtValueWrite(void* address, uint64_t value, uint32_t flag,
                                      aclrtStream handle) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_value_words_offered());
  CONTRACT_TRY(check_value_word(address));
  if (flag != 0) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtValueWrite: flag %u is not 0", flag);
  auto* word = static_cast<uint64_t*>(address);
  return enqueue(handle, [word, value] { __atomic_store_n(word, value, __ATOMIC_RELEASE); });
}

CONTRACT_API aclError aclrtValueWait(void* address, uint64_t value, uint32_t flag,
                                     aclrtStream handle) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_value_words_offered());
  CONTRACT_TRY(check_value_word(address));
  if (flag > ACL_STREAM_WAIT_VALUE_NOR)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtValueWait: unknown flag %u", flag);
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(find_stream(handle, stream));
  const auto* word = static_cast<const uint64_t*>(address);
  const auto reached = [word, value, flag] { return value_reached(word, value, flag); };
  if (stream->synchronous() && !reached())
    return fail(ACL_ERROR_RT_WAIT_TIMEOUT, "aclrtValueWait would wait for ever: NPU_CONTRACT_SYNC");
  stream->push([self = stream.get(), reached] { self->block_until(reached); });
  return ACL_SUCCESS;
}

/// Occupies the stream for so many microseconds: a kernel of known length.
CONTRACT_API aclError npu_contract_busy(aclrtStream stream, int64_t microseconds) {
  return enqueue(stream, [microseconds] {
    const int64_t end = monotonic_ns() + microseconds * 1000;
    const timespec until{end / 1'000'000'000, end % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  });
}

/// Queues a task that ends only when npu_contract_release is called for the stream.
CONTRACT_API aclError npu_contract_hang(aclrtStream handle) {
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(find_stream(handle, stream));
  if (stream->synchronous())
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "no hanging task with NPU_CONTRACT_SYNC");
  stream->hang();
  return ACL_SUCCESS;
}

/// Ends the hanging tasks that were queued on the stream so far.
CONTRACT_API aclError npu_contract_release(aclrtStream handle) {
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(find_stream(handle, stream));
  stream->release();
  return ACL_SUCCESS;
}
