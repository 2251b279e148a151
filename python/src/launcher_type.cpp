// The type object of tuned functions, and how one is made from Python.
#include "launcher.hpp"

#include <structmember.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings.hpp"
#include "describe.hpp"
#include "errors.hpp"
#include "function_like.hpp"

namespace disttune::python {
namespace {

PyTypeObject* g_type = nullptr;

int traverse(PyObject* self, visitproc visit, void* arg) {
  auto* object = reinterpret_cast<LauncherObject*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(object->dict);
  return object->state == nullptr ? 0 : object->state->traverse(visit, arg);
}

int clear(PyObject* self) {
  auto* object = reinterpret_cast<LauncherObject*>(self);
  Py_CLEAR(object->dict);
  if (object->state != nullptr) object->state->clear();
  return 0;
}

void deallocate(PyObject* self) {
  auto* object = reinterpret_cast<LauncherObject*>(self);
  PyObject_GC_UnTrack(self);
  if (object->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  Py_CLEAR(object->dict);
  delete object->state;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* represent(PyObject* self) {
  return PyUnicode_FromFormat("<disttune.Tuned %R of %zd candidates>",
                              new_str(state_of(self).name).get(),
                              static_cast<Py_ssize_t>(state_of(self).entries.size()));
}

PyObject* explain(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded(
      [&] { return explain_call(self, StrippedCall(state_of(self), args, count, keywords)); });
}
PyObject* result(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded(
      [&] { return result_of_call(self, StrippedCall(state_of(self), args, count, keywords)); });
}
PyObject* func_dir(PyObject* self, PyObject*) {
  return guarded([&] {
    std::string folder;
    {
      const NoGil released;
      folder = detail::folder(*state_of(self).session);
    }
    return file_name(folder);
  });
}
PyObject* forget_lone_choices(PyObject* self, PyObject*) {
  return guarded([&] {
    ChoiceTable& table = state_of(self).table;
    std::vector<std::string> lone;
    for (const std::string_view key : table.keys())
      if (place_of(key).group == 0) lone.emplace_back(key);
    for (const std::string& key : lone) table.erase(key, hash_of(key));
    return Ref::borrow(Py_None);
  });
}

PyMethodDef k_methods[] = {
    {"explain", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(explain)),
     METH_FASTCALL | METH_KEYWORDS,
     "explain(*args, **kwargs)\n--\n\nWhere the choice for these arguments comes from, or field by "
     "field why the nearest record does not serve. Reads the store, changes nothing."},
    {"result", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(result)),
     METH_FASTCALL | METH_KEYWORDS,
     "result(*args, **kwargs)\n--\n\nThe record for these arguments (candidates, statuses, "
     "samples, winner); None where there is none."},
    {"func_dir", func_dir, METH_NOARGS,
     "func_dir()\n--\n\nThe folder that holds this function's records and logs."},
    {"_forget_lone_choices", forget_lone_choices, METH_NOARGS,
     "_forget_lone_choices()\n--\n\nForgets what this rank chose without a group."},
    k_copy,
    k_deepcopy,
    k_reduce,
    {nullptr, nullptr, 0, nullptr}};

template <Ref LauncherState::*Part>
PyObject* get_part(PyObject* self, void*) {
  PyObject* part = (state_of(self).*Part).get();
  return Py_NewRef(part == nullptr ? Py_None : part);
}
PyObject* get_name(PyObject* self, void*) {
  return guarded([&] { return new_str(state_of(self).name); });
}
PyObject* get_best_configs(PyObject* self, void*) {
  return guarded([&] { return new_best_configs(self); });
}
PyObject* get_config_space(PyObject* self, void*) {
  return guarded([&] {
    const auto& entries = state_of(self).entries;
    Ref out = checked(PyList_New(static_cast<Py_ssize_t>(entries.size())));
    for (std::size_t i = 0; i < entries.size(); ++i)
      PyList_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i),
                      checked(PyDict_Copy(entries[i].mapping.get())).release());
    return out;
  });
}

PyGetSetDef k_attributes[] = {
    {"fn", get_part<&LauncherState::fn>, nullptr, "The function itself, untuned.", nullptr},
    {"key_fn", get_part<&LauncherState::key_fn>, nullptr,
     "What makes the key: a callable, a declared key, or None.", nullptr},
    {"prune_fn", get_part<&LauncherState::prune_fn>, nullptr,
     "What refuses candidates: a callable or None.", nullptr},
    {"name", get_name, nullptr, "The name of the folder in the store, and in messages.", nullptr},
    {"config_space", get_config_space, nullptr,
     "The candidates, a new list of dicts; entry 0 is the default.", nullptr},
    {"best_configs", get_best_configs, nullptr,
     "A mutable mapping, key to chosen entry, of what this process knows for the device in use.",
     nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef k_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(LauncherObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(LauncherObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(LauncherObject, weak_references), READONLY,
     nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot k_slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_to)},
    {Py_tp_methods, k_methods},
    {Py_tp_getset, k_attributes},
    {Py_tp_members, k_members},
    {Py_tp_doc, const_cast<char*>("A function that tunes itself for each key it meets. Made by "
                                  "`disttune.autotune`.")},
    {0, nullptr}};

PyType_Spec k_spec = {"disttune._core.Tuned", sizeof(LauncherObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      k_slots};

}  // namespace

void add_launcher_type(PyObject* module) {
  g_type = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&k_spec)).release());
  checked(PyModule_AddObjectRef(module, "Tuned", reinterpret_cast<PyObject*>(g_type)));
}

Ref new_launcher(std::unique_ptr<LauncherState> state) {
  Ref out = checked(g_type->tp_alloc(g_type, 0));
  auto* object = reinterpret_cast<LauncherObject*>(out.get());
  object->vectorcall = call_launcher;
  object->state = state.release();
  return out;
}

}  // namespace disttune::python
