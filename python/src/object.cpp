#include "object.hpp"

#include <unistd.h>

namespace disttune::python {

void stand_still() noexcept {
  for (;;) ::pause();
}

namespace {

constexpr std::string_view k_replacement = "\xEF\xBF\xBD";  // U+FFFD

/// `bytes` are UTF-8 with surrogates, each of which takes as many bytes as what replaces it.
std::string printable(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool surrogate = bytes[i] == '\xED' && static_cast<unsigned char>(bytes[i + 1]) >= 0xA0;
    if (!surrogate && bytes[i] != '\0') {
      out += bytes[i];
      continue;
    }
    out += k_replacement;
    if (surrogate) i += 2;
  }
  return out;
}

}  // namespace

void Ref::drop_last(PyObject* object) noexcept {
  if (interpreter_is_gone()) return;  // static objects are destroyed after it
  if (PyGILState_Check() == 0) stand_still();
  or_stand_still([&] { Py_DECREF(object); });
}

std::string message_text(PyObject* object) noexcept {
  const Ref text = Ref::steal(or_stand_still([&] { return PyObject_Str(object); }));
  const Ref bytes =
      text ? Ref::steal(PyUnicode_AsEncodedString(text.get(), "utf-8", "surrogatepass")) : Ref{};
  if (bytes)
    return printable(
        {PyBytes_AS_STRING(bytes.get()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.get()))});
  PyErr_Clear();
  return "<no text>";
}

std::string type_name(PyTypeObject* type) noexcept {
  auto* object = reinterpret_cast<PyObject*>(type);
  const auto attribute = [&](const char* of_type) {
    Ref found = Ref::steal(or_stand_still([&] { return PyObject_GetAttrString(object, of_type); }));
    if (!found) PyErr_Clear();
    return found;
  };
  const Ref module = attribute("__module__");
  const Ref name = attribute("__qualname__");
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
