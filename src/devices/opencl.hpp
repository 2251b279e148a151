// OpenCL, through the loader opened at run time. No OpenCL header is used: the declarations are
// ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "disttune/device.hpp"

namespace disttune::devices {

/// Handles are opaque pointers; cl_int and enumerations are 32-bit integers, bit fields 64-bit.
struct OpenClFunctions {
  int (*platform_ids)(std::uint32_t entries, void** platforms, std::uint32_t* count);
  int (*platform_info)(void* platform, std::uint32_t what, std::size_t size, void* value,
                       std::size_t* needed);
  int (*device_ids)(void* platform, std::uint64_t type, std::uint32_t entries, void** devices,
                    std::uint32_t* count);
  int (*device_info)(void* device, std::uint32_t what, std::size_t size, void* value,
                     std::size_t* needed);
  int (*queue_info)(void* queue, std::uint32_t what, std::size_t size, void* value,
                    std::size_t* needed);
  int (*retain_queue)(void* queue);
  int (*release_queue)(void* queue);
  void* (*create_user_event)(void* context, int* code);
  int (*set_user_event)(void* event, int status);
  int (*release_event)(void* event);
  int (*marker)(void* queue, std::uint32_t count, void* const* waits, void** event);
  int (*barrier)(void* queue, std::uint32_t count, void* const* waits, void** event);
  int (*event_info)(void* event, std::uint32_t what, std::size_t size, void* value,
                    std::size_t* needed);
  int (*profiling_info)(void* event, std::uint32_t what, std::size_t size, void* value,
                        std::size_t* needed);
  int (*flush)(void* queue);
  void* (*create_buffer)(void* context, std::uint64_t flags, std::size_t size, void* host,
                         int* code);
  int (*release_memory)(void* memory);
  int (*fill)(void* queue, void* buffer, const void* pattern, std::size_t pattern_size,
              std::size_t offset, std::size_t size, std::uint32_t count, void* const* waits,
              void** event);
};

/// The loader and its functions; shared by all devices and timers.
class OpenCl {
 public:
  /// Throws Error that says what is missing. `name`: of the library, "libOpenCL.so.1".
  explicit OpenCl(const std::string& name);
  explicit OpenCl(const OpenClFunctions& functions) : m_functions(functions) {}

  const OpenClFunctions* operator->() const noexcept { return &m_functions; }

  /// Throws when `code` is an error: DeviceLost for a device that is gone, else Error.
  void check(int code, std::string_view call) const;
  [[nodiscard]] std::string device_text(void* device, std::uint32_t what) const;
  template <class T>
  [[nodiscard]] T device_value(void* device, std::uint32_t what) const {
    T value{};
    check(m_functions.device_info(device, what, sizeof value, &value, nullptr), "asking a device");
    return value;
  }
  template <class T>
  [[nodiscard]] T queue_value(void* queue, std::uint32_t what) const {
    T value{};
    check(m_functions.queue_info(queue, what, sizeof value, &value, nullptr), "asking a queue");
    return value;
  }

 private:
  OpenClFunctions m_functions{};
};

[[nodiscard]] std::string describe_opencl(int code);

/// Bytes that a flush must write: the device's cache; the host's last-level cache for a CPU device
/// that does not say; 0: unknown.
[[nodiscard]] std::size_t opencl_cache_bytes(const OpenCl& cl, void* device);

/// All devices of all platforms. Thread-safe.
class OpenClPlatforms {
 public:
  /// A loader that does not open, or no device: using a Stream throws, making one does not.
  explicit OpenClPlatforms(const std::string& library);
  ~OpenClPlatforms();
  /// Throws Error for a null queue.
  [[nodiscard]] Stream stream(void* queue);

 private:
  struct Impl;
  std::unique_ptr<Impl> m_impl;
};

// cl.h
inline constexpr std::uint32_t k_cl_queue_context = 0x1090;
inline constexpr std::uint32_t k_cl_queue_device = 0x1091;
inline constexpr std::uint32_t k_cl_queue_properties = 0x1093;
inline constexpr std::uint64_t k_cl_out_of_order = 1u << 0;
inline constexpr std::uint64_t k_cl_profiling = 1u << 1;

}  // namespace disttune::devices
