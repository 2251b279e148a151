#include "devices/gpu_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "devices/gpu_timer.hpp"
#include "devices/unavailable.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {

std::unique_ptr<StreamTimer> GpuDevice::open(void* stream, std::size_t samples) {
  return std::make_unique<GpuTimer>(m_driver, m_ordinal, stream, samples);
}

bool GpuDevice::capturing(void* stream) const {
  GpuContext context;
  check(*m_driver, stream, m_driver->context_of(stream, m_ordinal, context),
        "finding the stream's context");
  struct Release {
    const GpuDriver& driver;
    GpuContext& context;
    ~Release() { driver.release_context(context); }
  } release{*m_driver, context};
  return devices::capturing(*m_driver, context, stream);
}

GpuPlatform::GpuPlatform(std::string_view kind,
                         const std::function<std::shared_ptr<const GpuDriver>()>& load)
    : m_kind(kind) {
  try {
    m_driver = load();
    std::vector<Value> fingerprints;
    for (int i = 0; i < m_driver->device_count(); ++i) {
      fingerprints.push_back(m_driver->fingerprint(i));
    }
    const bool uniform =
        std::ranges::adjacent_find(fingerprints, std::ranges::not_equal_to{}) == fingerprints.end();
    const Value software = m_driver->software();
    for (Value& fingerprint : fingerprints) {
      m_devices.push_back(std::make_shared<GpuDevice>(m_driver, static_cast<int>(m_devices.size()),
                                                      uniform, std::move(fingerprint), software));
    }
    if (m_devices.empty()) {
      m_unavailable = std::make_shared<UnavailableDevice>(
          kind, fmt::format("disttune: the {} driver shows no device to this process; check the "
                            "variable that limits the visible devices",
                            kind));
    }
  } catch (const Error& error) {
    m_unavailable = std::make_shared<UnavailableDevice>(kind, error.what());
  }
}

Stream GpuPlatform::stream(void* handle) const {
  if (m_unavailable) return {m_unavailable, handle};
  if (m_devices.size() == 1) return {m_devices.front(), handle};
  GpuContext context;
  const int code = m_driver->context_of(handle, k_current_device, context);
  m_driver->release_context(context);
  if (m_driver->sticky(code)) check(*m_driver, handle, code, "finding the stream's device");
  if (code != k_gpu_success || context.ordinal < 0 ||
      static_cast<std::size_t>(context.ordinal) >= m_devices.size()) {
    throw Error(
        fmt::format("disttune: which {} device the stream {} belongs to is unknown: {}; "
                    "it was destroyed, or is a default stream on a thread that has not "
                    "chosen its device",
                    m_kind, fmt::ptr(handle), m_driver->describe(code)));
  }
  return {m_devices[static_cast<std::size_t>(context.ordinal)], handle};
}

}  // namespace disttune::devices
