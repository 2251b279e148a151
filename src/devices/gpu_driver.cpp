#include "devices/gpu_driver.hpp"

#include <fmt/format.h>

#include "disttune/error.hpp"

namespace disttune::devices {

std::string explain(const GpuDriver& driver, void* stream, int code, std::string_view call) {
  std::string text = fmt::format("disttune: {} stream {}: {} failed with {}", driver.kind(),
                                 fmt::ptr(stream), call, driver.describe(code));
  if (driver.sticky(code)) {
    text +=
        ". It was caused by work queued before and stays: nothing that this process computes on "
        "the device can be trusted any more, and only a new process heals it";
  } else if (code == k_gpu_invalid_handle) {
    text += ": the stream was destroyed, or is no stream of this process";
  }
  return text;
}

void check(const GpuDriver& driver, void* stream, int code, std::string_view call) {
  if (code == k_gpu_success) return;
  if (driver.sticky(code)) throw DeviceLost(explain(driver, stream, code, call));
  throw Error(explain(driver, stream, code, call));
}

bool capturing(const GpuDriver& driver, const GpuContext& context, void* stream) {
  const GpuScope scope(driver, context);
  check(driver, stream, scope.code(), k_entering);
  int status = 0;
  const int code = driver.capture_status(stream, &status);
  // The default stream may not be asked while another stream that it waits for is captured.
  if (code == k_gpu_capture_implicit) return true;
  check(driver, stream, code, "asking whether the stream is captured");
  return status != 0;
}

}  // namespace disttune::devices
