#include "devices/gpu_timer.hpp"

#include <fmt/format.h>

#include <cmath>

#include "devices/poll.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {

namespace {

// How long the destructor waits for what we queued. The gate is open by then, so this is only ever
// spent behind work of the caller that is still running.
constexpr std::chrono::seconds k_grace{2};

// Added to the last wait's number, this opens the gate for all waits until the next hold. Far more
// than a timer ever queues, and still positive in the signed difference that the hardware takes.
constexpr std::uint32_t k_open = 1u << 30;

}  // namespace

GpuTimer::GpuTimer(std::shared_ptr<const GpuDriver> driver, int ordinal, void* stream,
                   std::size_t samples)
    : m_driver(std::move(driver)), m_stream(stream) {
  check(m_driver->context_of(m_stream, ordinal, m_context), "finding the stream's context");
  try {
    // Allocating would break a capture in progress, so this comes before everything else.
    if (devices::capturing(*m_driver, m_context, m_stream)) {
      throw CaptureError(
          fmt::format("disttune: the {} stream {} is being captured into a graph, where nothing "
                      "can be tuned; call once with these arguments before the capture",
                      m_driver->kind(), fmt::ptr(m_stream)));
    }
    const GpuScope scope(*m_driver, m_context);
    check(scope.code(), k_entering);
    create_events(2 * samples);
    create_gate();
  } catch (...) {
    free_everything();
    throw;
  }
}

GpuTimer::~GpuTimer() {
  release();
  free_everything();
}

void GpuTimer::create_events(std::size_t count) {
  m_events.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    void* event = nullptr;
    check(m_driver->create_event(&event), "creating a timing event");
    m_events.push_back(event);
  }
}

void GpuTimer::create_gate() {
  if (m_driver->has_stream_wait(m_context.ordinal)) {
    const int code = m_driver->allocate_word(&m_word, &m_word_address);
    if (code == k_gpu_success) {
      std::atomic_ref<std::uint32_t>(*m_word).store(0);
      m_gate = Gate::stream_wait;
      return;
    }
    if (m_driver->sticky(code)) check(code, "allocating the gate's word");
    m_word = nullptr;  // no pinned memory left: the host function needs none
  }
  if (m_driver->has_host_function()) {
    m_host_gate = std::make_unique<HostGate>();
    m_gate = Gate::host_function;
  }
}

void GpuTimer::record(std::size_t event) {
  if (event >= m_events.size()) {
    throw Error(fmt::format("disttune: sample {} of a timer opened for {}", event / 2,
                            m_events.size() / 2));
  }
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  check(m_driver->record(m_events[event], m_stream), "recording a timing event");
  m_used = true;
}

std::int64_t GpuTimer::elapsed_ns(std::size_t sample) {
  if (2 * sample + 1 >= m_events.size()) {
    throw Error(
        fmt::format("disttune: sample {} of a timer opened for {}", sample, m_events.size() / 2));
  }
  float milliseconds = 0;
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  const int code = m_driver->elapsed(&milliseconds, m_events[2 * sample], m_events[2 * sample + 1]);
  if (code == k_gpu_not_ready || code == k_gpu_invalid_handle) {
    throw Error(fmt::format(
        "disttune: sample {} has no time: {}; it is read before its marks were both recorded and "
        "the stream synchronized",
        sample, m_driver->describe(code)));
  }
  check(code, "reading a sample");
  // Not a number and infinite become 0, which the measuring loop takes for the bad reading it is.
  if (!std::isfinite(milliseconds)) return 0;
  return std::llround(static_cast<double>(milliseconds) * 1e6);
}

bool GpuTimer::hold() {
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  if (m_gate == Gate::stream_wait && hold_by_word()) return true;
  return m_gate == Gate::host_function && hold_by_function();
}

bool GpuTimer::hold_by_word() {
  const std::uint32_t number = m_waits.fetch_add(1, std::memory_order_relaxed) + 1;
  // Closed before the wait is queued: a release from another thread in between opens this gate,
  // where the reverse order would leave it closed for good.
  std::atomic_ref<std::uint32_t>(*m_word).store(number - 1, std::memory_order_relaxed);
  const int code = m_driver->wait_for_word(m_stream, m_word_address, number);
  if (code == k_gpu_success) {
    m_used = true;
    return true;
  }
  if (m_driver->sticky(code) || number > 1) check(code, "closing the gate");
  // Drivers that have the function may still refuse it (virtual devices, old kernels): only the
  // first call can tell.
  m_gate = Gate::none;
  if (m_driver->has_host_function()) {
    m_host_gate = std::make_unique<HostGate>();
    m_gate = Gate::host_function;
  }
  return false;
}

bool GpuTimer::hold_by_function() {
  m_host_gate->close();
  const int code = m_driver->launch_host_function(m_stream, &HostGate::block, m_host_gate.get());
  if (code == k_gpu_success) {
    m_used = true;
    return true;
  }
  m_host_gate->undo_close();
  if (code != k_gpu_not_supported) check(code, "closing the gate");
  m_gate = Gate::none;
  return false;
}

void GpuTimer::release() noexcept {
  // Plain stores: no driver call, so this works from any thread and while the driver is busy.
  if (m_word != nullptr) {
    std::atomic_ref<std::uint32_t>(*m_word).store(m_waits.load(std::memory_order_relaxed) + k_open,
                                                  std::memory_order_release);
  }
  if (m_host_gate) m_host_gate->release();
}

void GpuTimer::advance() {
  if (m_gate != Gate::stream_wait) return;
  const std::atomic_ref<std::uint32_t> word(*m_word);
  std::uint32_t closed = m_waits.load(std::memory_order_relaxed) - 1;
  if (word.load(std::memory_order_relaxed) != closed) return;  // the gate is open
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  // The next wait first, so that the stream never stands open behind what goes ahead.
  const std::uint32_t number = m_waits.fetch_add(1, std::memory_order_relaxed) + 1;
  check(m_driver->wait_for_word(m_stream, m_word_address, number), "closing the gate");
  // A release from another thread meanwhile has opened both waits, and is not taken back.
  word.compare_exchange_strong(closed, number - 1, std::memory_order_release);
}

std::string_view GpuTimer::gate() const noexcept {
  switch (m_gate) {
    case Gate::stream_wait:
      return "stream_wait";
    case Gate::host_function:
      return "host_function";
    case Gate::none:
      break;
  }
  return "none";
}

void GpuTimer::flush() {
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  if (m_flush_buffer == 0) {
    // Only a cold tuning needs it, so it is not allocated before the first flush.
    const std::size_t bytes = m_driver->cache_bytes(m_context.ordinal);
    if (bytes == 0) return;
    std::uint64_t address = 0;
    const int code = m_driver->allocate(&address, bytes);
    if (code == k_gpu_out_of_memory) {
      throw Error(
          fmt::format("disttune: no {} MiB of device memory left for the cache flush of a "
                      "cold tuning; free some, or tune with cache \"hot\"",
                      (bytes + (1u << 20) - 1) >> 20));
    }
    check(code, "allocating the flush buffer");
    m_flush_buffer = address;
    m_flush_bytes = bytes;
  }
  check(m_driver->fill(m_flush_buffer, m_flush_bytes, m_stream), "flushing the cache");
  m_used = true;
}

bool GpuTimer::synchronize(Deadline deadline) {
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  m_late = !poll_until(deadline, [&] {
    const int code = m_driver->query(m_stream);
    if (code == k_gpu_not_ready) return false;
    check(code, "waiting for the stream");
    return true;
  });
  if (!m_late) m_used = false;
  return !m_late;
}

std::optional<std::string> GpuTimer::fault() {
  if (m_fault) return m_fault;
  const GpuScope scope(*m_driver, m_context);
  int code = scope.code();
  int status = 0;
  if (code == k_gpu_success) code = m_driver->capture_status(m_stream, &status);
  // A stream under capture must not be queried: that would break the capture.
  if (code == k_gpu_success && status == 0) code = m_driver->query(m_stream);
  if (m_driver->sticky(code)) m_fault = explain(*m_driver, m_stream, code, "asking the stream");
  return m_fault;
}

void GpuTimer::check(int code, std::string_view call) {
  if (code != k_gpu_success && !m_fault && m_driver->sticky(code)) {
    m_fault = explain(*m_driver, m_stream, code, call);
  }
  devices::check(*m_driver, m_stream, code, call);
}

int GpuTimer::settle() const noexcept {
  int status = 0;
  // A stream under capture must not be queried: that would break the capture.
  if (m_driver->capture_status(m_stream, &status) == k_gpu_success && status != 0) {
    return k_gpu_not_ready;
  }
  int code = k_gpu_not_ready;
  const auto wait = m_late ? std::chrono::seconds(0) : k_grace;
  poll_until(std::chrono::steady_clock::now() + wait, [&] {
    code = m_driver->query(m_stream);
    return code != k_gpu_not_ready;
  });
  return code;
}

void GpuTimer::free_everything() noexcept {
  {
    const GpuScope scope(*m_driver, m_context);
    if (scope.code() == k_gpu_success && m_own_capture) {
      void* graph = nullptr;
      if (m_driver->end_capture(m_stream, &graph) == k_gpu_success && graph != nullptr) {
        m_driver->destroy_graph(graph);
      }
    }
    int state = scope.code();
    // A wait that came too late was for work of the caller's, which freeing waits for as well.
    if (state == k_gpu_success && (m_used || m_late)) state = settle();
    for (void* event : m_events) m_driver->destroy_event(event);
    // Freeing waits for the stream. Behind a kernel that never ends that would be for ever, and the
    // word must not vanish under a wait that has not looked at it yet: then they are left.
    if (state != k_gpu_not_ready) {
      if (m_graph != nullptr) m_driver->destroy_executable(m_graph);
      if (m_flush_buffer != 0) m_driver->free(m_flush_buffer);
      if (m_word != nullptr) m_driver->free_word(m_word);
    }
    // After an error nothing tells whether a host function is still on its way out of the gate.
    if (state != k_gpu_success) static_cast<void>(m_host_gate.release());
  }
  m_driver->release_context(m_context);
}

bool GpuTimer::begin_capture() {
  if (!m_driver->has_graphs()) return false;
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  const int code = m_driver->begin_capture(m_stream);
  if (code == k_gpu_capture_unsupported) return false;  // the legacy default stream
  check(code, "beginning a graph capture");
  m_own_capture = true;
  return true;
}

void GpuTimer::end_capture() {
  if (!m_own_capture) throw Error("disttune: end_capture without begin_capture");
  m_own_capture = false;
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  void* graph = nullptr;
  const int code = m_driver->end_capture(m_stream, &graph);
  if (code != k_gpu_success && !m_driver->sticky(code)) {
    throw Error(fmt::format(
        "disttune: the launcher cannot be captured into a graph: {}; it synchronises, allocates "
        "or uses a stream that is not joined. Tune it with timer \"device\"",
        m_driver->describe(code)));
  }
  check(code, "ending a graph capture");
  if (graph == nullptr) throw Error("disttune: the launcher queued nothing that could be captured");
  void* executable = nullptr;
  const int made = m_driver->instantiate(&executable, graph);
  m_driver->destroy_graph(graph);
  check(made, "instantiating the launcher's graph");
  if (m_graph != nullptr) m_driver->destroy_executable(m_graph);
  m_graph = executable;
}

void GpuTimer::replay() {
  if (m_graph == nullptr) throw Error("disttune: replay without a captured graph");
  const GpuScope scope(*m_driver, m_context);
  check(scope.code(), k_entering);
  check(m_driver->launch_graph(m_graph, m_stream), "replaying the launcher's graph");
  m_used = true;
}

}  // namespace disttune::devices
