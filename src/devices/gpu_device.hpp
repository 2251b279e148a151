// The CUDA and HIP devices of the process, one Device each, made when first asked for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "devices/gpu_driver.hpp"
#include "disttune/device.hpp"

namespace disttune::devices {

class GpuDevice final : public Device {
 public:
  /// `fingerprint`, `software`: the driver's, asked once; every cold call needs them.
  GpuDevice(std::shared_ptr<const GpuDriver> driver, int ordinal, bool uniform, Value fingerprint,
            Value software)
      : m_driver(std::move(driver)),
        m_ordinal(ordinal),
        m_uniform(uniform),
        m_fingerprint(std::move(fingerprint)),
        m_software(std::move(software)) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return m_driver->kind(); }
  [[nodiscard]] Value fingerprint() const override { return m_fingerprint; }
  [[nodiscard]] Value software() const override { return m_software; }
  [[nodiscard]] Value information() const override { return m_driver->information(m_ordinal); }
  [[nodiscard]] int index() const override { return m_ordinal; }
  [[nodiscard]] bool uniform() const override { return m_uniform; }
  [[nodiscard]] bool capturing(void* stream) const override;
  [[nodiscard]] bool throttled() const noexcept override { return m_driver->throttled(m_ordinal); }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void* stream, std::size_t samples) override;

 private:
  std::shared_ptr<const GpuDriver> m_driver;
  int m_ordinal;
  bool m_uniform;
  Value m_fingerprint;
  Value m_software;
};

/// All devices of one driver. Thread-safe; no lock and no allocation after construction.
class GpuPlatform {
 public:
  /// `load` may throw: then every use of the device (but not making a Stream) throws that text.
  GpuPlatform(std::string_view kind, const std::function<std::shared_ptr<const GpuDriver>()>& load);
  /// The device of a stream. With one device no driver call is made. Throws Error for a stream that
  /// is not alive, or a default stream on a thread without a device.
  [[nodiscard]] Stream stream(void* handle) const;

 private:
  std::string_view m_kind;
  std::shared_ptr<const GpuDriver> m_driver;
  std::vector<std::shared_ptr<Device>> m_devices;
  std::shared_ptr<Device> m_unavailable;
};

}  // namespace disttune::devices
