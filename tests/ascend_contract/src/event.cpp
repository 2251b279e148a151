// Events. An event counts how often it was recorded and which record the queue has reached; the
// time stamp is taken when the queue reaches the record.
#include "runtime.h"

namespace contract {
namespace {

class Event {
 public:
  Event(uint32_t flag, int device) : m_flag(flag), m_device(device) {}

  int device() const { return m_device; }
  bool has_time_line() const { return (m_flag & ACL_EVENT_TIME_LINE) != 0; }

  uint64_t issue() {
    const std::lock_guard lock(m_mutex);
    return ++m_issued;
  }

  void complete(uint64_t record) {
    {
      const std::lock_guard lock(m_mutex);
      if (record <= m_completed) return;  // recorded again on another stream, which was faster
      m_completed = record;
      m_stamp_ns = monotonic_ns();
    }
    m_changed.notify_all();
  }

  uint64_t issued() const {
    const std::lock_guard lock(m_mutex);
    return m_issued;
  }

  bool completed(uint64_t record) const {
    const std::lock_guard lock(m_mutex);
    return m_completed >= record;
  }

  /// An event that was never recorded is complete.
  bool complete() const {
    const std::lock_guard lock(m_mutex);
    return m_completed == m_issued;
  }

  void synchronize() const {
    std::unique_lock lock(m_mutex);
    m_changed.wait(lock, [this, last = m_issued] { return m_completed >= last; });
  }

  Status stamp(int64_t& ns) const {
    const std::lock_guard lock(m_mutex);
    if (m_issued == 0 || m_completed != m_issued)
      return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "event not recorded or not complete");
    ns = m_stamp_ns;
    return {};
  }

 private:
  const uint32_t m_flag;
  const int m_device;
  mutable std::mutex m_mutex;
  mutable std::condition_variable m_changed;
  uint64_t m_issued = 0;
  uint64_t m_completed = 0;
  int64_t m_stamp_ns = -1;
};

HandleTable<Event>& events() {
  static auto* instance = new HandleTable<Event>("event", 0x20'0000'0000);
  return *instance;
}

Status create_event(aclrtEvent* handle, uint32_t flag) {
  int device = -1;
  CONTRACT_TRY(require_device(device));
  if (flag == 0) note_misuse(Misuse::event_flag_zero);
  *handle = events().insert(std::make_shared<Event>(flag, device));
  return {};
}

}  // namespace

size_t live_events() { return events().all().size(); }

}  // namespace contract

using namespace contract;

CONTRACT_API aclError aclrtCreateEvent(aclrtEvent* event) {
  CONTRACT_ENTER();
  return create_event(event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
}

CONTRACT_API aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  CONTRACT_ENTER();
  return create_event(event, flag);
}

CONTRACT_API aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  CONTRACT_ENTER();
  return create_event(event, flag);
}

CONTRACT_API aclError aclrtDestroyEvent(aclrtEvent handle) {
  CONTRACT_ENTER();
  std::shared_ptr<Event> event;
  return events().take(handle, event);
}

CONTRACT_API aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
  CONTRACT_ENTER();
  std::shared_ptr<Event> event;
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(events().find(handle, event));
  CONTRACT_TRY(find_stream(stream_handle, stream));
  if (event->device() != stream->device()) {
    note_misuse(Misuse::event_on_other_device);
    return fail(ACL_ERROR_RT_STREAM_CONTEXT, "event of device %d recorded on device %d",
                event->device(), stream->device());
  }
  stream->push([event, record = event->issue()] { event->complete(record); });
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtResetEvent(aclrtEvent handle, aclrtStream) {
  CONTRACT_ENTER();
  std::shared_ptr<Event> event;
  return events().find(handle, event);
}

CONTRACT_API aclError aclrtStreamWaitEvent(aclrtStream stream_handle, aclrtEvent handle) {
  CONTRACT_ENTER();
  std::shared_ptr<Event> event;
  std::shared_ptr<Stream> stream;
  CONTRACT_TRY(events().find(handle, event));
  CONTRACT_TRY(find_stream(stream_handle, stream));
  // Only the records issued before this call count, as on the device.
  stream->push([event, self = stream.get(), record = event->issued()] {
    self->block_until([&] { return event->completed(record); });
  });
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus* status) {
  CONTRACT_ENTER();
  std::shared_ptr<Event> event;
  CONTRACT_TRY(events().find(handle, event));
  *status =
      event->complete() ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtSynchronizeEvent(aclrtEvent handle) {
  CONTRACT_ENTER();
  std::shared_ptr<Event> event;
  CONTRACT_TRY(events().find(handle, event));
  event->synchronize();
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtEventElapsedTime(float* ms, aclrtEvent start, aclrtEvent end) {
  CONTRACT_ENTER();
  std::shared_ptr<Event> first;
  std::shared_ptr<Event> last;
  CONTRACT_TRY(events().find(start, first));
  CONTRACT_TRY(events().find(end, last));
  if (!first->has_time_line() || !last->has_time_line()) {
    note_misuse(Misuse::elapsed_without_time_line);
    return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "event made without ACL_EVENT_TIME_LINE");
  }
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  CONTRACT_TRY(first->stamp(first_ns));
  CONTRACT_TRY(last->stamp(last_ns));
  *ms = static_cast<float>(static_cast<double>(last_ns - first_ns) / 1e6);
  return ACL_SUCCESS;
}
