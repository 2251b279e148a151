// NVML, NVIDIA's library for watching GPUs, for one question: whether one has slowed down. No NVML
// header is used: the declarations are ours.
#pragma once

#include <mutex>
#include <string>
#include <utility>

namespace disttune::devices {

/// Opened when first asked, and never closed. Thread-safe. Where it is missing, as in many
/// containers, or fails, nothing is known, which is no error.
class Nvml {
 public:
  /// `library` is "libnvidia-ml.so.1"; tests give the path of a library of their own.
  explicit Nvml(std::string library) : m_library(std::move(library)) {}

  /// Whether the GPU runs slower now because it is too hot or short of power; false where nothing
  /// is known. `bus_id`: as cuDeviceGetPCIBusId writes it.
  [[nodiscard]] bool throttled(const char* bus_id) const noexcept;

 private:
  void open() const noexcept;

  std::string m_library;
  mutable std::once_flag m_opened;
  // Both null, or both there and NVML initialised.
  mutable int (*m_device)(const char* bus_id, void** device) = nullptr;
  mutable int (*m_reasons)(void* device, unsigned long long* reasons) = nullptr;
};

}  // namespace disttune::devices
