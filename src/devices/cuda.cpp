#include "devices/cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <mutex>
#include <utility>
#include <vector>

#include "devices/cuda_functions.hpp"
#include "devices/gpu_device.hpp"
#include "devices/nvml.hpp"
#include "disttune/cuda.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {

namespace {

// CUdevice_attribute.
constexpr int k_clock_rate = 13;
constexpr int k_multiprocessors = 16;
constexpr int k_memory_clock_rate = 36;
constexpr int k_l2_cache_size = 38;
constexpr int k_capability_major = 75;
constexpr int k_capability_minor = 76;
constexpr int k_can_use_stream_mem_ops_v1 = 92;

constexpr unsigned k_event_default = 0;  // 2 would switch its time stamp off
constexpr unsigned k_host_portable_mapped = 0x1 | 0x2;
constexpr unsigned k_wait_greater_or_equal = 0;
constexpr int k_buffer_id = 7;             // CUpointer_attribute
constexpr int k_capture_thread_local = 1;  // other threads may go on allocating meanwhile

constexpr int k_not_initialized = 3;
constexpr int k_no_device = 100;
constexpr int k_invalid_context = 201;
constexpr int k_system_driver_mismatch = 803;

// "The process must be terminated and relaunched", says cuda.h, or the context is ruined.
constexpr std::array k_sticky{4,   214, 220, 226, 700, 702, 709, 710, 714,
                              715, 716, 717, 718, 719, 721, 810, 911, 999};

class CudaDriver final : public GpuDriver {
 public:
  CudaDriver(const std::string& library, const std::string& management)
      : m_library("CUDA driver", std::array{library}),
        m_cuda(resolve_cuda(m_library)),
        m_nvml(management) {
    initialize();
  }

  [[nodiscard]] std::string_view kind() const noexcept override { return "cuda"; }

  [[nodiscard]] std::string describe(int code) const override {
    const char* name = nullptr;
    const char* text = nullptr;
    m_cuda.error_name(code, &name);
    m_cuda.error_text(code, &text);
    return fmt::format("{} ({}): {}", name != nullptr ? name : "unknown CUDA error", code,
                       text != nullptr ? text : "no description");
  }

  [[nodiscard]] bool sticky(int code) const noexcept override {
    return std::find(k_sticky.begin(), k_sticky.end(), code) != k_sticky.end();
  }

  [[nodiscard]] int device_count() const noexcept override {
    return static_cast<int>(m_devices.size());
  }

  [[nodiscard]] Value fingerprint(int ordinal) const override {
    std::array<char, 256> name{};
    std::size_t bytes = 0;
    check(m_cuda.device_name(name.data(), static_cast<int>(name.size()) - 1, device(ordinal)),
          "asking a device's name");
    check(m_cuda.device_memory(&bytes, device(ordinal)), "asking a device's memory");
    const std::string text = name.data();
    return Value::dict({
        {"kind", "cuda"},
        {"name", text},
        {"capability", fmt::format("{}.{}", attribute(k_capability_major, ordinal),
                                   attribute(k_capability_minor, ordinal))},
        {"multiprocessors", attribute(k_multiprocessors, ordinal)},
        {"memory_gib", (bytes + (std::size_t{1} << 29)) >> 30},
        {"l2_bytes", attribute(k_l2_cache_size, ordinal)},
        // An instance of a partitioned GPU says so in its name ("… MIG 1g.10gb").
        {"mig", text.find(" MIG ") != std::string::npos},
    });
  }

  [[nodiscard]] Value software() const override {
    int version = 0;
    check(m_cuda.driver_version(&version), "asking the driver's version");
    std::vector<std::pair<Value, Value>> items{
        {"cuda", fmt::format("{}.{}", version / 1000, version % 1000 / 10)}};
    if (const std::string release = driver_release(); !release.empty()) {
      items.emplace_back("driver", release);
    }
    return Value::dict(std::move(items));
  }

  [[nodiscard]] Value information(int ordinal) const override {
    return Value::dict({{"clock_khz", attribute(k_clock_rate, ordinal)},
                        {"memory_clock_khz", attribute(k_memory_clock_rate, ordinal)}});
  }

  [[nodiscard]] bool throttled(int ordinal) const noexcept override {
    // NVML counts the GPUs that CUDA_VISIBLE_DEVICES hides too: its numbers are not ours. The bus
    // id of an instance of a partitioned GPU is the whole one's, as its clocks are.
    std::array<char, 32> bus_id{};
    return m_cuda.device_bus_id != nullptr &&
           m_cuda.device_bus_id(bus_id.data(), static_cast<int>(bus_id.size()) - 1,
                                device(ordinal)) == k_gpu_success &&
           m_nvml.throttled(bus_id.data());
  }

  [[nodiscard]] std::size_t cache_bytes(int ordinal) const override {
    return static_cast<std::size_t>(std::max(0, attribute(k_l2_cache_size, ordinal)));
  }

  [[nodiscard]] bool has_stream_wait(int ordinal) const override {
    if (m_cuda.stream_wait == nullptr) return false;
    // The second ABI works everywhere on Linux; the first only where the administrator let it.
    return !m_cuda.stream_wait_is_v1 || attribute(k_can_use_stream_mem_ops_v1, ordinal) == 1;
  }
  [[nodiscard]] bool has_host_function() const noexcept override {
    return m_cuda.host_function != nullptr;
  }
  [[nodiscard]] bool has_graphs() const noexcept override {
    return m_cuda.capture_begin != nullptr && m_cuda.capture_end != nullptr &&
           m_cuda.graph_instantiate != nullptr && m_cuda.graph_launch != nullptr &&
           m_cuda.executable_destroy != nullptr && m_cuda.graph_destroy != nullptr;
  }

  int context_of(void* stream, int ordinal, GpuContext& context) const override;
  void release_context(GpuContext& context) const noexcept override {
    if (!context.retained) return;
    m_cuda.primary_release(device(context.ordinal));
    context.retained = false;
  }

  int enter(const GpuContext& context, GpuRestore& restore) const noexcept override {
    void* current = nullptr;
    const int code = m_cuda.context_current(&current);
    if (code != k_gpu_success || current == context.context) return code;
    const int pushed = m_cuda.context_push(context.context);
    restore.changed = pushed == k_gpu_success;
    return pushed;
  }
  void leave(const GpuRestore& restore) const noexcept override {
    void* ours = nullptr;
    if (restore.changed) m_cuda.context_pop(&ours);
  }

  int create_event(void** event) const noexcept override {
    return m_cuda.event_create(event, k_event_default);
  }
  int destroy_event(void* event) const noexcept override { return m_cuda.event_destroy(event); }
  int record(void* event, void* stream) const noexcept override {
    return m_cuda.event_record(event, stream);
  }
  int elapsed(float* milliseconds, void* start, void* stop) const noexcept override {
    return m_cuda.event_elapsed(milliseconds, start, stop);
  }
  int query(void* stream) const noexcept override { return m_cuda.stream_query(stream); }
  int capture_status(void* stream, int* status) const noexcept override {
    *status = 0;
    if (m_cuda.capture_status == nullptr) return k_gpu_success;
    return m_cuda.capture_status(stream, status);
  }
  int begin_capture(void* stream) const noexcept override {
    return m_cuda.capture_begin(stream, k_capture_thread_local);
  }
  int end_capture(void* stream, void** graph) const noexcept override {
    return m_cuda.capture_end(stream, graph);
  }
  int instantiate(void** executable, void* graph) const noexcept override {
    return m_cuda.graph_instantiate(executable, graph, 0);
  }
  int launch_graph(void* executable, void* stream) const noexcept override {
    return m_cuda.graph_launch(executable, stream);
  }
  int destroy_executable(void* executable) const noexcept override {
    return m_cuda.executable_destroy(executable);
  }
  int destroy_graph(void* graph) const noexcept override { return m_cuda.graph_destroy(graph); }

  int allocate_word(std::uint32_t** word, std::uint64_t* address) const noexcept override {
    void* pointer = take_spare_word();
    if (pointer == nullptr) {
      if (const int code =
              m_cuda.host_allocate(&pointer, sizeof(std::uint32_t), k_host_portable_mapped)) {
        return code;
      }
    }
    CuPointer seen = 0;
    if (const int code = m_cuda.host_address(&seen, pointer, 0)) {
      m_cuda.host_free(pointer);
      return code;
    }
    *word = static_cast<std::uint32_t*>(pointer);
    *address = seen;
    return k_gpu_success;
  }
  int free_word(std::uint32_t* word) const noexcept override {
    return keep_spare_word(word) ? k_gpu_success : m_cuda.host_free(word);
  }
  int wait_for_word(void* stream, std::uint64_t address,
                    std::uint32_t value) const noexcept override {
    return m_cuda.stream_wait(stream, address, value, k_wait_greater_or_equal);
  }
  int launch_host_function(void* stream, void (*function)(void*),
                           void* argument) const noexcept override {
    return m_cuda.host_function(stream, function, argument);
  }

  int allocate(std::uint64_t* address, std::size_t bytes) const noexcept override {
    CuPointer pointer = 0;
    const int code = m_cuda.memory_allocate(&pointer, bytes);
    *address = pointer;
    return code;
  }
  int free(std::uint64_t address) const noexcept override { return m_cuda.memory_free(address); }
  int fill(std::uint64_t address, std::size_t bytes, void* stream) const noexcept override {
    return m_cuda.memory_fill(address, 0, bytes, stream);
  }

 private:
  void initialize();
  void check(int code, std::string_view doing) const {
    if (code == k_gpu_success) return;
    const std::string text =
        fmt::format("disttune: the CUDA driver: {} failed with {}", doing, describe(code));
    if (sticky(code)) throw DeviceLost(text);
    throw Error(text);
  }
  [[nodiscard]] int attribute(int number, int ordinal) const {
    int value = 0;
    check(m_cuda.device_attribute(&value, number, device(ordinal)), "asking a device's attribute");
    return value;
  }
  [[nodiscard]] int device(int ordinal) const {
    return m_devices.at(static_cast<std::size_t>(ordinal));
  }
  [[nodiscard]] static std::string driver_release();

  /// One word outlives its timer: with the first pinned memory of a process the driver maps a whole
  /// page, and unmaps it with the last, which together take longer than tuning a small kernel.
  bool keep_spare_word(std::uint32_t* word) const noexcept;
  /// Null: there is none, or it went with the context that it was allocated in.
  void* take_spare_word() const noexcept;
  /// Which allocation `pointer` points into, never the same twice; 0: none.
  [[nodiscard]] unsigned long long allocation_id(const void* pointer) const noexcept {
    unsigned long long id = 0;
    if (m_cuda.pointer_attribute == nullptr ||
        m_cuda.pointer_attribute(&id, k_buffer_id, reinterpret_cast<CuPointer>(pointer)) !=
            k_gpu_success) {
      return 0;
    }
    return id;
  }

  DriverLibrary m_library;
  CudaFunctions m_cuda;
  Nvml m_nvml;
  std::vector<int> m_devices;  ///< CUdevice of each ordinal
  mutable std::mutex m_spare_mutex;
  mutable void* m_spare_word = nullptr;
  mutable unsigned long long m_spare_id = 0;
};

void CudaDriver::initialize() {
  const int code = m_cuda.init(0);
  if (code == k_no_device) return;
  if (code != k_gpu_success) {
    std::string advice;
    if (code == k_not_initialized) {
      advice =
          "; in a process forked after CUDA was initialised CUDA cannot be used: start "
          "workers by spawn";
    } else if (code == k_system_driver_mismatch) {
      advice =
          "; the kernel module and libcuda.so.1 are of different releases: reboot or reinstall";
    }
    throw Error(fmt::format("disttune: the CUDA driver cannot be initialised: {}{}", describe(code),
                            advice));
  }
  int count = 0;
  check(m_cuda.device_count(&count), "counting devices");
  for (int i = 0; i < count; ++i) {
    int device = 0;
    check(m_cuda.device_get(&device, i), "opening a device");
    m_devices.push_back(device);
  }
}

int CudaDriver::context_of(void* stream, int ordinal, GpuContext& context) const {
  context = {};
  // Null, the legacy (1) and the per-thread (2) default streams are those of a context.
  const bool is_default = reinterpret_cast<std::uintptr_t>(stream) <= 2;
  int code = is_default ? m_cuda.context_current(&context.context)
                        : m_cuda.stream_context(stream, &context.context);
  if (code != k_gpu_success) return code;
  if (context.context != nullptr) {
    GpuRestore restore;
    if (code = enter(context, restore); code != k_gpu_success) return code;
    int device = 0;
    code = m_cuda.context_device(&device);
    leave(restore);
    if (code != k_gpu_success) return code;
    const auto found = std::find(m_devices.begin(), m_devices.end(), device);
    context.ordinal = static_cast<int>(found - m_devices.begin());
    if (!is_default || ordinal == k_current_device || ordinal == context.ordinal) return code;
  }
  // A thread that has called nothing yet, or is on another device. The device's primary context is
  // what the CUDA runtime uses there; with one device there is no doubt which.
  if (ordinal == k_current_device && m_devices.size() == 1) ordinal = 0;
  if (ordinal == k_current_device) return k_invalid_context;
  context = {};
  code = m_cuda.primary_retain(&context.context, device(ordinal));
  if (code != k_gpu_success) return code;
  context.ordinal = ordinal;
  context.retained = true;
  return k_gpu_success;
}

bool CudaDriver::keep_spare_word(std::uint32_t* word) const noexcept {
  const std::lock_guard lock(m_spare_mutex);
  if (m_spare_word != nullptr && allocation_id(m_spare_word) == m_spare_id) return false;
  m_spare_id = allocation_id(word);
  m_spare_word = m_spare_id != 0 ? word : nullptr;
  return m_spare_word != nullptr;
}

void* CudaDriver::take_spare_word() const noexcept {
  const std::lock_guard lock(m_spare_mutex);
  void* const word = std::exchange(m_spare_word, nullptr);
  return word != nullptr && allocation_id(word) == m_spare_id ? word : nullptr;
}

std::string CudaDriver::driver_release() {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 …"; the word that is
  // three numbers, or two, joined by dots.
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    const bool numeric = word.find_first_not_of("0123456789.") == std::string::npos;
    if (numeric && word.find('.') != std::string::npos) return word;
  }
  return {};
}

}  // namespace

std::shared_ptr<const GpuDriver> load_cuda(const std::string& library,
                                           const std::string& management) {
  return std::make_shared<CudaDriver>(library, management);
}

}  // namespace disttune::devices

DISTTUNE_NAMESPACE_BEGIN

Stream cuda(void* stream) {
  // Never destroyed: launchers at namespace scope may be called until the very end.
  static const auto* const platform =
      new devices::GpuPlatform("cuda", [] { return devices::load_cuda("libcuda.so.1"); });
  return platform->stream(stream);
}

DISTTUNE_NAMESPACE_END
