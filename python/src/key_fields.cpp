#include "key_fields.hpp"

#include <algorithm>

#include "describe_registry.hpp"

namespace disttune::python {
namespace {

/// As a function's own code finds and calls it. Null with an exception set on error.
PyObject* call_named(PyObject* key_fn, const FunctionStep& step, PyObject* argument) {
  PyObject* name = step.name.get();
  PyObject* found = PyDict_GetItemWithError(PyFunction_GET_GLOBALS(key_fn), name);
  if (found == nullptr && PyErr_Occurred() == nullptr)
    found =
        PyDict_GetItemWithError(reinterpret_cast<PyFunctionObject*>(key_fn)->func_builtins, name);
  if (found == nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_SetObject(PyExc_NameError, name);
    return nullptr;
  }
  // In a key it is all the same: a torch.Size is described as the tuple that it would give.
  if (step.is_last && found == reinterpret_cast<PyObject*>(&PyTuple_Type) &&
      is_tuple(Py_TYPE(argument)))
    return Py_NewRef(argument);
  const Ref function = Ref::borrow(found);
  return PyObject_CallOneArg(function.get(), argument);
}

PyObject* take_step(const KeyStep& step, PyObject* from, PyObject* key_fn) {
  if (const auto* attribute = std::get_if<Attribute>(&step)) [[likely]]
    return attribute->get(from);
  if (const auto* item = std::get_if<ItemStep>(&step))
    return PyObject_GetItem(from, item->index.get());
  return call_named(key_fn, *std::get_if<FunctionStep>(&step), from);
}

}  // namespace

Ref KeyField::read(PyObject* argument, PyObject* key_fn) const {
  if (steps.empty()) return Ref::borrow(argument);
  Ref value;
  for (const KeyStep& step : steps)
    value = checked(take_step(step, value ? value.get() : argument, key_fn));
  return value;
}

bool ReadFunction::takes(Py_ssize_t positional, PyObject* keywords) const noexcept {
  if (!takes(std::max(positional, required))) return false;
  const auto given = [&](std::size_t parameter) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i)
      if (same_name(parameters[parameter].get(), PyTuple_GET_ITEM(keywords, i))) return true;
    return false;
  };
  Py_ssize_t known = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto position = static_cast<Py_ssize_t>(i);
    const bool by_name = given(i);
    known += static_cast<Py_ssize_t>(by_name);
    // Given twice, or not at all.
    if (position < positional ? by_name : position < required && !by_name) return false;
  }
  return more_keywords || known == PyTuple_GET_SIZE(keywords);
}

}  // namespace disttune::python
