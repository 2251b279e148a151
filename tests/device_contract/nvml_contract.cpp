// NVML's functions that tell whether a GPU has slowed down, for GPUs 40 and up of the CUDA contract
// library. Why the clocks of GPU n are what they are is the setting "reasons n"; "init" is 1 after
// nvmlInit_v2. CONTRACT_OLD: NVML before 535, which has the reasons under their older name alone.
// CONTRACT_ANCIENT: one without them.
#include <cstdint>
#include <string>

#include "device_contract/gpu_model.hpp"

using contract::model;

namespace {

constexpr int k_uninitialized = 1;
constexpr int k_invalid_argument = 2;
constexpr int k_not_found = 6;

/// Handles are told from numbers and bus ids by this.
constexpr std::uintptr_t k_handle = 0xde00000000;

int uninitialized(const char* function) {
  if (model().settings["init"] != 0) return 0;
  model().misuse(std::string(function) + " before nvmlInit_v2");
  return k_uninitialized;
}

}  // namespace

#define ENTER()                              \
  const std::lock_guard lock(model().mutex); \
  if (const int code = model().enter(__func__)) return code

CONTRACT_EXPORT int nvmlInit_v2() {
  ENTER();
  ++model().settings["init"];
  return 0;
}
CONTRACT_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  ENTER();
  if (const int code = uninitialized(__func__)) return code;
  const std::string id = bus_id;
  if (id != "0000:40:00.0" && id != "0000:41:00.0") return k_not_found;
  *device = reinterpret_cast<void*>(k_handle + (id[6] == '0' ? 40u : 41u));
  return 0;
}

#if !defined(CONTRACT_ANCIENT)
namespace {

int reasons_of(void* device, unsigned long long* reasons, const char* function) {
  if (const int code = uninitialized(function)) return code;
  const std::uintptr_t gpu = reinterpret_cast<std::uintptr_t>(device) - k_handle;
  if (gpu != 40 && gpu != 41) {
    model().misuse("a device that does not exist");
    return k_invalid_argument;
  }
  const std::int64_t said = model().settings["reasons " + std::to_string(gpu)];
  *reasons = static_cast<unsigned long long>(said);
  return 0;
}

}  // namespace

CONTRACT_EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void* device,
                                                              unsigned long long* reasons) {
  ENTER();
#  if !defined(CONTRACT_OLD)
  model().misuse("the older name, where there is a newer one");
#  endif
  return reasons_of(device, reasons, __func__);
}
#  if !defined(CONTRACT_OLD)
CONTRACT_EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void* device,
                                                           unsigned long long* reasons) {
  ENTER();
  return reasons_of(device, reasons, __func__);
}
#  endif
#endif
