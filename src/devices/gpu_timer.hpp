// Marks, gate and flush on one CUDA or HIP stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "devices/gpu_driver.hpp"
#include "devices/host_gate.hpp"
#include "disttune/device.hpp"

namespace disttune::devices {

class GpuTimer final : public StreamTimer {
 public:
  /// Throws CaptureError, with nothing touched, while the stream is being captured; Error for a
  /// stream that is not alive.
  GpuTimer(std::shared_ptr<const GpuDriver> driver, int ordinal, void* stream, std::size_t samples);
  ~GpuTimer() override;

  void start(std::size_t sample) override { record(2 * sample); }
  void stop(std::size_t sample) override { record(2 * sample + 1); }
  std::int64_t elapsed_ns(std::size_t sample) override;
  bool hold() override;
  void release() noexcept override;
  void advance() override;
  [[nodiscard]] std::string_view gate() const noexcept override;
  void flush() override;
  bool synchronize(Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> fault() override;
  bool begin_capture() override;
  void end_capture() override;
  void replay() override;

 private:
  enum class Gate : std::uint8_t { none, stream_wait, host_function };

  void create_events(std::size_t count);
  void create_gate();
  void record(std::size_t event);
  bool hold_by_word();
  bool hold_by_function();
  void check(int code, std::string_view call);
  /// What the stream answers once what we queued should be over; k_gpu_not_ready: it is not.
  [[nodiscard]] int settle() const noexcept;
  void free_everything() noexcept;

  std::shared_ptr<const GpuDriver> m_driver;
  void* m_stream;
  GpuContext m_context;
  std::vector<void*> m_events;  ///< start and stop of each sample

  Gate m_gate = Gate::none;
  std::uint32_t* m_word = nullptr;  ///< pinned; the stream waits until it reaches the wait's number
  std::uint64_t m_word_address = 0;
  std::atomic<std::uint32_t> m_waits{0};  ///< the number of the last
  std::unique_ptr<HostGate> m_host_gate;

  std::uint64_t m_flush_buffer = 0;
  std::size_t m_flush_bytes = 0;

  bool m_own_capture = false;
  void* m_graph = nullptr;

  bool m_used = false;  ///< something of ours may still be queued
  bool m_late = false;  ///< the last wait ran into its deadline
  std::optional<std::string> m_fault;
};

}  // namespace disttune::devices
