#include "recent_key.hpp"

#include <cstring>

#include "compact.hpp"
#include "describe_registry.hpp"

namespace disttune::python {
namespace {

bool is_tuple(PyTypeObject* type) noexcept {
  return type == &PyTuple_Type || type == torch_size_type();
}

bool equal_ints(PyObject* a, PyObject* b) noexcept {
#if PY_VERSION_HEX >= 0x030c0000
  auto* x = reinterpret_cast<PyLongObject*>(a);
  auto* y = reinterpret_cast<PyLongObject*>(b);
  return PyUnstable_Long_IsCompact(x) && PyUnstable_Long_IsCompact(y) &&
         PyUnstable_Long_CompactValue(x) == PyUnstable_Long_CompactValue(y);
#else
  const Py_ssize_t size = Py_SIZE(a);
  const auto digits = static_cast<std::size_t>(size < 0 ? -size : size);
  return size == Py_SIZE(b) &&
         std::memcmp(reinterpret_cast<PyLongObject*>(a)->ob_digit,
                     reinterpret_cast<PyLongObject*>(b)->ob_digit, digits * sizeof(digit)) == 0;
#endif
}

}  // namespace

bool RecentKey::equal(PyObject* known, PyObject* key) noexcept {
  if (known == key) return true;
  PyTypeObject* type = Py_TYPE(known);
  // A torch.Size is described as the tuple it is.
  if (is_tuple(type)) {
    const Py_ssize_t size = PyTuple_GET_SIZE(known);
    if (!is_tuple(Py_TYPE(key)) || PyTuple_GET_SIZE(key) != size) return false;
    for (Py_ssize_t i = 0; i < size; ++i)
      if (!equal(PyTuple_GET_ITEM(known, i), PyTuple_GET_ITEM(key, i))) return false;
    return true;
  }
  if (type != Py_TYPE(key)) return false;
  if (type == &PyLong_Type) return equal_ints(known, key);
  if (type == &PyUnicode_Type) return PyUnicode_Compare(known, key) == 0;
  if (type == &PyFloat_Type)
    return float_bits(PyFloat_AS_DOUBLE(known)) == float_bits(PyFloat_AS_DOUBLE(key));
  return false;  // a constant, or a bool: one object each
}

bool RecentKey::can_be_kept(PyObject* key) noexcept {
  PyTypeObject* type = Py_TYPE(key);
  if (is_tuple(type)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (!can_be_kept(PyTuple_GET_ITEM(key, i))) return false;
    return true;
  }
  constexpr Py_ssize_t k_longest_text = 256;
  if (type == &PyUnicode_Type) return PyUnicode_GET_LENGTH(key) <= k_longest_text;
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || key == Py_None ||
         !constant_bytes(key).empty();
}

void RecentKey::remember(PyObject* key, std::uint64_t place, const ChoiceTable& table,
                         Choice* choice) {
  if (!can_be_kept(key)) return;
  m_key = Ref::borrow(key);
  m_place = place;
  m_generation = table.generation();
  m_choice = choice;
}

}  // namespace disttune::python
