#include "devices/opencl_timer.hpp"

#include <fmt/format.h>

#include <utility>

#include "devices/poll.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {

namespace {

constexpr std::uint32_t k_event_status = 0x11D3;
constexpr std::uint32_t k_profiling_end = 0x1283;
constexpr int k_complete = 0;
constexpr int k_profiling_not_available = -7;

}  // namespace

OpenClTimer::OpenClTimer(std::shared_ptr<const OpenCl> cl, void* queue, std::size_t samples)
    : m_cl(std::move(cl)), m_queue(queue), m_marks(2 * samples) {
  if (m_queue == nullptr) throw Error("disttune: an OpenCL stream is a command queue, not null");
  m_context = m_cl->queue_value<void*>(m_queue, k_cl_queue_context);
  const auto properties = m_cl->queue_value<std::uint64_t>(m_queue, k_cl_queue_properties);
  m_profiling = (properties & k_cl_profiling) != 0;
  m_out_of_order = (properties & k_cl_out_of_order) != 0;
  // The caller may release the queue while we still hold marks of it.
  m_cl->check((*m_cl)->retain_queue(m_queue), "retaining the queue");
}

OpenClTimer::~OpenClTimer() {
  release();
  // The implementation keeps what queued commands still need, so nothing is waited for.
  for (const Mark& mark : m_marks) {
    if (mark.event != nullptr) (*m_cl)->release_event(mark.event);
  }
  if (m_buffer != nullptr) (*m_cl)->release_memory(m_buffer);
  (*m_cl)->release_queue(m_queue);
}

void OpenClTimer::check(int code, std::string_view call) {
  try {
    m_cl->check(code, call);
  } catch (const DeviceLost& error) {
    if (!m_fault) m_fault = error.what();
    throw;
  }
}

void OpenClTimer::queue_mark(void** event) {
  const auto command = m_out_of_order ? (*m_cl)->barrier : (*m_cl)->marker;
  check(command(m_queue, 0, nullptr, event), "queueing a marker");
}

void OpenClTimer::mark(std::size_t index) {
  if (index >= m_marks.size()) {
    throw Error(
        fmt::format("disttune: sample {} of a timer opened for {}", index / 2, m_marks.size() / 2));
  }
  Mark& mark = m_marks[index];
  if (!m_profiling) {
    synchronize(Deadline::max());
    mark.host = std::chrono::steady_clock::now();
  } else {
    void* event = nullptr;
    queue_mark(&event);
    if (mark.event != nullptr) (*m_cl)->release_event(mark.event);
    mark.event = event;
  }
  mark.set = true;
}

std::uint64_t OpenClTimer::end_time(const Mark& mark, std::size_t sample) {
  std::uint64_t ns = 0;
  const int code = (*m_cl)->profiling_info(mark.event, k_profiling_end, sizeof ns, &ns, nullptr);
  if (code == k_profiling_not_available) {
    throw Error(
        fmt::format("disttune: sample {} has no time: it is read before the queue was "
                    "synchronized",
                    sample));
  }
  check(code, "reading a sample");
  return ns;
}

std::int64_t OpenClTimer::elapsed_ns(std::size_t sample) {
  if (2 * sample + 1 >= m_marks.size() || !m_marks[2 * sample].set ||
      !m_marks[2 * sample + 1].set) {
    throw Error(fmt::format("disttune: sample {} was not marked; the timer is for {}", sample,
                            m_marks.size() / 2));
  }
  const Mark& first = m_marks[2 * sample];
  const Mark& second = m_marks[2 * sample + 1];
  if (!m_profiling) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(second.host - first.host).count();
  }
  // Unsigned: a clock that runs backwards gives a negative difference, as it should.
  const std::uint64_t begin = end_time(first, sample);
  return static_cast<std::int64_t>(end_time(second, sample) - begin);
}

bool OpenClTimer::hold() {
  if (!m_profiling) return false;  // the host's clock is read with the queue drained
  int code = 0;
  void* const event = (*m_cl)->create_user_event(m_context, &code);
  check(code, "making a user event");
  {
    const std::lock_guard lock(m_gate_mutex);
    if (m_gate != nullptr) {
      (*m_cl)->set_user_event(m_gate, k_complete);
      (*m_cl)->release_event(m_gate);
    }
    m_gate = event;
  }
  const int queued = (*m_cl)->barrier(m_queue, 1, &event, nullptr);
  if (queued != 0) release();
  check(queued, "closing the gate");
  return true;
}

void OpenClTimer::release() noexcept {
  const std::lock_guard lock(m_gate_mutex);
  void* const event = std::exchange(m_gate, nullptr);
  if (event == nullptr) return;
  (*m_cl)->set_user_event(event, k_complete);
  (*m_cl)->release_event(event);
  (*m_cl)->flush(m_queue);
}

void OpenClTimer::flush() {
  if (m_buffer == nullptr) {
    // Only a cold tuning needs it, so it is not made before the first flush.
    const auto device = m_cl->queue_value<void*>(m_queue, k_cl_queue_device);
    const std::size_t bytes = opencl_cache_bytes(*m_cl, device) / 4 * 4;
    if (bytes == 0) return;
    constexpr std::uint64_t k_write_only = 1u << 1;
    int code = 0;
    void* const buffer = (*m_cl)->create_buffer(m_context, k_write_only, bytes, nullptr, &code);
    check(code, "allocating the flush buffer");
    m_buffer = buffer;
    m_buffer_bytes = bytes;
  }
  constexpr std::uint32_t k_pattern = 0;
  if (m_out_of_order) check((*m_cl)->barrier(m_queue, 0, nullptr, nullptr), "queueing a barrier");
  check((*m_cl)->fill(m_queue, m_buffer, &k_pattern, sizeof k_pattern, 0, m_buffer_bytes, 0,
                      nullptr, nullptr),
        "flushing the cache");
  if (m_out_of_order) check((*m_cl)->barrier(m_queue, 0, nullptr, nullptr), "queueing a barrier");
}

bool OpenClTimer::synchronize(Deadline deadline) {
  void* last = nullptr;
  queue_mark(&last);
  struct Release {
    const OpenCl& cl;
    void* event;
    ~Release() { cl->release_event(event); }
  } releaser{*m_cl, last};
  // The standard promises no progress before a flush.
  check((*m_cl)->flush(m_queue), "flushing the queue");
  return poll_until(deadline, [&] {
    int status = 0;
    check((*m_cl)->event_info(last, k_event_status, sizeof status, &status, nullptr),
          "waiting for the queue");
    if (status < 0) {
      m_fault = fmt::format(
          "disttune: an OpenCL command ended abnormally: {}. It was queued before and its queue "
          "gives no trustworthy result any more; only a new process heals it",
          describe_opencl(status));
      throw DeviceLost(*m_fault);
    }
    return status == k_complete;
  });
}

}  // namespace disttune::devices
