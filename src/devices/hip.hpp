// The HIP runtime library, opened at run time. No HIP header is used: the declarations are ours.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "devices/gpu_driver.hpp"

namespace disttune::devices {

/// Opens the first of `libraries` that loads and initialises it; throws Error that says what is
/// missing. In use these are the sonames of HIP 7, 6 and 5; tests give a library of their own.
[[nodiscard]] std::shared_ptr<const GpuDriver> load_hip(std::span<const std::string> libraries);

}  // namespace disttune::devices
