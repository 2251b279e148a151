// A device behind a queue of another library's: torch_npu hands commands to a thread of its own,
// which puts them on the stream. What disttune put on the stream directly would overtake them, so
// the queue is drained first.
#pragma once

#include "object.hpp"

#include <memory>

#include "disttune/device.hpp"

namespace disttune::python {

/// `device` with `drain()` (a Python callable) called before everything that is put on the stream.
/// Opening the gate takes no interpreter lock and drains nothing: all that belongs behind the gate
/// was drained with the marks. Holds the interpreter lock.
[[nodiscard]] std::shared_ptr<Device> drained(std::shared_ptr<Device> device, PyObject* drain);

}  // namespace disttune::python
