// Describing what is not built in: registered types, enum members, dataclasses, NumPy scalars,
// subclasses of built-in types, functions.
#include <string_view>
#include <utility>

#include "describe.hpp"
#include "describe_registry.hpp"

namespace disttune::python {
namespace {

/// The main module's name: the same in the program, in its spawned workers and when imported.
std::string main_module_name() {
  const Ref main = checked(PyImport_ImportModule("__main__"));
  if (const Ref spec = optional_attribute(main.get(), "__spec__"); spec && spec.get() != Py_None) {
    const Ref attribute = checked(PyObject_GetAttrString(spec.get(), "name"));
    const std::string name = message_text(attribute.get());
    constexpr std::string_view k_suffix = ".__main__";
    return name.size() > k_suffix.size() && name.ends_with(k_suffix)
               ? name.substr(0, name.size() - k_suffix.size())
               : name;
  }
  const Ref file = optional_attribute(main.get(), "__file__");
  if (!file || !PyUnicode_Check(file.get())) return "__main__";
  std::string path(utf8(file.get()));
  path = path.substr(path.rfind('/') + 1);
  return path.substr(0, path.rfind('.'));
}

/// The qualified name of a type as it is written into keys.
std::string lasting_type_name(PyTypeObject* type) {
  std::string name = type_name(type);
  for (const std::string_view main : {"__main__.", "__mp_main__."})
    if (name.starts_with(main)) return main_module_name() + "." + name.substr(main.size());
  return name;
}

bool is_enum_member(PyObject* object) {
  static PyObject* base = imported("enum", "Enum").release();
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(base)) != 0;
}

bool is_numpy_scalar(PyObject* object) {
  PyObject* mro = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    const auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (std::string_view(base->tp_name) == "numpy.generic") return true;
  }
  return false;
}

bool is_builtin_subclass(PyObject* object) {
  return PyLong_Check(object) || PyFloat_Check(object) || PyUnicode_Check(object) ||
         PyBytes_Check(object) || PyTuple_Check(object) || PyList_Check(object) ||
         PyDict_Check(object) || PyAnySet_Check(object);
}

/// The built-in value that a subclass's object holds.
Ref plain_copy(PyObject* object) {
  if (PyLong_Check(object)) return checked(PyLong_Type.tp_as_number->nb_int(object));
  if (PyFloat_Check(object)) return checked(PyFloat_FromDouble(PyFloat_AS_DOUBLE(object)));
  if (PyUnicode_Check(object)) return checked(PyUnicode_FromObject(object));
  if (PyBytes_Check(object))
    return checked(PyBytes_FromStringAndSize(PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)));
  if (PyTuple_Check(object)) {
    Ref out = checked(PyTuple_New(PyTuple_GET_SIZE(object)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      PyTuple_SET_ITEM(out.get(), i, Py_NewRef(PyTuple_GET_ITEM(object, i)));
    return out;
  }
  if (PyList_Check(object)) return checked(PyList_GetSlice(object, 0, PyList_GET_SIZE(object)));
  if (PyDict_Check(object)) {
    Ref out = checked(PyDict_New());
    checked(PyDict_Update(out.get(), object));
    return out;
  }
  return checked(PyFrozenSet_New(object));
}

/// The text of the exception that is set; clears it.
std::string take_message() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  std::string text = value != nullptr ? message_text(value) : "cannot be described";
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return text;
}

std::string how_to_register(PyObject* object) {
  return "register a description with disttune.register_description(" + type_name(Py_TYPE(object)) +
         ", fn)";
}

}  // namespace

void Describer::put_named(std::string_view name, std::size_t fields) {
  m_out.put_text('n', name);
  const auto count = static_cast<std::uint32_t>(fields);
  m_out.put_raw({reinterpret_cast<const char*>(&count), sizeof count});
}

bool Describer::described_field(std::string_view name, PyObject* value) {
  const auto size = static_cast<std::uint32_t>(name.size());
  m_out.put_raw({reinterpret_cast<const char*>(&size), sizeof size});
  m_out.put_raw(name);
  if (describe(value)) return true;
  if (!name.empty()) m_path.push_back("." + std::string(name));
  return false;
}

bool Describer::describe_foreign(PyObject* object) {
  const std::size_t start = m_out.size();
  if (const std::string_view bytes = recalled_constant(object); !bytes.empty()) {
    m_out.put_raw(bytes);
    return true;
  }
  if (const TypeEntry* entry = registered_type(Py_TYPE(object)); entry != nullptr) {
    if (entry->known == Known::torch_size && PyTuple_Check(object))
      return describe_items('(', reinterpret_cast<PyTupleObject*>(object)->ob_item,
                            PyTuple_GET_SIZE(object));
    if (entry->known == Known::constant_by_str) {
      put_named(message_text(object), 0);
      remember_constant(object, m_out.view(start));
      return true;
    }
    const Ref function = entry->function;
    const Ref described = Ref::steal(PyObject_CallOneArg(function.get(), object));
    return describe_result(object, described.get());
  }
  if (PyComplex_CheckExact(object)) {
    put_named("complex", 2);
    const Ref real = checked(PyFloat_FromDouble(PyComplex_RealAsDouble(object)));
    const Ref imaginary = checked(PyFloat_FromDouble(PyComplex_ImagAsDouble(object)));
    return described_field("", real.get()) && described_field("", imaginary.get());
  }
  if (is_enum_member(object)) {
    if (!describe_enum(object)) return false;
    remember_constant(object, m_out.view(start));
    return true;
  }
  if (!PyType_Check(object))
    if (const Ref fields = optional_attribute(reinterpret_cast<PyObject*>(Py_TYPE(object)),
                                              "__dataclass_fields__");
        fields)
      return describe_dataclass(object, fields.get());
  if (is_numpy_scalar(object)) return describe_numpy_scalar(object);
  if (is_builtin_subclass(object)) return describe_builtin_subclass(object);
  if (PyCallable_Check(object) != 0) return describe_callable(object);
  return refuse(object, how_to_register(object));
}

bool Describer::describe_callable(PyObject* object) {
  if (m_callables == Callables::refuse) {
    const bool is_code = PyFunction_Check(object) || PyCFunction_Check(object) ||
                         PyMethod_Check(object) || PyType_Check(object);
    return refuse(object,
                  "a callable says nothing that could be compared later; put what it depends on "
                  "into the key instead" +
                      (is_code ? std::string() : "; or " + how_to_register(object)));
  }
  if (!PyFunction_Check(object) || function_describer() == nullptr)
    return refuse(object,
                  "of callables only plain functions and lambdas are known, by their "
                  "source; " +
                      how_to_register(object));
  const Ref described = Ref::steal(PyObject_CallOneArg(function_describer(), object));
  return describe_result(object, described.get());
}

bool Describer::describe_result(PyObject* object, PyObject* described) {
  if (described == nullptr) {
    // A TypeError is the answer "cannot be described": it is given again with the path.
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    m_problem = take_message();
    return false;
  }
  if (described == object) return refuse(object, "its description is the object itself");
  return describe(described);
}

bool Describer::describe_enum(PyObject* object) {
  // The name, not the number: renumbering an enumeration changes no meaning.
  const std::string type = lasting_type_name(Py_TYPE(object));
  const Ref name = optional_attribute(object, "name");
  if (name && PyUnicode_Check(name.get())) {
    put_named(type + "." + message_text(name.get()), 0);
    return true;
  }
  // A combination of flags that has no name of its own.
  const Ref value = checked(PyObject_GetAttrString(object, "value"));
  put_named(type, 1);
  return described_field("", value.get());
}

bool Describer::describe_dataclass(PyObject* object, PyObject* fields) {
  if (!PyDict_Check(fields)) return refuse(object, "its __dataclass_fields__ is no dict");
  static PyObject* ordinary = imported("dataclasses", "_FIELD").release();
  std::vector<std::pair<Ref, Ref>> values;
  PyObject* name = nullptr;
  PyObject* field = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(fields, &at, &name, &field) != 0;) {
    // Neither class variables, nor arguments of __init__ alone, nor what `==` leaves out.
    const Ref kind = checked(PyObject_GetAttrString(field, "_field_type"));
    const Ref compared = checked(PyObject_GetAttrString(field, "compare"));
    if (kind.get() == ordinary && PyObject_IsTrue(compared.get()) == 1)
      values.emplace_back(Ref::borrow(name), Ref{});
  }
  for (auto& [field_name, value] : values) {
    value = Ref::steal(PyObject_GetAttr(object, field_name.get()));
    if (!value) return false;
  }
  put_named(lasting_type_name(Py_TYPE(object)), values.size());
  for (const auto& [field_name, value] : values)
    if (!described_field(utf8(field_name.get()), value.get())) return false;
  return true;
}

bool Describer::describe_numpy_scalar(PyObject* object) {
  std::string name = type_name(Py_TYPE(object));
  if (name == "numpy.bool_") name = "numpy.bool";  // NumPy 1
  Ref item = checked(PyObject_CallMethod(object, "item", nullptr));
  // What has no Python number (longdouble, datetime64 …) is its own text.
  PyTypeObject* type = Py_TYPE(item.get());
  if (type != &PyBool_Type && type != &PyLong_Type && type != &PyFloat_Type &&
      type != &PyUnicode_Type && type != &PyBytes_Type && type != &PyComplex_Type)
    item = checked(PyObject_Str(object));
  put_named(name, 1);
  return described_field("", item.get());
}

bool Describer::describe_builtin_subclass(PyObject* object) {
  // A subclass may behave differently, so it is not its base's value: an OrderedDict is
  // `collections.OrderedDict({…})`, a named tuple has its fields' names.
  PyTypeObject* type = Py_TYPE(object);
  if (PyTuple_Check(object)) {
    const Ref fields = optional_attribute(reinterpret_cast<PyObject*>(type), "_fields");
    if (fields && PyTuple_Check(fields.get()) &&
        PyTuple_GET_SIZE(fields.get()) == PyTuple_GET_SIZE(object))
      return describe_named_tuple(object, fields.get());
  }
  const Ref plain = plain_copy(object);
  put_named(lasting_type_name(type), 1);
  return described_field("", plain.get());
}

bool Describer::describe_named_tuple(PyObject* object, PyObject* fields) {
  const Py_ssize_t count = PyTuple_GET_SIZE(object);
  put_named(lasting_type_name(Py_TYPE(object)), static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(fields, i);
    if (!PyUnicode_Check(name)) return refuse(object, "its _fields are no strings");
    if (!described_field(utf8(name), PyTuple_GET_ITEM(object, i))) return false;
  }
  return true;
}

}  // namespace disttune::python
