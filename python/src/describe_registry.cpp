#include "describe_registry.hpp"

#include <unordered_map>

#include "describe.hpp"
#include "recent_slots.hpp"

namespace disttune::python {
namespace {

struct Constant {
  Ref object;
  std::string bytes;
};
constexpr std::size_t k_most_constants = 1U << 16U;

// All leaked on purpose: the objects must outlive the interpreter's own clean-up.
std::unordered_map<PyObject*, Constant>& constants() {
  static auto* table = new std::unordered_map<PyObject*, Constant>;
  return *table;
}
std::unordered_map<std::string, PyObject*>& constants_by_bytes() {
  static auto* table = new std::unordered_map<std::string, PyObject*>;
  return *table;
}
std::unordered_map<PyTypeObject*, TypeEntry>& types() {
  static auto* table = new std::unordered_map<PyTypeObject*, TypeEntry>;
  return *table;
}
/// Registered by name, for types that may never be imported.
std::unordered_map<std::string, Ref>& names() {
  static auto* table = new std::unordered_map<std::string, Ref>;
  return *table;
}
Ref& functions() {
  static auto* function = new Ref;
  return *function;
}

const TypeEntry* remember_type(PyTypeObject* type, Known known, PyObject* function) {
  TypeEntry entry{Ref::borrow(reinterpret_cast<PyObject*>(type)), known, Ref::borrow(function)};
  return &types().insert_or_assign(type, std::move(entry)).first->second;
}

bool is_plain(PyObject* type) noexcept {
  for (PyTypeObject* plain :
       {&PyLong_Type, &PyBool_Type, &PyFloat_Type, &PyUnicode_Type, &PyBytes_Type, &PyTuple_Type,
        &PyList_Type, &PyDict_Type, &PySet_Type, &PyFrozenSet_Type, Py_TYPE(Py_None),
        &PyBaseObject_Type, &PyType_Type})
    if (type == reinterpret_cast<PyObject*>(plain)) return true;
  return false;
}

/// What a warm call looks at. The objects and texts belong to `constants`.
struct Recent {
  PyObject* object = nullptr;
  std::string_view bytes;
};
RecentSlots<Recent, 256> g_recent;

PyTypeObject* g_torch_size = nullptr;

}  // namespace

const TypeEntry* registered_type(PyTypeObject* type) {
  if (const auto found = types().find(type); found != types().end()) return &found->second;
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (base == &PyBaseObject_Type) break;
    if (const auto found = types().find(base); found != types().end()) return &found->second;
    const std::string name = type_name(base);
    // A base is remembered, the type at hand is not: classes can be made without end.
    if (const auto found = names().find(name); found != names().end())
      return remember_type(base, Known::described_by, found->second.get());
    if (name == "torch.Size") {
      g_torch_size = base;  // owned by the entry
      return remember_type(base, Known::torch_size, nullptr);
    }
    if (name == "torch.device") return remember_type(base, Known::torch_device, nullptr);
    if (name == "torch.dtype") return remember_type(base, Known::constant_by_str, nullptr);
  }
  return nullptr;
}

bool is_tuple(const PyTypeObject* type) noexcept {
  return type == &PyTuple_Type || type == g_torch_size;
}

std::string_view constant_bytes(PyObject* object) noexcept {
  const Recent& recent = g_recent[object];
  return recent.object == object ? recent.bytes : std::string_view{};
}

std::string_view recalled_constant(PyObject* object) noexcept {
  const auto known = constants().find(object);
  if (known == constants().end()) return {};
  g_recent[object] = {object, known->second.bytes};
  return known->second.bytes;
}

void remember_constant(PyObject* object, std::string_view bytes) {
  auto known = constants().find(object);
  if (known == constants().end()) {
    if (constants().size() >= k_most_constants) return;
    known = constants().emplace(object, Constant{Ref::borrow(object), std::string(bytes)}).first;
    constants_by_bytes().emplace(std::string(bytes), object);
  }
  g_recent[object] = {object, known->second.bytes};
}

PyObject* constant_of(std::string_view bytes) {
  const auto found = constants_by_bytes().find(std::string(bytes));
  return found == constants_by_bytes().end() ? nullptr : found->second;
}

PyObject* function_describer() noexcept { return functions().get(); }
void set_function_describer(PyObject* function) { functions() = Ref::borrow(function); }

void register_description(PyObject* type, PyObject* function) {
  if (PyCallable_Check(function) == 0) {
    PyErr_Format(PyExc_TypeError,
                 "disttune: register_description: the description must be a callable, not %R",
                 function);
    throw ErrorSet{};
  }
  if (PyUnicode_Check(type)) {
    const std::string name(utf8(type));
    std::erase_if(types(), [&](const auto& entry) { return type_name(entry.first) == name; });
    names().insert_or_assign(name, Ref::borrow(function));
    return;
  }
  if (!PyType_Check(type)) {
    PyErr_Format(PyExc_TypeError,
                 "disttune: register_description: %R is neither a type nor the qualified name of "
                 "one (such as 'torch.device')",
                 type);
    throw ErrorSet{};
  }
  if (is_plain(type)) {
    PyErr_Format(PyExc_ValueError, "disttune: register_description: %R has its description already",
                 type);
    throw ErrorSet{};
  }
  remember_type(reinterpret_cast<PyTypeObject*>(type), Known::described_by, function);
}

}  // namespace disttune::python
