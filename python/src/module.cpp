// disttune._core: the compiled part of the Python package.
#include <nanobind/nanobind.h>

#include "active_call.hpp"
#include "bindings.hpp"
#include "disttune/version.hpp"
#include "errors.hpp"
#include "fast_launch.hpp"
#include "outer_function.hpp"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  using namespace disttune::python;
  // Devices and groups live in caches of the package until the process ends.
  nb::set_leak_warnings(false);
  m.doc() = "The compiled part of disttune.";
  m.attr("__version__") = disttune::k_version;
  try {
    add_error_classes(m.ptr());
    nb::register_exception_translator([](const std::exception_ptr& error, void*) {
      if (!error) stand_still();  // none of C++: Python ends this thread
      try {
        std::rethrow_exception(error);
      } catch (...) {
        set_from_current_exception();
      }
    });
    bind_values(m);
    bind_records(m);
    bind_devices(m);
    bind_groups(m);
    bind_session(m);
    bind_attempts(m);
    bind_contextual(m);
    add_active_call(m.ptr());
    add_fast_launch(m.ptr());
    add_outer_function(m.ptr());
    bind_launcher(m);
  } catch (const ErrorSet&) {
    throw nb::python_error();
  }
}
