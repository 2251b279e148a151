// Marks, gate and flush on one Ascend stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "devices/ascend.hpp"
#include "devices/host_gate.hpp"
#include "disttune/device.hpp"

namespace disttune::devices {

/// A thread that runs the callbacks of a stream; the runtime asks for one where it has no host
/// functions of its own.
class AscendReports {
 public:
  /// Throws Error when the stream already has another.
  AscendReports(std::shared_ptr<const Ascend> acl, void* context, void* stream);
  ~AscendReports();
  AscendReports(const AscendReports&) = delete;
  AscendReports& operator=(const AscendReports&) = delete;

 private:
  [[nodiscard]] std::uint64_t id();

  std::shared_ptr<const Ascend> m_acl;
  void* m_stream;
  std::atomic<bool> m_stopping{false};
  std::thread m_thread;
};

class AscendTimer final : public StreamTimer {
 public:
  /// Throws CaptureError, with nothing touched, while the stream is being captured; Error for a
  /// stream that is not alive.
  AscendTimer(std::shared_ptr<const Ascend> acl, int device, void* stream, std::size_t samples);
  ~AscendTimer() override;

  void start(std::size_t sample) override { record(2 * sample); }
  void stop(std::size_t sample) override { record(2 * sample + 1); }
  std::int64_t elapsed_ns(std::size_t sample) override;
  bool hold() override;
  void release() noexcept override;
  [[nodiscard]] std::string_view gate() const noexcept override;
  void flush() override;
  bool synchronize(Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> fault() override;

 private:
  enum class Gate : std::uint8_t { none, value_wait, host_function, callback };
  enum class Mark : std::uint8_t { unset, queued, done };

  void create_word();
  /// The best of host function and callback that this library has.
  void choose_function();
  bool hold_by_value();
  bool hold_by_function();
  void record(std::size_t mark);
  void check(int code, std::string_view call);
  void free_everything() noexcept;
  /// Whether what we queued is over; nothing: the stream answers with an error.
  [[nodiscard]] std::optional<bool> settled() const noexcept;

  std::shared_ptr<const Ascend> m_acl;
  int m_device;
  void* m_stream;
  void* m_context;
  std::vector<void*> m_events;
  std::vector<Mark> m_marks;

  Gate m_gate = Gate::none;
  void* m_word = nullptr;  ///< on the device; the stream waits until it reaches the hold's number
  void* m_side_stream = nullptr;  ///< writes the word
  std::mutex m_release_mutex;
  std::uint64_t m_released = 0;
  std::atomic<std::uint64_t> m_holds{0};
  std::unique_ptr<HostGate> m_host_gate;
  std::unique_ptr<AscendReports> m_reports;

  void* m_flush_buffer = nullptr;
  std::size_t m_flush_bytes = 0;

  bool m_used = false;  ///< something of ours may still be queued
  bool m_late = false;  ///< the last wait ran into its deadline
  std::optional<std::string> m_fault;
};

/// L2 bytes of a device; 0: unknown.
[[nodiscard]] std::size_t ascend_cache_bytes(const Ascend& acl, int device);
/// Whether the stream is being captured into a graph.
[[nodiscard]] bool ascend_capturing(const Ascend& acl, void* stream);

}  // namespace disttune::devices
