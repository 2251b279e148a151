// A driver's shared library, opened at run time so that nothing is linked and a machine without the
// driver loses only that device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace disttune::devices {

/// Never closed again: drivers start threads and install exit handlers that must outlive us.
class DriverLibrary {
 public:
  /// Opens the first of `names` that loads, with local symbols. Throws Error that gives `what` (the
  /// driver's name for people), each name tried with the loader's reason, and what to do.
  DriverLibrary(std::string_view what, std::span<const std::string> names);

  [[nodiscard]] const std::string& name() const noexcept { return m_name; }
  /// Null when the library does not export it.
  [[nodiscard]] void* symbol(const char* name) const noexcept;
  /// Sets `function` to the symbol, or to null.
  template <class Function>
  bool find(Function*& function, const char* name) const noexcept {
    static_assert(std::is_function_v<Function>);
    function = reinterpret_cast<Function*>(symbol(name));
    return function != nullptr;
  }

 private:
  std::string m_name;
  void* m_handle = nullptr;
};

/// The sentence for a driver that lacks a function we cannot do without.
[[nodiscard]] std::string missing_function(std::string_view what, std::string_view function,
                                           std::string_view version);

}  // namespace disttune::devices
