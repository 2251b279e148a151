// One attribute that is read again and again, mostly of objects of one type.
#pragma once

#include "object.hpp"

namespace disttune::python {

/// Where objects of the same type come again, and the attribute is a getter written in C (a
/// tensor's shape), the getter is called directly.
class Attribute {
 public:
  /// `called`: the attribute is a method, and what it returns is meant. `name` is interned.
  explicit Attribute(Ref name, bool called = false) : m_name(std::move(name)), m_called(called) {}
  /// Null with an exception set on error.
  [[nodiscard]] PyObject* get(PyObject* object) const {
    PyTypeObject* type = Py_TYPE(object);
    if (type != m_type) [[unlikely]]
      return look_up(object);
    if (m_getter == nullptr) return PyObject_GetAttr(object, m_name.get());
    if (version_of(type) != m_version) [[unlikely]]
      return look_up(object);
    return m_getter->get(object, m_getter->closure);
  }

 private:
  [[nodiscard, gnu::noinline]] PyObject* look_up(PyObject* object) const;

  Ref m_name;
  bool m_called;
  // Guarded by the interpreter lock. Of the type last seen, null: none, and its getter, null: ask
  // Python. While the version is the same, type and getter are those that were found.
  mutable PyTypeObject* m_type = nullptr;
  mutable unsigned int m_version = 0;
  mutable Ref m_descriptor;
  mutable PyGetSetDef* m_getter = nullptr;
};

}  // namespace disttune::python
