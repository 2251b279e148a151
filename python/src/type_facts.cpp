#include "type_facts.hpp"

#include <string_view>

#include "recent_slots.hpp"

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

std::string lasting_type_name(PyTypeObject* type) {
  std::string name = type_name(type);
  if (name == "numpy.bool_") return "numpy.bool";  // NumPy 1
  for (const std::string_view main : {"__main__.", "__mp_main__."})
    if (name.starts_with(main)) return main_module_name() + "." + name.substr(main.size());
  return name;
}

bool is_enum(PyTypeObject* type) {
  static PyObject* base = imported("enum", "Enum").release();
  return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(base)) != 0;
}

bool is_numpy_scalar(const PyTypeObject* type) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    const auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (std::string_view(base->tp_name) == "numpy.generic") return true;
  }
  return false;
}

bool is_builtin_subclass(PyTypeObject* type) {
  for (PyTypeObject* base :
       {&PyLong_Type, &PyFloat_Type, &PyUnicode_Type, &PyBytes_Type, &PyTuple_Type, &PyList_Type,
        &PyDict_Type, &PySet_Type, &PyFrozenSet_Type})
    if (PyType_IsSubtype(type, base) != 0) return true;
  return false;
}

/// Neither class variables, nor arguments of __init__ alone, nor what `==` leaves out.
void take_fields(TypeFacts& facts, PyObject* fields) {
  static PyObject* ordinary = imported("dataclasses", "_FIELD").release();
  facts.are_fields_known = PyDict_Check(fields) != 0;
  if (!facts.are_fields_known) return;
  PyObject* name = nullptr;
  PyObject* field = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(fields, &at, &name, &field) != 0;) {
    const Ref kind = checked(PyObject_GetAttrString(field, "_field_type"));
    const Ref compared = checked(PyObject_GetAttrString(field, "compare"));
    if (kind.get() == ordinary && PyObject_IsTrue(compared.get()) == 1)
      facts.fields.push_back(Ref::borrow(name));
  }
}

TypeFacts look_at(PyTypeObject* type) {
  TypeFacts facts;
  facts.name = lasting_type_name(type);
  auto* object = reinterpret_cast<PyObject*>(type);
  const bool is_metaclass = PyType_IsSubtype(type, &PyType_Type) != 0;
  const Ref fields = is_metaclass ? Ref() : optional_attribute(object, "__dataclass_fields__");
  if (is_enum(type)) {
    facts.sort = Sort::enum_member;
  } else if (fields) {
    facts.sort = Sort::dataclass;
    take_fields(facts, fields.get());
  } else if (is_numpy_scalar(type)) {
    facts.sort = Sort::numpy_scalar;
  } else if (is_builtin_subclass(type)) {
    facts.sort = Sort::builtin_subclass;
  } else if (type->tp_call != nullptr) {
    facts.sort = Sort::callable;
  }
  return facts;
}

struct Recent {
  Ref type;
  unsigned int version = 0;
  std::shared_ptr<const TypeFacts> facts;
};
using Types = RecentSlots<Recent, 32>;

Types& recent() noexcept {
  // Leaked on purpose: it must outlive the interpreter's own clean-up.
  static auto* types = new Types;
  return *types;
}

}  // namespace

std::shared_ptr<const TypeFacts> facts_of(PyTypeObject* type) {
  Recent& known = recent()[type];
  auto* object = reinterpret_cast<PyObject*>(type);
  const unsigned int version = version_of(type);
  if (known.type.get() == object && version != 0 && known.version == version) return known.facts;
  auto facts = std::make_shared<const TypeFacts>(look_at(type));
  // Looking at attributes of a type gives it a version, if it can have one.
  if (const unsigned int now = version_of(type); now != 0)
    known = {Ref::borrow(object), now, facts};
  return facts;
}

}  // namespace disttune::python
