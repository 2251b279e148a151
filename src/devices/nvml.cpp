#include "devices/nvml.hpp"

#include <array>

#include "devices/driver_library.hpp"

namespace disttune::devices {

namespace {

constexpr int k_nvml_success = 0;

// nvmlClocksEventReasons. The software power cap, 0x4, is not among them: at full load a GPU
// normally runs at the clock that its power limit allows, so good measurements would be marked.
constexpr unsigned long long k_hardware_slowdown = 0x8;
constexpr unsigned long long k_software_thermal = 0x20;
constexpr unsigned long long k_hardware_thermal = 0x40;
constexpr unsigned long long k_power_brake = 0x80;
constexpr unsigned long long k_slowed =
    k_hardware_slowdown | k_software_thermal | k_hardware_thermal | k_power_brake;

}  // namespace

bool Nvml::throttled(const char* bus_id) const noexcept {
  std::call_once(m_opened, [this] { open(); });
  if (m_reasons == nullptr) return false;
  void* device = nullptr;
  unsigned long long reasons = 0;
  return m_device(bus_id, &device) == k_nvml_success &&
         m_reasons(device, &reasons) == k_nvml_success && (reasons & k_slowed) != 0;
}

void Nvml::open() const noexcept {
  try {
    const DriverLibrary library("NVIDIA management library", std::array{m_library});
    int (*init)() = nullptr;
    decltype(m_device) device = nullptr;
    decltype(m_reasons) reasons = nullptr;
    library.find(init, "nvmlInit_v2");
    library.find(device, "nvmlDeviceGetHandleByPciBusId_v2");
    // Drivers before 535 have the older name alone; NVML 13 deprecates it.
    if (!library.find(reasons, "nvmlDeviceGetCurrentClocksEventReasons")) {
      library.find(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    }
    if (init == nullptr || device == nullptr || reasons == nullptr) return;
    if (init() != k_nvml_success) return;
    m_device = device;
    m_reasons = reasons;
  } catch (...) {  // not installed
    return;
  }
}

}  // namespace disttune::devices
