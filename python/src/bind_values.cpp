// disttune.Value, descriptions and canonical text.
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "describe.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::none:
      return "none";
    case Value::Kind::boolean:
      return "bool";
    case Value::Kind::integer:
      return "int";
    case Value::Kind::floating:
      return "float";
    case Value::Kind::string:
      return "str";
    case Value::Kind::bytes:
      return "bytes";
    case Value::Kind::tuple:
      return "tuple";
    case Value::Kind::list:
      return "list";
    case Value::Kind::dict:
      return "dict";
    case Value::Kind::set:
      return "set";
    case Value::Kind::named:
      return "named";
  }
  return "none";
}

/// Fields are (name, object) pairs; an empty name is positional.
Value named_value(std::string_view name, nb::object fields) {
  std::vector<std::pair<std::string, Value>> described;
  for (const nb::handle field : fields) {
    const auto pair = nb::cast<nb::tuple>(field);
    std::string field_name = nb::cast<std::string>(pair[0]);
    Value value = describe(nb::object(pair[1]).ptr(), field_name.empty() ? "field" : field_name,
                           Callables::describe);
    described.emplace_back(std::move(field_name), std::move(value));
  }
  return Value::named(name, described);
}

Value named(std::string_view name, const nb::args& positional, const nb::kwargs& fields) {
  std::vector<std::pair<std::string, Value>> described;
  for (const nb::handle value : positional)
    described.emplace_back("", describe(value.ptr(), "field"));
  for (const auto& [field, value] : fields)
    described.emplace_back(nb::cast<std::string>(field), describe(value.ptr(), "field"));
  return Value::named(name, described);
}

nb::object to_python(const Value& value) { return nb::steal(object_of(value).release()); }

}  // namespace

Ref wrap_value(const Value& value) { return Ref::steal(nb::cast(value).release().ptr()); }

const Value* unwrap_value(PyObject* object) noexcept {
  const Value* value = nullptr;
  return nb::try_cast<const Value*>(nb::handle(object), value, false) ? value : nullptr;
}

void bind_values(nb::module_& m) {
  nb::class_<Value>(m, "Value",
                    "An immutable value in canonical text: one spelling a value, the same in C++ "
                    "and Python, on every platform and in every process.")
      .def_static("named", &named_value, nb::arg("name"), nb::arg("fields") = nb::make_tuple(),
                  "A named value; fields are (name, object) pairs, an empty name is positional.")
      .def_prop_ro("text", [](const Value& v) { return v.text(); })
      .def_prop_ro("kind", &kind_name,
                   "none, bool, int, float, str, bytes, tuple, list, dict, set or named")
      .def_prop_ro(
          "name", [](const Value& v) { return v.name(); }, "The name of a named value.")
      .def_prop_ro(
          "items",
          [](const Value& v) {
            nb::list out;
            for (const Value& item : v.items()) out.append(item);
            return out;
          },
          "The items of a tuple, list or set.")
      .def_prop_ro(
          "fields",
          [](const Value& v) {
            nb::list out;
            for (const auto& [name, field] : v.fields()) out.append(nb::make_tuple(name, field));
            return out;
          },
          "The fields of a named value.")
      .def("python", &to_python,
           "The Python object of this value; named values inside it stay Values where the object "
           "is not known in this process.")
      .def("__str__", [](const Value& v) { return v.text(); })
      .def("__repr__",
           [](const Value& v) { return "disttune.Value(" + std::string(v.text()) + ")"; })
      .def("__hash__", [](const Value& v) { return std::hash<Value>{}(v); })
      .def("__reduce__",
           [](const Value& v) {
             return nb::make_tuple(nb::module_::import_("disttune").attr("parse"),
                                   nb::make_tuple(v.text()));
           })
      .def(nb::self == nb::self)
      .def(nb::self < nb::self);

  m.def(
      "parse", [](std::string_view text) { return Value::parse(text); }, nb::arg("text"),
      "Read one canonical value. TypeError, with the offset, for anything else.");
  m.def("named", &named, nb::arg("name"), nb::arg("args"), nb::arg("kwargs"),
        "A named value, such as a description returns: named('lib.Layout', 'row', pad=4).");
  m.def(
      "describe",
      [](nb::object object, bool entry) {
        return describe(object.ptr(), "value", entry ? Callables::describe : Callables::refuse);
      },
      nb::arg("object").none(), nb::arg("entry") = false,
      "The canonical value of an object. TypeError for what has none.");
  m.def(
      "canonical_text",
      [](nb::object object, bool entry) {
        return std::string(
            describe(object.ptr(), "value", entry ? Callables::describe : Callables::refuse)
                .text());
      },
      nb::arg("object").none(), nb::arg("entry") = false);
  m.def(
      "register_description",
      [](nb::object type, nb::object function) {
        register_description(type.ptr(), function.ptr());
      },
      nb::arg("type"), nb::arg("description"),
      "Say how objects of another library are described: `description(object)` returns something "
      "describable, such as `disttune.named(…)`. `type` is a type, or \"module.qualname\" of one "
      "that need not be imported. Subclasses are included.");
  m.def("set_function_describer",
        [](nb::object function) { set_function_describer(function.ptr()); });
}

}  // namespace disttune::python
