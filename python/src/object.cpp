#include "object.hpp"

#include <unistd.h>

namespace disttune::python {

void stand_still() noexcept {
  for (;;) ::pause();
}

std::string message_text(PyObject* object) noexcept {
  const Ref text = Ref::steal(PyObject_Str(object));
  if (text) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text.get(), &size);
    if (data != nullptr) return {data, static_cast<std::size_t>(size)};
  }
  PyErr_Clear();
  return "<no text>";
}

std::string type_name(PyTypeObject* type) noexcept {
  auto* object = reinterpret_cast<PyObject*>(type);
  const Ref module = Ref::steal(PyObject_GetAttrString(object, "__module__"));
  if (!module) PyErr_Clear();
  const Ref name = Ref::steal(PyObject_GetAttrString(object, "__qualname__"));
  if (!name) PyErr_Clear();
  const std::string qualified = name ? message_text(name.get()) : std::string(type->tp_name);
  if (!module || !PyUnicode_Check(module.get())) return qualified;
  const std::string where = message_text(module.get());
  return where == "builtins" ? qualified : where + "." + qualified;
}

Ref imported(const char* module, const char* attribute) {
  const Ref loaded = checked(PyImport_ImportModule(module));
  return checked(PyObject_GetAttrString(loaded.get(), attribute));
}

Ref optional_attribute(PyObject* object, const char* name) {
  Ref found = Ref::steal(PyObject_GetAttrString(object, name));
  if (!found) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw ErrorSet{};
    PyErr_Clear();
  }
  return found;
}

std::shared_ptr<PyObject> owned_by_any_thread(Ref object) {
  return {object.release(), [](PyObject* held) {
            if (held == nullptr || Py_IsInitialized() == 0) return;
            const Gil gil;
            Py_DECREF(held);
          }};
}

}  // namespace disttune::python
