// A device whose driver is not there: a launcher that names it can be made, and its stream passed
// around; only a use of the device ends in the error that says why.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "disttune/device.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {

class UnavailableDevice final : public Device {
 public:
  UnavailableDevice(std::string_view kind, std::string why) : m_kind(kind), m_why(std::move(why)) {}
  [[nodiscard]] std::string_view kind() const noexcept override { return m_kind; }
  [[nodiscard]] Value fingerprint() const override { throw Error(m_why); }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void*, std::size_t) override {
    throw Error(m_why);
  }

 private:
  std::string_view m_kind;
  std::string m_why;
};

}  // namespace disttune::devices
