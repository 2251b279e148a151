// Describing what is not built in: registered types, and what a type itself says (type_facts.hpp).
#include <string_view>

#include "describe.hpp"
#include "describe_registry.hpp"
#include "type_facts.hpp"

namespace disttune::python {
namespace {

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
    if (entry->known == Known::torch_device) return describe_torch_device(object);
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
  const std::shared_ptr<const TypeFacts> facts = facts_of(Py_TYPE(object));
  switch (facts->sort) {
    case Sort::enum_member:
      if (!describe_enum(object, *facts)) return false;
      remember_constant(object, m_out.view(start));
      return true;
    case Sort::dataclass:
      return describe_dataclass(object, *facts);
    case Sort::numpy_scalar:
      return describe_numpy_scalar(object, *facts);
    case Sort::builtin_subclass:
      return describe_builtin_subclass(object, *facts);
    case Sort::callable:
      return describe_callable(object);
    case Sort::other:
      break;
  }
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

bool Describer::describe_torch_device(PyObject* object) {
  static PyObject* type = PyUnicode_InternFromString("type");
  static PyObject* index = PyUnicode_InternFromString("index");
  const Ref kind = checked(PyObject_GetAttr(object, type));
  const Ref number = checked(PyObject_GetAttr(object, index));
  put_named("torch.device", 2);
  return described_field("", kind.get()) && described_field("", number.get());
}

bool Describer::describe_enum(PyObject* object, const TypeFacts& facts) {
  // The name, not the number: renumbering an enumeration changes no meaning.
  const Ref name = optional_attribute(object, "name");
  if (name && PyUnicode_Check(name.get())) {
    put_named(facts.name + "." + message_text(name.get()), 0);
    return true;
  }
  // A combination of flags that has no name of its own.
  const Ref value = checked(PyObject_GetAttrString(object, "value"));
  put_named(facts.name, 1);
  return described_field("", value.get());
}

bool Describer::describe_dataclass(PyObject* object, const TypeFacts& facts) {
  if (!facts.are_fields_known) return refuse(object, "its __dataclass_fields__ is no dict");
  std::vector<Ref> values;
  values.reserve(facts.fields.size());
  for (const Ref& field : facts.fields) {
    values.push_back(Ref::steal(PyObject_GetAttr(object, field.get())));
    if (!values.back()) return false;
  }
  put_named(facts.name, values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!described_field(utf8(facts.fields[i].get()), values[i].get())) return false;
  return true;
}

bool Describer::describe_numpy_scalar(PyObject* object, const TypeFacts& facts) {
  Ref item = checked(PyObject_CallMethod(object, "item", nullptr));
  // What has no Python number (longdouble, datetime64 …) is its own text.
  PyTypeObject* type = Py_TYPE(item.get());
  if (type != &PyBool_Type && type != &PyLong_Type && type != &PyFloat_Type &&
      type != &PyUnicode_Type && type != &PyBytes_Type && type != &PyComplex_Type)
    item = checked(PyObject_Str(object));
  put_named(facts.name, 1);
  return described_field("", item.get());
}

bool Describer::describe_builtin_subclass(PyObject* object, const TypeFacts& facts) {
  // A subclass may behave differently, so it is not its base's value: an OrderedDict is
  // `collections.OrderedDict({…})`, a named tuple has its fields' names.
  PyTypeObject* type = Py_TYPE(object);
  if (PyTuple_Check(object)) {
    const Ref fields = optional_attribute(reinterpret_cast<PyObject*>(type), "_fields");
    if (fields && PyTuple_Check(fields.get()) &&
        PyTuple_GET_SIZE(fields.get()) == PyTuple_GET_SIZE(object))
      return describe_named_tuple(object, fields.get(), facts);
  }
  const Ref plain = plain_copy(object);
  put_named(facts.name, 1);
  return described_field("", plain.get());
}

bool Describer::describe_named_tuple(PyObject* object, PyObject* fields, const TypeFacts& facts) {
  const Py_ssize_t count = PyTuple_GET_SIZE(object);
  put_named(facts.name, static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(fields, i);
    if (!PyUnicode_Check(name)) return refuse(object, "its _fields are no strings");
    if (!described_field(utf8(name), PyTuple_GET_ITEM(object, i))) return false;
  }
  return true;
}

}  // namespace disttune::python
