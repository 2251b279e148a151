#include "active_call.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "errors.hpp"

namespace disttune::python {

ActiveCall& g_call = *new ActiveCall;

namespace {

struct Names {
  PyObject* run = PyUnicode_InternFromString("run");
  PyObject* refuse = PyUnicode_InternFromString("refuse");
  PyObject* find_classes = PyUnicode_InternFromString("find_classes");
  PyObject* tuner_module = PyUnicode_InternFromString("triton.runtime.autotuner");
};
const Names& names() {
  static const Names n;
  return n;
}

/// A tuner class as it is outside of calls. It is known weakly: classes can be made without end.
struct Watched {
  Ref weak{};
  PyObject* own = nullptr;  ///< its own `run`, which `ours` keeps alive; else it is only compared
  Ref ours{};               ///< what that is inside of calls; null: its launches are met in a base
  Py_ssize_t subclasses = 0;

  /// Borrowed; null once it is gone.
  [[nodiscard]] PyTypeObject* cls() const noexcept {
    PyObject* object = PyWeakref_GET_OBJECT(weak.get());
    return object == Py_None ? nullptr : reinterpret_cast<PyTypeObject*>(object);
  }
};
/// Triton's class and all below it.
std::vector<Watched>& watched() {
  static auto* const classes = new std::vector<Watched>;
  return *classes;
}

PyObject* own_run(PyTypeObject* cls) noexcept {
  PyObject* run = PyDict_GetItemWithError(cls->tp_dict, names().run);
  if (run == nullptr) PyErr_Clear();
  return run;
}

/// What `__subclasses__` would list, without making the list.
Py_ssize_t count_subclasses(PyTypeObject* cls) noexcept {
  auto* below = static_cast<PyObject*>(cls->tp_subclasses);
  return below == nullptr ? 0 : PyDict_GET_SIZE(below);
}

/// Whether the list of classes is what it was when it was made. As long as none has gone, another
/// one below it shows in a count.
bool classes_fit() noexcept {
  if (watched().empty()) {
    PyObject* modules = PyImport_GetModuleDict();
    return PyDict_GetItemWithError(modules, names().tuner_module) == nullptr;
  }
  return std::ranges::all_of(watched(), [](const Watched& w) {
    PyTypeObject* cls = w.cls();
    return cls != nullptr && own_run(cls) == w.own && count_subclasses(cls) == w.subclasses;
  });
}

/// False with an exception set on error.
bool set_run(PyTypeObject* cls, PyObject* run) {
  const Ref kept = Ref::borrow(reinterpret_cast<PyObject*>(cls));
  return PyObject_SetAttr(kept.get(), names().run, run) == 0;
}

// Both by index: a metaclass of the user's may make classes while an attribute is set.

void replace_all() {
  for (std::size_t i = 0; i < watched().size(); ++i) {
    const Watched& w = watched()[i];
    if (PyTypeObject* cls = w.cls(); w.ours && cls != nullptr && !set_run(cls, w.ours.get()))
      throw ErrorSet{};
  }
}

void put_all_back() noexcept {
  for (std::size_t i = watched().size(); i-- > 0;) {
    const Watched& w = watched()[i];
    PyTypeObject* cls = w.cls();
    // Whoever wrapped ours meanwhile still reaches Triton's through it.
    if (!w.ours || cls == nullptr || own_run(cls) != w.ours.get()) continue;
    or_stand_still([&] {
      if (!set_run(cls, w.own)) PyErr_WriteUnraisable(w.own);
    });
  }
}

[[noreturn]] void refuse(PyObject* outer) {
  checked(PyObject_CallMethodNoArgs(outer, names().refuse));
  throw ErrorSet{};
}

/// watch_class(cls, own, ours): inside a call `run` of `cls` is `ours`, which keeps `own` alive.
/// None for `ours`: a launch is met elsewhere, and the class is watched for changes only.
PyObject* watch_class(PyObject*, PyObject* given) {
  PyObject *cls, *own, *ours;
  if (PyArg_ParseTuple(given, "O!OO", &PyType_Type, &cls, &own, &ours) == 0) return nullptr;
  try {
    auto* const type = reinterpret_cast<PyTypeObject*>(cls);
    Ref weak = checked(PyWeakref_NewRef(cls, nullptr));
    if (g_call.active && ours != Py_None && !set_run(type, ours)) throw ErrorSet{};
    watched().push_back({std::move(weak), own == Py_None ? nullptr : own,
                         Ref::borrow(ours == Py_None ? nullptr : ours), count_subclasses(type)});
    Py_RETURN_NONE;
  } catch (const ErrorSet&) {
    return nullptr;
  }
}
/// The classes that are watched.
PyObject* watched_classes(PyObject*, PyObject*) {
  Ref list = Ref::steal(PyList_New(0));
  for (const Watched& w : watched())
    if (PyTypeObject* cls = w.cls();
        list && cls != nullptr && PyList_Append(list.get(), reinterpret_cast<PyObject*>(cls)) < 0)
      return nullptr;
  return list.release();
}

/// (outer, thread) of the active call, or None.
PyObject* active_call(PyObject*, PyObject*) {
  if (!g_call.active) Py_RETURN_NONE;
  return Py_BuildValue("Ok", g_call.outer.get(), g_call.thread);
}
PyObject* made_call(PyObject*, PyObject*) {
  return Py_NewRef(g_call.made ? g_call.made.get() : Py_None);
}
PyObject* keep_call(PyObject*, PyObject* made) {
  g_call.made = Ref::borrow(made);
  Py_RETURN_NONE;
}
PyObject* intercept_all(PyObject*, PyObject*) {
  g_call.settled = false;
  Py_RETURN_NONE;
}
PyObject* forget_call(PyObject*, PyObject*) {
  static_cast<void>(end_call());
  Py_RETURN_NONE;
}

PyMethodDef k_functions[] = {
    {"watch_class", watch_class, METH_VARARGS,
     "watch_class(cls, own, ours): inside a call `run` of `cls` is `ours`, not `own`; None for "
     "`ours`: the class is watched for changes only."},
    {"watched_classes", watched_classes, METH_NOARGS, "The classes that are watched."},
    {"active_call", active_call, METH_NOARGS,
     "(slow part of the outer function, thread) of the active call, or None."},
    {"made_call", made_call, METH_NOARGS, "What keep_call was given in the active call, or None."},
    {"keep_call", keep_call, METH_O, "keep_call(call): the object of the active call."},
    {"intercept_all", intercept_all, METH_NOARGS, "The active call has begun to tune."},
    {"forget_call", forget_call, METH_NOARGS,
     "In a forked child: the active call is its parent's."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void begin_call(PyObject* outer, PyObject* seat) {
  if (g_call.active) refuse(outer);
  if (!classes_fit()) {
    watched().clear();
    checked(PyObject_CallMethodNoArgs(outer, names().find_classes));
    if (g_call.active) refuse(outer);  // another thread was quicker
  }
  g_call.active = g_call.settled = true;
  g_call.thread = PyThread_get_thread_ident();
  g_call.outer = Ref::borrow(outer);
  g_call.seat = Ref::borrow(seat);
  try {
    replace_all();
  } catch (const ErrorSet&) {
    const Raised raised = Raised::take();
    static_cast<void>(end_call());
    raised.restore();
    throw;
  }
}

Ref end_call() noexcept {
  if (!g_call.active) return {};
  put_all_back();
  g_call.active = g_call.settled = false;
  // Taken out first: what dies here may make the next call.
  const Ref outer = std::move(g_call.outer);
  const Ref seat = std::move(g_call.seat);
  return std::move(g_call.made);
}

void add_active_call(PyObject* module) { checked(PyModule_AddFunctions(module, k_functions)); }

}  // namespace disttune::python
