#include "function_like.hpp"

#include "errors.hpp"

namespace disttune::python {
namespace {

PyObject* itself(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* reduce(PyObject* self, PyObject*) {
  try {
    static PyObject* find = imported("disttune._function", "importable_name").release();
    return checked(PyObject_CallOneArg(find, self)).release();
  } catch (...) {
    set_from_current_exception();
    return nullptr;
  }
}

}  // namespace

PyObject* bind_to(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

constinit const PyMethodDef k_copy = {"__copy__", itself, METH_NOARGS, nullptr};
constinit const PyMethodDef k_deepcopy = {"__deepcopy__", itself, METH_O, nullptr};
constinit const PyMethodDef k_reduce = {"__reduce__", reduce, METH_NOARGS, nullptr};

}  // namespace disttune::python
