// What stands in the place of `run` of Triton's classes while a contextual call is active.
//
// The launch of a decided kernel is made shorter than Triton's own: the arguments are compared with
// those of a launch that was made before, and then the configuration's values are added and the
// launch is passed on. Whatever differs (an argument's type, dtype or device, a key's value, any
// attribute of the kernel or the configuration, a listener) is left to the Python part.
#pragma once

#include <Python.h>
#include <structmember.h>

namespace disttune::python {

/// Adds InterceptedRun and the functions around it. Throws ErrorSet.
void add_fast_launch(PyObject* module);

}  // namespace disttune::python
