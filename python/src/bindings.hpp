// The parts of the module, each in a file of its own.
#pragma once

#include "object.hpp"

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "disttune/device.hpp"
#include "disttune/group.hpp"
#include "disttune/record.hpp"

namespace disttune::python {

void bind_values(nanobind::module_& m);
void bind_records(nanobind::module_& m);
void bind_devices(nanobind::module_& m);
void bind_groups(nanobind::module_& m);
void bind_session(nanobind::module_& m);
void bind_attempts(nanobind::module_& m);
void bind_contextual(nanobind::module_& m);
void bind_launcher(nanobind::module_& m);

/// The C++ group of a disttune.ProcessGroup object, or null; valid while the object is.
[[nodiscard]] ProcessGroup* group_pointer(PyObject* object) noexcept;
/// The C++ device of a disttune.Device object, owning a reference to it. Throws ErrorSet.
[[nodiscard]] std::shared_ptr<Device> device_of(PyObject* object);

}  // namespace disttune::python
