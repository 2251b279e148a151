#include "devices/opencl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "devices/driver_library.hpp"
#include "devices/host_facts.hpp"
#include "devices/opencl_timer.hpp"
#include "devices/unavailable.hpp"
#include "disttune/error.hpp"
#include "disttune/opencl.hpp"

namespace disttune::devices {

namespace {

// cl.h
constexpr std::uint64_t k_all_types = 0xFFFFFFFF;
constexpr std::uint64_t k_type_cpu = 1u << 1;
constexpr std::uint32_t k_platform_version = 0x0901;
constexpr std::uint32_t k_type = 0x1000;
constexpr std::uint32_t k_vendor_id = 0x1001;
constexpr std::uint32_t k_compute_units = 0x1002;
constexpr std::uint32_t k_max_clock = 0x100C;
constexpr std::uint32_t k_cache_size = 0x101E;
constexpr std::uint32_t k_memory_size = 0x101F;
constexpr std::uint32_t k_local_size = 0x1023;
constexpr std::uint32_t k_timer_resolution = 0x1025;
constexpr std::uint32_t k_name = 0x102B;
constexpr std::uint32_t k_driver_version = 0x102D;
constexpr std::uint32_t k_version = 0x102F;
constexpr std::uint32_t k_platform = 0x1031;

constexpr int k_device_not_found = -1;
constexpr int k_device_not_available = -2;
constexpr int k_invalid_queue = -36;

struct Name {
  int code;
  const char* text;
};
constexpr std::array k_names{
    Name{-1, "CL_DEVICE_NOT_FOUND"},
    Name{-2, "CL_DEVICE_NOT_AVAILABLE"},
    Name{-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    Name{-5, "CL_OUT_OF_RESOURCES"},
    Name{-6, "CL_OUT_OF_HOST_MEMORY"},
    Name{-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    Name{-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    Name{-30, "CL_INVALID_VALUE"},
    Name{-34, "CL_INVALID_CONTEXT"},
    Name{-36, "CL_INVALID_COMMAND_QUEUE"},
    Name{-58, "CL_INVALID_EVENT"},
    Name{-59, "CL_INVALID_OPERATION"},
    Name{-61, "CL_INVALID_BUFFER_SIZE"},
    Name{-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

class OpenClDevice final : public Device {
 public:
  OpenClDevice(std::shared_ptr<const OpenCl> cl, void* device, int index, bool profiling,
               bool uniform)
      : m_cl(std::move(cl)),
        m_device(device),
        m_index(index),
        m_profiling(profiling),
        m_uniform(uniform) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "opencl"; }
  [[nodiscard]] std::string_view clock() const noexcept override {
    return m_profiling ? "device" : "host";
  }
  [[nodiscard]] Value fingerprint() const override {
    const auto memory = m_cl->device_value<std::uint64_t>(m_device, k_memory_size);
    return Value::dict({
        {"kind", "opencl"},
        {"name", m_cl->device_text(m_device, k_name)},
        {"type", m_cl->device_value<std::uint64_t>(m_device, k_type)},
        {"vendor_id", m_cl->device_value<std::uint32_t>(m_device, k_vendor_id)},
        {"compute_units", m_cl->device_value<std::uint32_t>(m_device, k_compute_units)},
        {"memory_gib", (memory + (std::uint64_t{1} << 29)) >> 30},
        {"local_bytes", m_cl->device_value<std::uint64_t>(m_device, k_local_size)},
    });
  }
  [[nodiscard]] Value software() const override {
    auto* const platform = m_cl->device_value<void*>(m_device, k_platform);
    std::array<char, 1024> text{};
    m_cl->check(
        (*m_cl)->platform_info(platform, k_platform_version, text.size() - 1, text.data(), nullptr),
        "asking a platform");
    return Value::dict({
        {"opencl_platform", std::string(text.data())},
        {"opencl_device", m_cl->device_text(m_device, k_version)},
        {"opencl_driver", m_cl->device_text(m_device, k_driver_version)},
    });
  }
  [[nodiscard]] Value information() const override {
    return Value::dict({
        {"clock_mhz", m_cl->device_value<std::uint32_t>(m_device, k_max_clock)},
        {"timer_resolution_ns", m_cl->device_value<std::size_t>(m_device, k_timer_resolution)},
        {"timing", m_profiling ? "device clock"
                               : "host clock, ungated: the queue was made without "
                                 "CL_QUEUE_PROFILING_ENABLE"},
    });
  }
  [[nodiscard]] int index() const override { return m_index; }
  [[nodiscard]] bool uniform() const override { return m_uniform; }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void* queue, std::size_t samples) override {
    return std::make_unique<OpenClTimer>(m_cl, queue, samples);
  }

 private:
  std::shared_ptr<const OpenCl> m_cl;
  void* m_device;
  int m_index;
  bool m_profiling;
  bool m_uniform;
};

/// Devices in the order of platforms, as every OpenCL program sees them.
std::vector<void*> list_devices(const OpenCl& cl) {
  std::uint32_t count = 0;
  if (cl->platform_ids(0, nullptr, &count) != 0 || count == 0) return {};
  std::vector<void*> platforms(count);
  cl.check(cl->platform_ids(count, platforms.data(), nullptr), "listing platforms");
  std::vector<void*> all;
  for (void* platform : platforms) {
    const int code = cl->device_ids(platform, k_all_types, 0, nullptr, &count);
    if (code == k_device_not_found || count == 0) continue;
    cl.check(code, "counting devices");
    std::vector<void*> devices(count);
    cl.check(cl->device_ids(platform, k_all_types, count, devices.data(), nullptr),
             "listing devices");
    all.insert(all.end(), devices.begin(), devices.end());
  }
  return all;
}

}  // namespace

std::string describe_opencl(int code) {
  const auto* const found =
      std::find_if(k_names.begin(), k_names.end(), [&](const Name& n) { return n.code == code; });
  return fmt::format("{} ({})", found != k_names.end() ? found->text : "OpenCL error", code);
}

OpenCl::OpenCl(const std::string& name) {
  const DriverLibrary library("OpenCL loader", std::array{name});
  OpenClFunctions& f = m_functions;
  const auto need = [&](auto*& function, const char* function_name) {
    if (!library.find(function, function_name)) {
      throw Error(missing_function("OpenCL loader", function_name, "older than 1.2"));
    }
  };
  need(f.platform_ids, "clGetPlatformIDs");
  need(f.platform_info, "clGetPlatformInfo");
  need(f.device_ids, "clGetDeviceIDs");
  need(f.device_info, "clGetDeviceInfo");
  need(f.queue_info, "clGetCommandQueueInfo");
  need(f.retain_queue, "clRetainCommandQueue");
  need(f.release_queue, "clReleaseCommandQueue");
  need(f.create_user_event, "clCreateUserEvent");
  need(f.set_user_event, "clSetUserEventStatus");
  need(f.release_event, "clReleaseEvent");
  need(f.marker, "clEnqueueMarkerWithWaitList");
  need(f.barrier, "clEnqueueBarrierWithWaitList");
  need(f.event_info, "clGetEventInfo");
  need(f.profiling_info, "clGetEventProfilingInfo");
  need(f.flush, "clFlush");
  need(f.create_buffer, "clCreateBuffer");
  need(f.release_memory, "clReleaseMemObject");
  need(f.fill, "clEnqueueFillBuffer");
}

void OpenCl::check(int code, std::string_view call) const {
  if (code == 0) return;
  const std::string text =
      fmt::format("disttune: OpenCL: {} failed with {}", call, describe_opencl(code));
  if (code == k_device_not_available || code == k_invalid_queue) {
    throw DeviceLost(text + ": the device or its queue is gone");
  }
  throw Error(text);
}

std::string OpenCl::device_text(void* device, std::uint32_t what) const {
  std::array<char, 1024> text{};
  check(m_functions.device_info(device, what, text.size() - 1, text.data(), nullptr),
        "asking a device");
  return text.data();
}

std::size_t opencl_cache_bytes(const OpenCl& cl, void* device) {
  const auto bytes = cl.device_value<std::uint64_t>(device, k_cache_size);
  if (bytes != 0) return static_cast<std::size_t>(bytes);
  // PoCL names no cache; its device is the host.
  const bool is_cpu = (cl.device_value<std::uint64_t>(device, k_type) & k_type_cpu) != 0;
  return is_cpu ? cache_bytes() : 0;
}

struct OpenClPlatforms::Impl {
  struct Pair {
    std::shared_ptr<Device> profiled;
    std::shared_ptr<Device> plain;
  };
  Pair pair(void* device, int index, bool uniform) const {
    return {std::make_shared<OpenClDevice>(cl, device, index, true, uniform),
            std::make_shared<OpenClDevice>(cl, device, index, false, uniform)};
  }

  std::shared_ptr<const OpenCl> cl;
  std::shared_ptr<Device> unavailable;
  std::map<void*, Pair> known;  ///< never changes after construction: read without a lock
  std::mutex mutex;
  std::map<void*, Pair> others;  ///< parts of devices, which no platform lists
};

OpenClPlatforms::OpenClPlatforms(const std::string& library) : m_impl(std::make_unique<Impl>()) {
  try {
    m_impl->cl = std::make_shared<OpenCl>(library);
    const std::vector<void*> devices = list_devices(*m_impl->cl);
    if (devices.empty()) {
      throw Error(
          "disttune: OpenCL has no device here: no platform is installed, or OCL_ICD_VENDORS "
          "hides it (for a CPU, install pocl)");
    }
    const auto hardware = [&](void* device) {
      return OpenClDevice(m_impl->cl, device, 0, true, true).fingerprint();
    };
    const Value first = hardware(devices.front());
    const bool uniform = std::all_of(devices.begin(), devices.end(),
                                     [&](void* device) { return hardware(device) == first; });
    int index = 0;
    for (void* device : devices) {
      m_impl->known.emplace(device, m_impl->pair(device, index++, uniform));
    }
  } catch (const Error& error) {
    m_impl->unavailable = std::make_shared<UnavailableDevice>("opencl", error.what());
  }
}

OpenClPlatforms::~OpenClPlatforms() = default;

Stream OpenClPlatforms::stream(void* queue) {
  if (queue == nullptr) throw Error("disttune: an OpenCL stream is a command queue, not null");
  if (m_impl->unavailable) return {m_impl->unavailable, queue};
  auto* const device = m_impl->cl->queue_value<void*>(queue, k_cl_queue_device);
  const auto properties = m_impl->cl->queue_value<std::uint64_t>(queue, k_cl_queue_properties);
  const auto choose = [&](const Impl::Pair& pair) -> Stream {
    return {(properties & k_cl_profiling) != 0 ? pair.profiled : pair.plain, queue};
  };
  if (const auto found = m_impl->known.find(device); found != m_impl->known.end()) {
    return choose(found->second);
  }
  const std::lock_guard lock(m_impl->mutex);
  auto found = m_impl->others.find(device);
  if (found == m_impl->others.end()) {
    const int index = static_cast<int>(m_impl->known.size() + m_impl->others.size());
    found = m_impl->others.emplace(device, m_impl->pair(device, index, false)).first;
  }
  return choose(found->second);
}

}  // namespace disttune::devices

DISTTUNE_NAMESPACE_BEGIN

Stream opencl(void* queue) {
  // Never destroyed: launchers at namespace scope may be called until the very end.
  static auto* const platforms = new devices::OpenClPlatforms("libOpenCL.so.1");
  return platforms->stream(queue);
}

DISTTUNE_NAMESPACE_END
