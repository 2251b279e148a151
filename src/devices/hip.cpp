#include "devices/hip.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <vector>

#include "devices/gpu_device.hpp"
#include "devices/hip_functions.hpp"
#include "disttune/error.hpp"
#include "disttune/hip.hpp"

namespace disttune::devices {

namespace {

// hipDeviceAttribute_t, which does not have CUDA's numbers.
constexpr int k_clock_rate = 5;
constexpr int k_l2_cache_size = 19;
constexpr int k_capability_major = 23;
constexpr int k_memory_bus_width = 59;
constexpr int k_memory_clock_rate = 60;
constexpr int k_capability_minor = 61;
constexpr int k_multiprocessors = 63;
constexpr int k_warp_size = 87;
constexpr int k_can_use_stream_wait_value = 10013;

constexpr unsigned k_event_default = 0;  // 2 would switch its time stamp off
// Portable, mapped, and coherent: a kernel that waits for the word must see the host's store.
constexpr unsigned k_host_flags = 0x1 | 0x2 | 0x40000000;
constexpr unsigned k_wait_greater_or_equal = 0;
constexpr std::uint32_t k_all_bits = 0xffffffff;
constexpr int k_capture_thread_local = 1;  // other threads may go on allocating meanwhile

constexpr int k_no_device = 100;
constexpr int k_invalid_device = 101;

constexpr std::array k_sticky{4,   214, 220, 700, 702, 709, 710,  714,
                              715, 716, 717, 718, 719, 999, 1052, 1053};

class HipDriver final : public GpuDriver {
 public:
  explicit HipDriver(std::span<const std::string> libraries)
      : m_library("HIP runtime", libraries), m_hip(resolve_hip(m_library)) {
    int code = m_hip.init(0);
    if (code == k_gpu_success) code = m_hip.device_count(&m_count);
    if (code == k_no_device) m_count = 0;
    if (code != k_gpu_success && code != k_no_device) {
      throw Error(fmt::format("disttune: the HIP runtime {} cannot be initialised: {}",
                              m_library.name(), describe(code)));
    }
  }

  [[nodiscard]] std::string_view kind() const noexcept override { return "hip"; }
  [[nodiscard]] std::string describe(int code) const override {
    const char* name = m_hip.error_name(code);
    const char* text = m_hip.error_text(code);
    return fmt::format("{} ({}): {}", name != nullptr ? name : "unknown HIP error", code,
                       text != nullptr ? text : "no description");
  }
  [[nodiscard]] bool sticky(int code) const noexcept override {
    return std::find(k_sticky.begin(), k_sticky.end(), code) != k_sticky.end();
  }

  [[nodiscard]] int device_count() const noexcept override { return m_count; }
  [[nodiscard]] Value fingerprint(int ordinal) const override;
  [[nodiscard]] Value software() const override;
  [[nodiscard]] Value information(int ordinal) const override {
    return Value::dict({{"clock_khz", attribute(k_clock_rate, ordinal)},
                        {"memory_clock_khz", attribute(k_memory_clock_rate, ordinal)}});
  }
  [[nodiscard]] std::size_t cache_bytes(int ordinal) const override {
    return static_cast<std::size_t>(std::max(0, attribute(k_l2_cache_size, ordinal)));
  }
  [[nodiscard]] bool has_stream_wait(int ordinal) const override {
    int supported = 0;
    return m_hip.stream_wait != nullptr &&
           m_hip.device_attribute(&supported, k_can_use_stream_wait_value, ordinal) ==
               k_gpu_success &&
           supported == 1;
  }
  [[nodiscard]] bool has_host_function() const noexcept override {
    return m_hip.host_function != nullptr;
  }
  [[nodiscard]] bool has_graphs() const noexcept override {
    return m_hip.capture_begin != nullptr && m_hip.capture_end != nullptr &&
           m_hip.graph_instantiate != nullptr && m_hip.graph_launch != nullptr &&
           m_hip.executable_destroy != nullptr && m_hip.graph_destroy != nullptr;
  }

  int context_of(void* stream, int ordinal, GpuContext& context) const override {
    context = {};
    // Null, the legacy (1) and the per-thread (2) default streams are those of a device.
    const bool is_default = reinterpret_cast<std::uintptr_t>(stream) <= 2;
    if (is_default && ordinal != k_current_device) {
      context.ordinal = ordinal;
      return k_gpu_success;
    }
    const int code = is_default || m_hip.stream_device == nullptr
                         ? m_hip.get_device(&context.ordinal)
                         : m_hip.stream_device(stream, &context.ordinal);
    if (code == k_gpu_success && (context.ordinal < 0 || context.ordinal >= m_count)) {
      return k_invalid_device;
    }
    return code;
  }
  void release_context(GpuContext&) const noexcept override {}
  int enter(const GpuContext& context, GpuRestore& restore) const noexcept override {
    int current = -1;
    const int code = m_hip.get_device(&current);
    if (code != k_gpu_success || current == context.ordinal) return code;
    const int set = m_hip.set_device(context.ordinal);
    restore = {set == k_gpu_success, current};
    return set;
  }
  void leave(const GpuRestore& restore) const noexcept override {
    if (restore.changed) m_hip.set_device(restore.ordinal);
  }

  int create_event(void** event) const noexcept override {
    return m_hip.event_create(event, k_event_default);
  }
  int destroy_event(void* event) const noexcept override { return m_hip.event_destroy(event); }
  int record(void* event, void* stream) const noexcept override {
    return m_hip.event_record(event, stream);
  }
  int elapsed(float* milliseconds, void* start, void* stop) const noexcept override {
    return m_hip.event_elapsed(milliseconds, start, stop);
  }
  int query(void* stream) const noexcept override { return m_hip.stream_query(stream); }
  int capture_status(void* stream, int* status) const noexcept override {
    *status = 0;
    if (m_hip.capture_status == nullptr) return k_gpu_success;
    return m_hip.capture_status(stream, status);
  }
  int begin_capture(void* stream) const noexcept override {
    return m_hip.capture_begin(stream, k_capture_thread_local);
  }
  int end_capture(void* stream, void** graph) const noexcept override {
    return m_hip.capture_end(stream, graph);
  }
  int instantiate(void** executable, void* graph) const noexcept override {
    return m_hip.graph_instantiate(executable, graph, 0);
  }
  int launch_graph(void* executable, void* stream) const noexcept override {
    return m_hip.graph_launch(executable, stream);
  }
  int destroy_executable(void* executable) const noexcept override {
    return m_hip.executable_destroy(executable);
  }
  int destroy_graph(void* graph) const noexcept override { return m_hip.graph_destroy(graph); }

  int allocate_word(std::uint32_t** word, std::uint64_t* address) const noexcept override {
    // Eight bytes: the runtime compares 64 bits on some devices.
    void* pointer = nullptr;
    if (const int code = m_hip.host_allocate(&pointer, 8, k_host_flags)) return code;
    void* seen = nullptr;
    if (const int code = m_hip.host_address(&seen, pointer, 0)) {
      m_hip.host_free(pointer);
      return code;
    }
    *static_cast<std::uint64_t*>(pointer) = 0;
    *word = static_cast<std::uint32_t*>(pointer);
    *address = reinterpret_cast<std::uintptr_t>(seen);
    return k_gpu_success;
  }
  int free_word(std::uint32_t* word) const noexcept override { return m_hip.host_free(word); }
  int wait_for_word(void* stream, std::uint64_t address,
                    std::uint32_t value) const noexcept override {
    return m_hip.stream_wait(stream, pointer(address), value, k_wait_greater_or_equal, k_all_bits);
  }
  int launch_host_function(void* stream, void (*function)(void*),
                           void* argument) const noexcept override {
    return m_hip.host_function(stream, function, argument);
  }

  int allocate(std::uint64_t* address, std::size_t bytes) const noexcept override {
    void* memory = nullptr;
    const int code = m_hip.memory_allocate(&memory, bytes);
    *address = reinterpret_cast<std::uintptr_t>(memory);
    return code;
  }
  int free(std::uint64_t address) const noexcept override {
    return m_hip.memory_free(pointer(address));
  }
  int fill(std::uint64_t address, std::size_t bytes, void* stream) const noexcept override {
    return m_hip.memory_fill(pointer(address), 0, bytes, stream);
  }

 private:
  static void* pointer(std::uint64_t address) noexcept {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  }
  void check(int code, std::string_view doing) const {
    if (code == k_gpu_success) return;
    const std::string text =
        fmt::format("disttune: the HIP runtime: {} failed with {}", doing, describe(code));
    if (sticky(code)) throw DeviceLost(text);
    throw Error(text);
  }
  [[nodiscard]] int attribute(int number, int ordinal) const {
    int value = 0;
    check(m_hip.device_attribute(&value, number, ordinal), "asking a device's attribute");
    return value;
  }

  DriverLibrary m_library;
  HipFunctions m_hip;
  int m_count = 0;
};

Value HipDriver::fingerprint(int ordinal) const {
  std::array<char, 256> name{};
  std::size_t bytes = 0;
  check(m_hip.device_name(name.data(), static_cast<int>(name.size()) - 1, ordinal),
        "asking a device's name");
  check(m_hip.device_memory(&bytes, ordinal), "asking a device's memory");
  return Value::dict({
      {"kind", "hip"},
      {"name", std::string(name.data())},
      {"capability", fmt::format("{}.{}", attribute(k_capability_major, ordinal),
                                 attribute(k_capability_minor, ordinal))},
      {"multiprocessors", attribute(k_multiprocessors, ordinal)},
      {"memory_gib", (bytes + (std::size_t{1} << 29)) >> 30},
      {"memory_bus_bits", attribute(k_memory_bus_width, ordinal)},
      {"l2_bytes", attribute(k_l2_cache_size, ordinal)},
      {"wavefront", attribute(k_warp_size, ordinal)},
  });
}

Value HipDriver::software() const {
  int runtime = 0;
  int driver = 0;
  check(m_hip.runtime_version(&runtime), "asking the runtime's version");
  check(m_hip.driver_version(&driver), "asking the driver's version");
  std::vector<std::pair<Value, Value>> items{{"hip_runtime", runtime}, {"hip_driver", driver}};
  // Only the separately installed kernel module has this file.
  std::ifstream file("/sys/module/amdgpu/version");
  if (std::string release; file >> release) items.emplace_back("amdgpu", release);
  return Value::dict(std::move(items));
}

}  // namespace

std::shared_ptr<const GpuDriver> load_hip(std::span<const std::string> libraries) {
  return std::make_shared<HipDriver>(libraries);
}

}  // namespace disttune::devices

DISTTUNE_NAMESPACE_BEGIN

Stream hip(void* stream) {
  // Never destroyed: launchers at namespace scope may be called until the very end.
  static const auto* const platform = new devices::GpuPlatform("hip", [] {
    const std::array<std::string, 4> names{"libamdhip64.so.7", "libamdhip64.so.6",
                                           "libamdhip64.so.5", "libamdhip64.so"};
    return devices::load_hip(names);
  });
  return platform->stream(stream);
}

DISTTUNE_NAMESPACE_END
