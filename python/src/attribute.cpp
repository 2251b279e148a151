#include "attribute.hpp"

namespace disttune::python {

PyObject* Attribute::look_up(PyObject* object) const {
  if (m_called) return PyObject_CallMethodNoArgs(object, m_name.get());
  PyTypeObject* type = Py_TYPE(object);
  m_type = type;
  m_getter = nullptr;
  if (type->tp_getattro == PyObject_GenericGetAttr) {
    const Ref found = Ref::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), m_name.get()));
    if (!found) PyErr_Clear();
    // Of a class, a getset gives itself; looking it up has given it a version.
    if (found && Py_IS_TYPE(found.get(), &PyGetSetDescr_Type) && version_of(type) != 0) {
      PyGetSetDef* getter = reinterpret_cast<PyGetSetDescrObject*>(found.get())->d_getset;
      if (getter->get != nullptr) {
        m_version = version_of(type);
        m_descriptor = found;
        m_getter = getter;
      }
    }
  }
  return PyObject_GetAttr(object, m_name.get());
}

}  // namespace disttune::python
