// `best_configs`: the memory table as a mutable mapping, type-true. It shows the entries of the
// device in use, by whichever group they were decided; what was decided for overwritten arguments
// is not among them.
#include <string>
#include <unordered_set>
#include <vector>

#include "describe.hpp"
#include "errors.hpp"
#include "launcher.hpp"
#include "surroundings.hpp"

namespace disttune::python {
namespace {

PyTypeObject* g_type = nullptr;

struct BestConfigs {
  PyObject_HEAD PyObject* launcher;
};

LauncherState& state_below(PyObject* self) {
  return state_of(reinterpret_cast<BestConfigs*>(self)->launcher);
}

/// The place that a call without tensors would have now.
void write_place_now(Buffer& out, const LauncherState& state) {
  out.put_place(state.place({}, nullptr, default_group_serial()));
}

/// The table's keys of the device in use, whichever group decided; oldest first.
std::vector<std::string> places_of_device(const LauncherState& state) {
  Buffer now;
  write_place_now(now, state);
  std::vector<std::string> out;
  for (const std::string_view key : state.table.keys())
    if (place_of(key).device == place_of(now.view()).device) out.emplace_back(key);
  return out;
}

/// A caller's key in the default group's place.
std::string place_in_use(const LauncherState& state, PyObject* object) {
  Buffer out;
  write_place_now(out, state);
  Describer describer(out);
  if (!describer.describe(object)) {
    describer.raise("key");
    throw ErrorSet{};
  }
  return std::string(out.view());
}

/// Where else the same caller's key is decided: by other groups, since a choice that was made with
/// `autotune_pg=` is read here without one.
std::vector<std::string> places_beside(const LauncherState& state, const std::string& mine) {
  std::vector<std::string> out;
  for (std::string& place : places_of_device(state))
    if (place != mine && place.compare(k_place_size, std::string::npos, mine, k_place_size) == 0)
      out.push_back(std::move(place));
  return out;
}

Choice* decided_at(const LauncherState& state, const std::string& place) {
  return state.table.find(place, hash_of(place));
}

/// The choice that calls of the default group get, else that of the first other group.
ChoiceRef choice_of_key(const LauncherState& state, PyObject* object) {
  const std::string mine = place_in_use(state, object);
  if (ChoiceRef choice = share(decided_at(state, mine))) return choice;
  const auto others = places_beside(state, mine);
  return others.empty() ? ChoiceRef{} : share(decided_at(state, others.front()));
}

/// The callers' keys of the device in use, each once, as compact bytes without their place; copies,
/// since what follows may run Python code.
std::vector<std::string> keys_now(const LauncherState& state) {
  std::vector<std::string> out;
  std::unordered_set<std::string> seen;
  for (const std::string& key : places_of_device(state)) {
    std::string bytes = key.substr(k_place_size);
    if (compact_size(bytes) == bytes.size() && seen.insert(bytes).second)
      out.push_back(std::move(bytes));
  }
  return out;
}

PyObject* get_item(PyObject* self, PyObject* object) {
  return guarded([&] {
    LauncherState& state = state_below(self);
    if (const ChoiceRef choice = choice_of_key(state, object)) return state.shown(*choice);
    PyErr_SetObject(PyExc_KeyError, object);
    throw ErrorSet{};
  });
}

/// For every group that has decided the key; a key that none has is the default group's.
int set_item(PyObject* self, PyObject* object, PyObject* entry) {
  try {
    LauncherState& state = state_below(self);
    const std::string mine = place_in_use(state, object);
    std::vector<std::string> places = places_beside(state, mine);
    if (decided_at(state, mine) != nullptr || (places.empty() && entry != nullptr))
      places.push_back(mine);
    for (const std::string& place : places) {
      if (entry == nullptr)
        state.table.erase(place, hash_of(place));
      else
        state.table.insert(place, hash_of(place), state.choice_of(entry));
    }
    if (!places.empty()) return 0;
    PyErr_SetObject(PyExc_KeyError, object);
    return -1;
  } catch (...) {
    set_from_current_exception();
    return -1;
  }
}

int contains(PyObject* self, PyObject* object) {
  try {
    return choice_of_key(state_below(self), object) ? 1 : 0;
  } catch (...) {
    set_from_current_exception();
    return -1;
  }
}

Py_ssize_t length(PyObject* self) {
  try {
    return static_cast<Py_ssize_t>(keys_now(state_below(self)).size());
  } catch (...) {
    set_from_current_exception();
    return -1;
  }
}

PyObject* iterate(PyObject* self) {
  return guarded([&] {
    const Ref keys = checked(PyList_New(0));
    for (const std::string& bytes : keys_now(state_below(self)))
      checked(PyList_Append(keys.get(), object_of(std::string_view(bytes)).get()));
    return checked(PyObject_GetIter(keys.get()));
  });
}

/// Forgets the device in use; what other devices decided stays.
PyObject* clear_entries(PyObject* self, PyObject*) {
  return guarded([&] {
    LauncherState& state = state_below(self);
    for (const std::string& place : places_of_device(state))
      state.table.erase(place, hash_of(place));
    return Ref::borrow(Py_None);
  });
}

/// `pop(key[, default])`; the one in collections.abc needs a base class for its default's marker.
PyObject* pop(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    PyObject* key = nullptr;
    PyObject* otherwise = nullptr;
    const char* names[] = {"", "default", nullptr};
    if (PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:pop", const_cast<char**>(names), &key,
                                    &otherwise) == 0)
      throw ErrorSet{};
    PyObject* found = get_item(self, key);
    if (found == nullptr) {
      if (otherwise == nullptr || PyErr_ExceptionMatches(PyExc_KeyError) == 0) throw ErrorSet{};
      PyErr_Clear();
      return Ref::borrow(otherwise);
    }
    Ref entry = Ref::steal(found);
    if (set_item(self, key, nullptr) != 0) throw ErrorSet{};
    return entry;
  });
}

PyObject* represent(PyObject* self) {
  return guarded([&] {
    const Ref dict = checked(PyDict_New());
    std::string out = "{";
    for (const std::string& bytes : keys_now(state_below(self))) {
      const Ref key = object_of(std::string_view(bytes));
      const Ref entry = checked(PyObject_GetItem(self, key.get()));
      const Ref key_text = checked(PyObject_Repr(key.get()));
      const Ref entry_text = checked(PyObject_Repr(entry.get()));
      out += (out.size() > 1 ? ", " : "") + message_text(key_text.get()) + ": " +
             message_text(entry_text.get());
    }
    return new_str(out + "}");
  });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<BestConfigs*>(self)->launcher);
  return 0;
}
int clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<BestConfigs*>(self)->launcher);
  return 0;
}
void deallocate(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef k_methods[] = {
    {"clear", clear_entries, METH_NOARGS, "Forget every choice of the device in use."},
    {"pop", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(pop)),
     METH_VARARGS | METH_KEYWORDS, "Forget a key's choice, and return it."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot k_slots[] = {{Py_mp_subscript, reinterpret_cast<void*>(get_item)},
                         {Py_mp_ass_subscript, reinterpret_cast<void*>(set_item)},
                         {Py_mp_length, reinterpret_cast<void*>(length)},
                         {Py_sq_contains, reinterpret_cast<void*>(contains)},
                         {Py_tp_iter, reinterpret_cast<void*>(iterate)},
                         {Py_tp_repr, reinterpret_cast<void*>(represent)},
                         {Py_tp_methods, k_methods},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
                         {0, nullptr}};

PyType_Spec k_spec = {"disttune._core.BestConfigs", sizeof(BestConfigs), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      k_slots};

}  // namespace

void add_best_configs_type(PyObject* module) {
  // The rest of a mutable mapping (get, update, items …) is what collections.abc makes of these.
  const Ref mapping = imported("collections.abc", "MutableMapping");
  const Ref own = checked(PyType_FromSpec(&k_spec));
  g_type = reinterpret_cast<PyTypeObject*>(own.get());
  for (const char* name :
       {"get", "popitem", "update", "setdefault", "keys", "values", "items", "__eq__", "__ne__"}) {
    const Ref method = checked(PyObject_GetAttrString(mapping.get(), name));
    checked(PyObject_SetAttrString(own.get(), name, method.get()));
  }
  checked(PyObject_SetAttrString(own.get(), "__hash__", Py_None));
  checked(PyObject_CallMethod(mapping.get(), "register", "O", own.get()));
  g_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(own.get()));
  checked(PyModule_AddObjectRef(module, "BestConfigs", own.get()));
}

Ref new_best_configs(PyObject* launcher) {
  Ref out = checked(g_type->tp_alloc(g_type, 0));
  reinterpret_cast<BestConfigs*>(out.get())->launcher = Py_NewRef(launcher);
  return out;
}

}  // namespace disttune::python
