// The CUDA driver library, opened at run time. No CUDA header is used: the declarations are ours.
#pragma once

#include <memory>
#include <string>

#include "devices/driver_library.hpp"
#include "devices/gpu_driver.hpp"

namespace disttune::devices {

/// Opens the driver and initialises it; throws Error that says what is missing. `library` is
/// "libcuda.so.1"; tests give the path of a library of their own. `management` is NVML's, opened
/// when first needed, if it is there.
[[nodiscard]] std::shared_ptr<const GpuDriver> load_cuda(
    const std::string& library, const std::string& management = "libnvidia-ml.so.1");

}  // namespace disttune::devices
