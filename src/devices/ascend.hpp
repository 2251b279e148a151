// Ascend's runtime library (ACL), opened at run time. No CANN header is used: the declarations are
// ours, and constants are numbers, because their names changed between releases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "disttune/device.hpp"

namespace disttune::devices {

/// Handles are opaque pointers; aclError and enumerations are ints. Where a comment says so, null
/// in releases or on products that lack it.
struct AscendFunctions {
  int (*get_device)(std::int32_t* device);
  int (*get_context)(void** context);
  int (*set_context)(void* context);
  int (*device_count)(std::uint32_t* count);
  const char* (*soc_name)();
  int (*create_event)(void** event, std::uint32_t flag);
  int (*destroy_event)(void* event);
  int (*record)(void* event, void* stream);
  int (*elapsed)(float* milliseconds, void* start, void* stop);
  int (*stream_query)(void* stream, int* status);
  int (*stream_synchronize)(void* stream);
  int (*allocate)(void** pointer, std::size_t bytes, int policy);
  int (*free)(void* pointer);
  int (*fill)(void* pointer, std::size_t room, std::int32_t value, std::size_t bytes);
  int (*fill_async)(void* pointer, std::size_t room, std::int32_t value, std::size_t bytes,
                    void* stream);
  int (*copy)(void* to, std::size_t room, const void* from, std::size_t bytes, int kind);
  int (*create_stream)(void** stream);
  int (*destroy_stream)(void* stream);

  int (*value_wait)(void* word, std::uint64_t value, std::uint32_t flag,
                    void* stream);  ///< A2, A3, 950; CANN 8.2 and later
  int (*value_write)(void* word, std::uint64_t value, std::uint32_t flag, void* stream);
  int (*host_function)(void* stream, void (*function)(void*), void* argument);
  int (*callback)(void (*function)(void*), void* argument, int blocks, void* stream);
  int (*subscribe)(std::uint64_t thread, void* stream);
  int (*unsubscribe)(std::uint64_t thread, void* stream);
  int (*process_report)(std::int32_t milliseconds);
  int (*capture_info)(void* stream, int* status, void** model);
  int (*capability)(std::uint32_t device, int what, std::int64_t* value);
  int (*device_info)(std::uint32_t device, int what, std::int64_t* value);  ///< CANN 8.5
  int (*memory_info)(int kind, std::size_t* free, std::size_t* total);
  int (*version)(std::int32_t* major, std::int32_t* minor, std::int32_t* patch);
  int (*package_version)(char* package, char* text);  ///< CANN 8.5
  const char* (*recent_message)();
};

/// The library and its functions; shared by all devices and timers.
class Ascend {
 public:
  /// Opens the first of `libraries` that loads; throws Error that says what is missing.
  explicit Ascend(std::span<const std::string> libraries);
  explicit Ascend(const AscendFunctions& functions) : m_functions(functions) {}

  const AscendFunctions* operator->() const noexcept { return &m_functions; }

  /// Throws when `code` is an error: DeviceLost for a device that is gone, else Error; both with
  /// the runtime's own message of this thread, where it left one.
  void check(int code, std::string_view call) const;
  [[nodiscard]] bool lost(int code) const noexcept;
  [[nodiscard]] std::string describe(int code) const;
  /// The calling thread's context; throws Error that says what to do where there is none.
  [[nodiscard]] void* current_context() const;

 private:
  AscendFunctions m_functions{};
};

/// Makes a context current for a block, and puts the one before back.
class AscendScope {
 public:
  AscendScope(const Ascend& acl, void* context) noexcept;
  ~AscendScope();
  AscendScope(const AscendScope&) = delete;
  AscendScope& operator=(const AscendScope&) = delete;
  [[nodiscard]] int code() const noexcept { return m_code; }

 private:
  const Ascend& m_acl;
  void* m_before = nullptr;
  bool m_changed = false;
  int m_code = 0;
};

class AscendDevice;

/// All devices that the process sees, one Device each. Thread-safe; no lock after construction.
class AscendPlatform {
 public:
  /// A library that does not open, or no device: using a Stream throws, making one does not.
  explicit AscendPlatform(std::span<const std::string> libraries);
  explicit AscendPlatform(std::shared_ptr<const Ascend> acl);
  /// The calling thread's device: a stream belongs to the context that is current. Throws Error
  /// where several devices are visible and none is set. With one device no call is made.
  [[nodiscard]] Stream stream(void* handle) const;

 private:
  void list_devices();

  std::shared_ptr<const Ascend> m_acl;
  std::shared_ptr<Device> m_unavailable;
  std::vector<std::shared_ptr<AscendDevice>> m_devices;
};

}  // namespace disttune::devices
