#include "devices/ascend_timer.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/signals.hpp"
#include "devices/poll.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {

namespace {

// acl_rt.h, acl_base.h
constexpr std::uint32_t k_event_time_line = 0x8;  // 0 is refused; without it there is no time
constexpr std::uint32_t k_wait_greater_or_equal = 0;
constexpr std::uint32_t k_write_reserved = 0;
constexpr int k_callback_blocks = 1;
constexpr int k_huge_pages_first = 0;
constexpr int k_normal_pages = 2;
constexpr int k_host_to_device = 1;
constexpr int k_stream_complete = 0;
constexpr int k_event_timestamp_invalid = 107006;
constexpr int k_internal_error = 507000;  // what an event that was never recorded reads as

constexpr int k_device_errors = 507000;  // this and above: something failed on the device

constexpr std::size_t k_word_bytes = 64;  // the smallest that the allocator aligns alone
constexpr std::string_view k_entering = "making the stream's context current";
// How long the destructor waits for what we queued. The gate is open by then, so this is only ever
// spent behind work of the caller that is still running.
constexpr std::chrono::seconds k_grace{2};

}  // namespace

AscendReports::AscendReports(std::shared_ptr<const Ascend> acl, void* context, void* stream)
    : m_acl(std::move(acl)), m_stream(stream) {
  {
    const core::SignalsBlocked quiet;
    m_thread = std::thread([this, context] {
      (*m_acl)->set_context(context);
      constexpr int k_wait_ms = 20;  // how long a stop may have to wait
      while (!m_stopping) (*m_acl)->process_report(k_wait_ms);
    });
  }
  const int code = (*m_acl)->subscribe(id(), m_stream);
  if (code == 0) return;
  m_stopping = true;
  m_thread.join();
  m_acl->check(code, "subscribing to the stream's callbacks");
}

AscendReports::~AscendReports() {
  (*m_acl)->unsubscribe(id(), m_stream);
  m_stopping = true;
  m_thread.join();
}

std::uint64_t AscendReports::id() { return static_cast<std::uint64_t>(m_thread.native_handle()); }

AscendTimer::AscendTimer(std::shared_ptr<const Ascend> acl, int device, void* stream,
                         std::size_t samples)
    : m_acl(std::move(acl)),
      m_device(device),
      m_stream(stream),
      m_context(m_acl->current_context()) {
  // Allocating would break a capture in progress, so this comes before everything else.
  if (ascend_capturing(*m_acl, m_stream)) {
    throw CaptureError(
        "disttune: the ascend stream is being captured into a graph, where nothing can be tuned; "
        "call once with these arguments before the capture");
  }
  int status = 0;
  check((*m_acl)->stream_query(m_stream, &status), "asking the stream (destroyed?)");
  try {
    m_events.reserve(2 * samples);
    m_marks.resize(2 * samples);
    for (std::size_t i = 0; i < 2 * samples; ++i) {
      void* event = nullptr;
      check((*m_acl)->create_event(&event, k_event_time_line), "creating a timing event");
      m_events.push_back(event);
    }
    create_word();
    if (m_gate == Gate::none) choose_function();
  } catch (...) {
    free_everything();
    throw;
  }
}

AscendTimer::~AscendTimer() {
  release();
  free_everything();
}

void AscendTimer::create_word() {
  if ((*m_acl)->value_wait == nullptr || (*m_acl)->value_write == nullptr) return;
  check((*m_acl)->allocate(&m_word, k_word_bytes, k_normal_pages), "allocating the gate's word");
  check((*m_acl)->fill(m_word, k_word_bytes, 0, k_word_bytes), "clearing the gate's word");
  check((*m_acl)->create_stream(&m_side_stream), "creating the stream that opens the gate");
  m_gate = Gate::value_wait;
}

void AscendTimer::choose_function() {
  const bool callbacks = (*m_acl)->callback != nullptr && (*m_acl)->subscribe != nullptr &&
                         (*m_acl)->unsubscribe != nullptr && (*m_acl)->process_report != nullptr;
  if ((*m_acl)->host_function != nullptr) {
    m_gate = Gate::host_function;
  } else if (callbacks) {
    try {
      m_reports = std::make_unique<AscendReports>(m_acl, m_context, m_stream);
    } catch (const DeviceLost&) {
      throw;
    } catch (const Error&) {
      return;  // the caller has subscribed to this stream; its thread is not ours to block
    }
    m_gate = Gate::callback;
  } else {
    return;
  }
  m_host_gate = std::make_unique<HostGate>();
}

void AscendTimer::check(int code, std::string_view call) {
  // A failed kernel: the stream, asked again, tells whether that stays.
  if (code >= k_device_errors && !m_acl->lost(code) && fault()) throw DeviceLost(*m_fault);
  try {
    m_acl->check(code, call);
  } catch (const DeviceLost& error) {
    if (!m_fault) m_fault = error.what();
    throw;
  }
}

void AscendTimer::record(std::size_t mark) {
  if (mark >= m_events.size()) {
    throw Error(
        fmt::format("disttune: sample {} of a timer opened for {}", mark / 2, m_events.size() / 2));
  }
  const AscendScope scope(*m_acl, m_context);
  check(scope.code(), k_entering);
  check((*m_acl)->record(m_events[mark], m_stream), "recording a timing event");
  m_marks[mark] = Mark::queued;
  m_used = true;
}

std::int64_t AscendTimer::elapsed_ns(std::size_t sample) {
  // Some products answer with nonsense instead of an error, so what is ready is known here.
  if (2 * sample + 1 >= m_events.size() || m_marks[2 * sample] != Mark::done ||
      m_marks[2 * sample + 1] != Mark::done) {
    throw Error(
        fmt::format("disttune: sample {} has no time: its marks were not both recorded, or "
                    "the stream was not synchronized after them",
                    sample));
  }
  const AscendScope scope(*m_acl, m_context);
  check(scope.code(), k_entering);
  float milliseconds = 0;
  const int code = (*m_acl)->elapsed(&milliseconds, m_events[2 * sample], m_events[2 * sample + 1]);
  // Not a number, infinite and "no valid time stamp" become 0, which the measuring loop takes for
  // the bad reading it is.
  if (code == k_event_timestamp_invalid || code == k_internal_error) return 0;
  check(code, "reading a sample");
  if (!std::isfinite(milliseconds)) return 0;
  return std::llround(static_cast<double>(milliseconds) * 1e6);
}

bool AscendTimer::hold() {
  const AscendScope scope(*m_acl, m_context);
  check(scope.code(), k_entering);
  if (m_gate == Gate::value_wait && hold_by_value()) return true;
  return m_gate != Gate::none && hold_by_function();
}

bool AscendTimer::hold_by_value() {
  // Counted before the wait is queued: a release from another thread in between opens this gate,
  // where the reverse order would leave it closed for good.
  const std::uint64_t number = ++m_holds;
  const int code = (*m_acl)->value_wait(m_word, number, k_wait_greater_or_equal, m_stream);
  if (code == 0) {
    m_used = true;
    return true;
  }
  --m_holds;
  if (number > 1 || m_acl->lost(code)) check(code, "closing the gate");
  // Libraries have the function on products that do not: only the first call can tell.
  m_gate = Gate::none;
  choose_function();
  return false;
}

bool AscendTimer::hold_by_function() {
  m_host_gate->close();
  const int code =
      m_gate == Gate::host_function
          ? (*m_acl)->host_function(m_stream, &HostGate::block, m_host_gate.get())
          : (*m_acl)->callback(&HostGate::block, m_host_gate.get(), k_callback_blocks, m_stream);
  if (code == 0) {
    m_used = true;
    return true;
  }
  m_host_gate->undo_close();
  if (m_acl->lost(code)) check(code, "closing the gate");
  m_gate = Gate::none;
  return false;
}

void AscendTimer::release() noexcept {
  if (m_host_gate) m_host_gate->release();
  const std::lock_guard lock(m_release_mutex);
  const std::uint64_t number = m_holds.load();
  if (m_word == nullptr || number == m_released) return;
  const AscendScope scope(*m_acl, m_context);
  int code = (*m_acl)->value_write(m_word, number, k_write_reserved, m_side_stream);
  // Whatever refuses the write, the gate must open: a plain copy to the word does it too.
  if (code != 0) {
    code = (*m_acl)->copy(m_word, sizeof number, &number, sizeof number, k_host_to_device);
  }
  if (code == 0) m_released = number;
}

std::string_view AscendTimer::gate() const noexcept {
  switch (m_gate) {
    case Gate::value_wait:
      return "value_wait";
    case Gate::host_function:
    case Gate::callback:
      return "host_function";
    case Gate::none:
      break;
  }
  return "none";
}

void AscendTimer::flush() {
  const AscendScope scope(*m_acl, m_context);
  check(scope.code(), k_entering);
  if (m_flush_buffer == nullptr) {
    // Only a cold tuning needs it, so it is not allocated before the first flush.
    const std::size_t bytes = ascend_cache_bytes(*m_acl, m_device);
    if (bytes == 0) return;
    void* buffer = nullptr;
    check((*m_acl)->allocate(&buffer, bytes, k_huge_pages_first), "allocating the flush buffer");
    m_flush_buffer = buffer;
    m_flush_bytes = bytes;
  }
  check((*m_acl)->fill_async(m_flush_buffer, m_flush_bytes, 0, m_flush_bytes, m_stream),
        "flushing the cache");
  m_used = true;
}

bool AscendTimer::synchronize(Deadline deadline) {
  const AscendScope scope(*m_acl, m_context);
  check(scope.code(), k_entering);
  m_late = !poll_until(deadline, [&] {
    int status = 0;
    check((*m_acl)->stream_query(m_stream, &status), "waiting for the stream");
    return status == k_stream_complete;
  });
  if (m_late) return false;
  // The work is over; only a synchronising call tells whether it went well.
  check((*m_acl)->stream_synchronize(m_stream), "synchronizing the stream");
  m_used = false;
  for (Mark& mark : m_marks) {
    if (mark == Mark::queued) mark = Mark::done;
  }
  return true;
}

std::optional<std::string> AscendTimer::fault() {
  if (m_fault) return m_fault;
  const AscendScope scope(*m_acl, m_context);
  int status = 0;
  int code = scope.code();
  if (code == 0 && ascend_capturing(*m_acl, m_stream)) return std::nullopt;
  if (code == 0) code = (*m_acl)->stream_query(m_stream, &status);
  if (code == 0 && status == k_stream_complete) code = (*m_acl)->stream_synchronize(m_stream);
  // An error of a kernel is told once, unless the stream is set to stop at errors: one that is
  // still there, asked again, stays.
  if (code >= k_device_errors || m_acl->lost(code)) {
    m_fault = fmt::format(
        "disttune: the ascend stream still reports {}: work queued before has failed and its "
        "context goes on failing; only a new process heals it",
        m_acl->describe(code));
  }
  return m_fault;
}

std::optional<bool> AscendTimer::settled() const noexcept {
  int code = 0;
  int status = 0;
  const auto wait = m_late ? std::chrono::seconds(0) : k_grace;
  const bool over = poll_until(std::chrono::steady_clock::now() + wait, [&] {
    code = (*m_acl)->stream_query(m_stream, &status);
    return code != 0 || status == k_stream_complete;
  });
  if (code != 0) return std::nullopt;
  return over;
}

void AscendTimer::free_everything() noexcept {
  const AscendScope scope(*m_acl, m_context);
  for (void* event : m_events) (*m_acl)->destroy_event(event);
  // A wait that came too late was for work of the caller's, which freeing waits for as well.
  const std::optional<bool> over = m_used || m_late ? settled() : true;
  // Where the stream fails, nothing tells whether a function is still on its way out of the gate.
  if (over != true) static_cast<void>(m_host_gate.release());
  m_reports.reset();
  // Behind a kernel that never ends freeing may wait for ever, and the word must not vanish under a
  // wait that has not looked at it yet: then they are left.
  if (over == false) return;
  if (m_side_stream != nullptr) (*m_acl)->destroy_stream(m_side_stream);
  if (m_word != nullptr) (*m_acl)->free(m_word);
  if (m_flush_buffer != nullptr) (*m_acl)->free(m_flush_buffer);
}

bool ascend_capturing(const Ascend& acl, void* stream) {
  if (acl->capture_info == nullptr) return false;
  int status = 0;
  void* model = nullptr;
  return acl->capture_info(stream, &status, &model) == 0 && status != 0;
}

std::size_t ascend_cache_bytes(const Ascend& acl, int device) {
  constexpr int k_l2_size = 2;
  std::int64_t bytes = 0;
  if (acl->capability == nullptr ||
      acl->capability(static_cast<std::uint32_t>(device), k_l2_size, &bytes) != 0 || bytes < 0) {
    return 0;
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace disttune::devices
