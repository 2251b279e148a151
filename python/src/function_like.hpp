// Slots of compiled types whose objects stand in for functions: bound as methods, copied and
// pickled as functions are.
#pragma once

#include "object.hpp"

namespace disttune::python {

/// tp_descr_get: an instance's attribute look-up gives a bound method.
PyObject* bind_to(PyObject* self, PyObject* instance, PyObject* type);

/// A function is its own copy.
extern const PyMethodDef k_copy;
extern const PyMethodDef k_deepcopy;
/// Pickled by name: who unpickles it imports it.
extern const PyMethodDef k_reduce;

}  // namespace disttune::python
