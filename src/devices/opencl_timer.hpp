// Marks, gate and flush on one OpenCL command queue.
//
// A mark is a marker command (a barrier where the queue is out of order, so that nothing crosses
// it); a sample is the device's time from the end of the first to the end of the second: by then
// everything between has ended, whichever moment an implementation takes for a marker's start.
// A queue made without profiling has no device time: there the host's clock is read with the queue
// drained.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

#include "devices/opencl.hpp"
#include "disttune/device.hpp"

namespace disttune::devices {

class OpenClTimer final : public StreamTimer {
 public:
  OpenClTimer(std::shared_ptr<const OpenCl> cl, void* queue, std::size_t samples);
  ~OpenClTimer() override;

  void start(std::size_t sample) override { mark(2 * sample); }
  void stop(std::size_t sample) override { mark(2 * sample + 1); }
  std::int64_t elapsed_ns(std::size_t sample) override;
  bool hold() override;
  void release() noexcept override;
  [[nodiscard]] std::string_view gate() const noexcept override {
    return m_profiling ? "user_event" : "none";
  }
  void flush() override;
  bool synchronize(Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> fault() override { return m_fault; }

 private:
  struct Mark {
    void* event = nullptr;
    std::chrono::steady_clock::time_point host;
    bool set = false;
  };

  void mark(std::size_t index);
  void queue_mark(void** event);
  void check(int code, std::string_view call);
  [[nodiscard]] std::uint64_t end_time(const Mark& mark, std::size_t sample);

  std::shared_ptr<const OpenCl> m_cl;
  void* m_queue;
  void* m_context = nullptr;
  bool m_profiling = false;
  bool m_out_of_order = false;
  std::vector<Mark> m_marks;
  std::mutex m_gate_mutex;
  void* m_gate = nullptr;  ///< the user event that holds the queue
  void* m_buffer = nullptr;
  std::size_t m_buffer_bytes = 0;
  std::optional<std::string> m_fault;
};

}  // namespace disttune::devices
