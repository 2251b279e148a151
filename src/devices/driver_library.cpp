#include "devices/driver_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "disttune/error.hpp"

namespace disttune::devices {

DriverLibrary::DriverLibrary(std::string_view what, std::span<const std::string> names) {
  std::string tried;
  for (const std::string& name : names) {
    m_handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (m_handle != nullptr) {
      m_name = name;
      return;
    }
    const char* reason = dlerror();
    tried += fmt::format("\n  {}", reason != nullptr ? reason : name.c_str());
  }
  throw Error(fmt::format(
      "disttune: the {} could not be loaded:{}\nInstall the driver, or put its folder into "
      "LD_LIBRARY_PATH; to tune on another device, give the launcher that device's stream",
      what, tried));
}

void* DriverLibrary::symbol(const char* name) const noexcept { return dlsym(m_handle, name); }

std::string missing_function(std::string_view what, std::string_view function,
                             std::string_view version) {
  return fmt::format(
      "disttune: the {} has no entry point {} (its version: {}), which timing needs; install a "
      "newer driver",
      what, function, version);
}

}  // namespace disttune::devices
