// What CUDA's driver and HIP's runtime have in common, which is nearly all that timing needs. Each
// function queues or asks one thing and returns the driver's own code; GpuTimer makes the sense of
// it once for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "disttune/value.hpp"

namespace disttune::devices {

/// Codes that mean the same in both.
inline constexpr int k_gpu_success = 0;
inline constexpr int k_gpu_out_of_memory = 2;
inline constexpr int k_gpu_invalid_handle = 400;
inline constexpr int k_gpu_not_ready = 600;
inline constexpr int k_gpu_not_supported = 801;
inline constexpr int k_gpu_capture_unsupported = 900;
inline constexpr int k_gpu_capture_implicit = 906;

inline constexpr int k_current_device = -1;

/// What `GpuDriver::enter` does, for messages.
inline constexpr std::string_view k_entering = "making the stream's context current";

/// Whose stream it is. CUDA thinks in contexts, HIP in devices.
struct GpuContext {
  void* context = nullptr;
  int ordinal = -1;
  bool retained = false;  ///< a primary context that we hold alive
};

/// What `GpuDriver::enter` must know to put things back.
struct GpuRestore {
  bool changed = false;
  int ordinal = -1;
};

class GpuDriver {
 public:
  GpuDriver() = default;
  GpuDriver(const GpuDriver&) = delete;
  GpuDriver& operator=(const GpuDriver&) = delete;
  virtual ~GpuDriver() = default;

  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;
  /// "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered".
  [[nodiscard]] virtual std::string describe(int code) const = 0;
  /// Whether the code means that the context is lost for good.
  [[nodiscard]] virtual bool sticky(int code) const noexcept = 0;

  [[nodiscard]] virtual int device_count() const noexcept = 0;
  [[nodiscard]] virtual Value fingerprint(int ordinal) const = 0;
  [[nodiscard]] virtual Value software() const = 0;
  [[nodiscard]] virtual Value information(int ordinal) const = 0;
  /// As Device::throttled.
  [[nodiscard]] virtual bool throttled(int ordinal) const noexcept {
    static_cast<void>(ordinal);
    return false;
  }
  [[nodiscard]] virtual std::size_t cache_bytes(int ordinal) const = 0;
  /// Whether this device's streams can wait for a word in host memory; the first wait may still
  /// be refused.
  [[nodiscard]] virtual bool has_stream_wait(int ordinal) const = 0;
  [[nodiscard]] virtual bool has_host_function() const noexcept = 0;
  [[nodiscard]] virtual bool has_graphs() const noexcept = 0;

  /// The context of a stream. A default stream has the same handle on every device: it is taken on
  /// device `ordinal`, or on the calling thread's where that is `k_current_device`.
  virtual int context_of(void* stream, int ordinal, GpuContext& context) const = 0;
  virtual void release_context(GpuContext& context) const noexcept = 0;
  /// Makes the context current for this thread, and puts back what was.
  virtual int enter(const GpuContext& context, GpuRestore& restore) const noexcept = 0;
  virtual void leave(const GpuRestore& restore) const noexcept = 0;

  virtual int create_event(void** event) const noexcept = 0;  ///< one that can be timed
  virtual int destroy_event(void* event) const noexcept = 0;
  virtual int record(void* event, void* stream) const noexcept = 0;
  virtual int elapsed(float* milliseconds, void* start, void* stop) const noexcept = 0;

  virtual int query(void* stream) const noexcept = 0;
  /// `status`: 0 none, 1 active, 2 invalidated. Success and 0 where graphs are unknown.
  virtual int capture_status(void* stream, int* status) const noexcept = 0;
  virtual int begin_capture(void* stream) const noexcept = 0;
  virtual int end_capture(void* stream, void** graph) const noexcept = 0;
  virtual int instantiate(void** executable, void* graph) const noexcept = 0;
  virtual int launch_graph(void* executable, void* stream) const noexcept = 0;
  virtual int destroy_executable(void* executable) const noexcept = 0;
  virtual int destroy_graph(void* graph) const noexcept = 0;

  /// A pinned word that the device can read at `address`.
  virtual int allocate_word(std::uint32_t** word, std::uint64_t* address) const noexcept = 0;
  virtual int free_word(std::uint32_t* word) const noexcept = 0;
  /// Later work of the stream waits until the word is `value` or greater.
  virtual int wait_for_word(void* stream, std::uint64_t address,
                            std::uint32_t value) const noexcept = 0;
  virtual int launch_host_function(void* stream, void (*function)(void*),
                                   void* argument) const noexcept = 0;

  virtual int allocate(std::uint64_t* address, std::size_t bytes) const noexcept = 0;
  virtual int free(std::uint64_t address) const noexcept = 0;
  virtual int fill(std::uint64_t address, std::size_t bytes, void* stream) const noexcept = 0;
};

/// Makes a context current for a block. `code` tells whether that worked.
class GpuScope {
 public:
  GpuScope(const GpuDriver& driver, const GpuContext& context) noexcept
      : m_driver(driver), m_code(driver.enter(context, m_restore)) {}
  ~GpuScope() { m_driver.leave(m_restore); }
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;
  [[nodiscard]] int code() const noexcept { return m_code; }

 private:
  const GpuDriver& m_driver;
  GpuRestore m_restore;
  int m_code;
};

/// The sentence for a failed `call` on a stream.
[[nodiscard]] std::string explain(const GpuDriver& driver, void* stream, int code,
                                  std::string_view call);
/// Throws when `code` is an error: DeviceLost for one that nothing heals, else Error.
void check(const GpuDriver& driver, void* stream, int code, std::string_view call);
/// Whether the stream, of this context, is being captured into a graph. Disturbs no capture.
[[nodiscard]] bool capturing(const GpuDriver& driver, const GpuContext& context, void* stream);

}  // namespace disttune::devices
