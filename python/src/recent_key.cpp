#include "recent_key.hpp"

#include <cstring>

#include "compact.hpp"
#include "describe_registry.hpp"

namespace disttune::python {
namespace {

bool equal_ints(PyObject* a, PyObject* b) noexcept {
#if PY_VERSION_HEX >= 0x030c0000
  auto* x = reinterpret_cast<PyLongObject*>(a);
  auto* y = reinterpret_cast<PyLongObject*>(b);
  return PyUnstable_Long_IsCompact(x) && PyUnstable_Long_IsCompact(y) &&
         PyUnstable_Long_CompactValue(x) == PyUnstable_Long_CompactValue(y);
#else
  const Py_ssize_t size = Py_SIZE(a);
  if (size != Py_SIZE(b)) return false;
  const auto* x = reinterpret_cast<PyLongObject*>(a)->ob_digit;
  const auto* y = reinterpret_cast<PyLongObject*>(b)->ob_digit;
  const auto digits = static_cast<std::size_t>(size < 0 ? -size : size);
  return digits == 1 ? x[0] == y[0] : std::memcmp(x, y, digits * sizeof(digit)) == 0;
#endif
}

/// Of two different objects, of which the known one is no tuple.
bool equal_leaves(PyObject* known, PyObject* object) noexcept {
  PyTypeObject* type = Py_TYPE(known);
  if (type != Py_TYPE(object)) return false;
  if (type == &PyLong_Type) return equal_ints(known, object);
  if (type == &PyUnicode_Type) return PyUnicode_Compare(known, object) == 0;
  if (type == &PyFloat_Type)
    return float_bits(PyFloat_AS_DOUBLE(known)) == float_bits(PyFloat_AS_DOUBLE(object));
  return false;  // a constant, or a bool: one object each
}

bool equal_tuples(PyObject* known, PyObject* object) noexcept;

bool equal(PyObject* known, PyObject* object) noexcept {
  if (known == object) return true;
  return is_tuple(Py_TYPE(known)) ? equal_tuples(known, object) : equal_leaves(known, object);
}

/// A torch.Size is described as the tuple it is.
bool equal_tuples(PyObject* known, PyObject* object) noexcept {
  const Py_ssize_t size = PyTuple_GET_SIZE(known);
  if (!is_tuple(Py_TYPE(object)) || PyTuple_GET_SIZE(object) != size) return false;
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!equal(PyTuple_GET_ITEM(known, i), PyTuple_GET_ITEM(object, i))) return false;
  return true;
}

bool can_be_kept(PyObject* object) noexcept {
  PyTypeObject* type = Py_TYPE(object);
  if (is_tuple(type)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (!can_be_kept(PyTuple_GET_ITEM(object, i))) return false;
    return true;
  }
  constexpr Py_ssize_t k_longest_text = 256;
  if (type == &PyUnicode_Type) return PyUnicode_GET_LENGTH(object) <= k_longest_text;
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
         object == Py_None || !constant_bytes(object).empty();
}

}  // namespace

bool RecentKey::equals(const KeyObjects& key) const noexcept {
  if (m_objects.size() != key.size() || m_are_items != key.are_items) return false;
  for (std::size_t i = 0; i < m_objects.size(); ++i)
    if (!equal(m_objects[i].get(), key[i])) return false;
  return true;
}

void RecentKey::remember(const KeyObjects& key, std::uint64_t place, const ChoiceTable& table,
                         Choice* choice) {
  for (std::size_t i = 0; i < key.size(); ++i)
    if (!can_be_kept(key[i])) return;
  m_objects.resize(key.size());
  for (std::size_t i = 0; i < key.size(); ++i) m_objects[i] = Ref::borrow(key[i]);
  m_are_items = key.are_items;
  m_place = place;
  m_generation = table.generation();
  m_choice = choice;
}

}  // namespace disttune::python
