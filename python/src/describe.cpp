#include "describe.hpp"

#include <optional>

#include "big_int.hpp"
#include "describe_registry.hpp"

namespace disttune::python {
namespace {

/// ['x'] or [3] for a path.
std::string subscript(PyObject* key) {
  const Ref text = Ref::steal(PyObject_Repr(key));
  if (!text) PyErr_Clear();
  std::string out = text ? message_text(text.get()) : type_name(Py_TYPE(key));
  if (out.size() > 60) out = type_name(Py_TYPE(key));
  return "[" + out + "]";
}

/// An int of one digit, read without a call: nearly every int in a key is one.
std::optional<std::int64_t> small_int(PyObject* object) noexcept {
#if PY_VERSION_HEX >= 0x030c0000
  auto* number = reinterpret_cast<PyLongObject*>(object);
  if (PyUnstable_Long_IsCompact(number)) return PyUnstable_Long_CompactValue(number);
#else
  const Py_ssize_t size = Py_SIZE(object);
  if (size == 0) return 0;
  const auto digit =
      static_cast<std::int64_t>(reinterpret_cast<PyLongObject*>(object)->ob_digit[0]);
  if (size == 1) return digit;
  if (size == -1) return -digit;
#endif
  return std::nullopt;
}

}  // namespace

bool Describer::refuse(PyObject* object, std::string_view why) {
  m_problem = "cannot describe an object of type " + type_name(Py_TYPE(object)) + " (" +
              std::string(why) + ")";
  return false;
}

void Describer::raise(std::string_view root) {
  if (PyErr_Occurred() != nullptr) return;
  std::string where(root);
  for (auto part = m_path.rbegin(); part != m_path.rend(); ++part) where += *part;
  PyErr_SetString(PyExc_TypeError, ("disttune: " + where + ": " + m_problem).c_str());
}

bool Describer::describe_int(PyObject* object) {
  if (const std::optional<std::int64_t> small = small_int(object); small) {
    m_out.put_word('i', *small);
    return true;
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) {
    m_out.put_word('i', static_cast<std::int64_t>(number));
    return true;
  }
  m_out.put_text('I', decimal_of(object));
  return true;
}

bool Describer::describe_str(PyObject* object) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == nullptr) {
    PyErr_Clear();
    return refuse(object, "not valid Unicode: it holds a lone surrogate; pass raw data as bytes");
  }
  m_out.put_text('s', {data, static_cast<std::size_t>(size)});
  return true;
}

bool Describer::describe_items(char tag, PyObject* const* items, Py_ssize_t count) {
  m_out.put_count(tag, static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (describe(items[i])) continue;
    m_path.push_back("[" + std::to_string(i) + "]");
    return false;
  }
  return true;
}

bool Describer::describe_dict(PyObject* object) {
  std::vector<std::size_t> begins;
  begins.reserve(static_cast<std::size_t>(PyDict_GET_SIZE(object)));
  m_out.put_count('{', begins.capacity());
  const std::size_t start = m_out.size();
  // A registered description may run Python code that changes the dict: walk a snapshot.
  const Ref items = checked(PyDict_Items(object));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* pair = PyList_GET_ITEM(items.get(), i);
    PyObject* key = PyTuple_GET_ITEM(pair, 0);
    begins.push_back(m_out.size());
    if (!describe(key)) {
      m_path.push_back(" (its key " + subscript(key) + ")");
      return false;
    }
    if (!describe(PyTuple_GET_ITEM(pair, 1))) {
      m_path.push_back(subscript(key));
      return false;
    }
  }
  sort_items(m_out, start, begins.data(), begins.size());
  return true;
}

bool Describer::describe_set(PyObject* object) {
  const Ref items = checked(PySequence_List(object));
  const auto count = static_cast<std::size_t>(PyList_GET_SIZE(items.get()));
  std::vector<std::size_t> begins(count);
  m_out.put_count('<', count);
  const std::size_t start = m_out.size();
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i));
    begins[i] = m_out.size();
    if (describe(item)) continue;
    m_path.push_back(" (its item " + subscript(item) + ")");
    return false;
  }
  sort_items(m_out, start, begins.data(), count);
  return true;
}

bool Describer::describe(PyObject* object) {
  // In the order of how often keys hold them: sizes, dtypes, names.
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyLong_Type) return describe_int(object);
  if (is_tuple(type)) return describe_tuple(object);
  if (const std::string_view bytes = constant_bytes(object); !bytes.empty()) {
    m_out.put_raw(bytes);
    return true;
  }
  if (type == &PyUnicode_Type) return describe_str(object);
  if (object == Py_None) return m_out.put('N'), true;
  if (object == Py_True) return m_out.put('T'), true;
  if (object == Py_False) return m_out.put('F'), true;
  if (type == &PyFloat_Type) {
    m_out.put_word('f', float_bits(PyFloat_AS_DOUBLE(object)));
    return true;
  }
  if (!enter(object)) return false;
  const bool done = describe_other(object);
  --m_depth;
  return done;
}

bool Describer::enter(PyObject* object) {
  // Text can be parsed back to a depth of 200 values.
  constexpr int k_deepest = 190;
  if (++m_depth <= k_deepest) return true;
  --m_depth;
  return refuse(object, "it contains itself, or is nested too deeply");
}

bool Describer::describe_tuple(PyObject* object) {
  if (!enter(object)) return false;
  const bool done = describe_items('(', reinterpret_cast<PyTupleObject*>(object)->ob_item,
                                   PyTuple_GET_SIZE(object));
  --m_depth;
  return done;
}

bool Describer::describe_other(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyList_Type) {
    // A snapshot, for the same reason as with dicts.
    const Ref items = checked(PyList_AsTuple(object));
    return describe_items('[', reinterpret_cast<PyTupleObject*>(items.get())->ob_item,
                          PyTuple_GET_SIZE(items.get()));
  }
  if (type == &PyDict_Type) return describe_dict(object);
  if (type == &PySet_Type || type == &PyFrozenSet_Type) return describe_set(object);
  if (type == &PyBytes_Type) {
    m_out.put_text('b',
                   {PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object))});
    return true;
  }
  if (const Value* value = unwrap_value(object); value != nullptr) {
    append_compact(m_out, *value);
    return true;
  }
  return describe_foreign(object);
}

Value describe(PyObject* object, std::string_view root, Callables callables) {
  Buffer buffer;
  Describer describer(buffer, callables);
  if (!describer.describe(object)) {
    describer.raise(root);
    throw ErrorSet{};
  }
  try {
    return value_of(buffer.view());
  } catch (const InvalidValue& e) {
    PyErr_SetString(PyExc_TypeError, (std::string(root) + ": " + e.what()).c_str());
    throw ErrorSet{};
  }
}

}  // namespace disttune::python
