#include "fast_launch.hpp"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "active_call.hpp"
#include "attribute.hpp"
#include "object.hpp"
#include "snapshot.hpp"

namespace disttune::python {
namespace {

struct Names {
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* device = PyUnicode_InternFromString("device");
  PyObject* run = PyUnicode_InternFromString("run");
  PyObject* listener = PyUnicode_InternFromString("listener");
  PyObject* best_config = PyUnicode_InternFromString("best_config");
  PyObject* nargs = PyUnicode_InternFromString("nargs");
  PyObject* warmup = PyUnicode_InternFromString("warmup");
};
const Names& names() {
  static const Names n;
  return n;
}

/// One argument of a launch, and what must hold of it.
struct Expected {
  Py_ssize_t place = 0;  ///< among the vectorcall's values, without the kernel
  Ref type{};
  Ref value{};  ///< of a key's argument; null: any
  Ref dtype{};  ///< null: none, and the type says that there is none
  Attribute read_dtype{Ref::borrow(names().dtype)};
};

/// A decided key's launch, spelled the same way.
struct KnownLaunch {
  Py_ssize_t positional = 0;
  std::vector<Ref> keywords{};  ///< their names, in order
  Py_ssize_t warmup = -1;       ///< its place; must be False
  std::vector<Expected> arguments{};
  Py_ssize_t device_place = -1;
  Ref device{};
  Attribute read_device{Ref::borrow(names().device)};
  Ref seat{};
  Ref key{};
  Ref cache{};
  Ref config{};
  Ref config_dict{};
  Ref config_kwargs{};
  Snapshot config_attributes;
  Snapshot config_values;
  Snapshot kernel_attributes;
  Ref listener_dict{};  ///< null: this Triton has none
  Ref fn{};
  Ref merged_names{};
  std::vector<Ref> tuned{};
};

struct Plan {
  Ref weak;
  std::vector<std::unique_ptr<KnownLaunch>> launches;
};

constexpr std::size_t k_most_launches = 16;

// Guarded by the interpreter lock.
std::unordered_map<PyObject*, Plan>& plans() {
  static auto* const p = new std::unordered_map<PyObject*, Plan>;
  return *p;
}

/// The instance's own attributes; null where it has no dict.
Ref attributes_of(PyObject* object) noexcept {
  Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) PyErr_Clear();
  return dict;
}

bool same_argument(const Expected& e, PyObject* value) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != e.type.get()) return false;
  if (e.value && e.value.get() != value) {
    const int equal = PyObject_RichCompareBool(e.value.get(), value, Py_EQ);
    if (equal < 0) PyErr_Clear();
    if (equal != 1) return false;
  }
  if (e.dtype) {
    const Ref dtype = Ref::steal(e.read_dtype.get(value));
    if (!dtype) PyErr_Clear();
    if (dtype.get() != e.dtype.get()) return false;
  }
  return true;
}

bool spelled_alike(const KnownLaunch& known, Py_ssize_t positional, PyObject* keywords) {
  const auto count = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  if (known.positional != positional || static_cast<Py_ssize_t>(known.keywords.size()) != count)
    return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (known.keywords[static_cast<std::size_t>(i)].get() != PyTuple_GET_ITEM(keywords, i))
      return false;
  return true;
}

bool still_holds(KnownLaunch& known, PyObject* kernel_dict, PyObject* const* values) {
  if (known.seat.get() != g_call.seat.get()) return false;
  if (known.warmup >= 0 && values[known.warmup] != Py_False) return false;
  for (const Expected& e : known.arguments)
    if (!same_argument(e, values[e.place])) return false;
  if (known.device_place >= 0) {
    const Ref device = Ref::steal(known.read_device.get(values[known.device_place]));
    const int equal =
        device ? PyObject_RichCompareBool(device.get(), known.device.get(), Py_EQ) : -1;
    if (equal < 0) PyErr_Clear();
    if (equal != 1) return false;
  }
  if (known.listener_dict) {
    PyObject* listener = PyDict_GetItemWithError(known.listener_dict.get(), names().listener);
    if (listener != nullptr && listener != Py_None) return false;
  }
  if (!known.kernel_attributes.matches(kernel_dict) ||
      !known.config_attributes.matches(known.config_dict.get()) ||
      !known.config_values.matches(known.config_kwargs.get()))
    return false;
  PyObject* held = PyDict_GetItemWithError(known.cache.get(), known.key.get());
  if (held == nullptr) PyErr_Clear();
  return held == known.config.get();
}

PyObject* launch(const KnownLaunch& known, PyObject* kernel, PyObject* kernel_dict,
                 PyObject* const* values, Py_ssize_t count) {
  PyObject* best = PyDict_GetItemWithError(kernel_dict, names().best_config);
  if (best != known.config.get() &&
      PyObject_SetAttr(kernel, names().best_config, known.config.get()) < 0)
    return nullptr;
  constexpr std::size_t k_inline = 48;
  const std::size_t total = 1 + static_cast<std::size_t>(count) + known.tuned.size();
  PyObject* few[k_inline];
  std::vector<PyObject*> many;
  PyObject** all = few;
  if (total > k_inline) {
    many.resize(total);
    all = many.data();
  }
  all[0] = known.fn.get();
  std::copy(values, values + count, all + 1);
  std::ranges::transform(known.tuned, all + 1 + count, [](const Ref& r) { return r.get(); });
  return PyObject_VectorcallMethod(names().run, all, static_cast<std::size_t>(known.positional) + 1,
                                   known.merged_names.get());
}

/// In the place of a tuner class's `run`.
struct InterceptedRun {
  PyObject_HEAD PyObject* original;
  PyObject* met;  ///< `met(kernel, *args, **kwargs)`: everything that is not a known launch
  PyObject* dict;
  vectorcallfunc vectorcall;
};

PyObject* intercepted_call(PyObject* self, PyObject* const* args, std::size_t nargsf,
                           PyObject* keywords) {
  auto* const run = reinterpret_cast<InterceptedRun*>(self);
  const Py_ssize_t positional = PyVectorcall_NARGS(nargsf);
  if (!g_call.active || positional == 0)
    return PyObject_Vectorcall(run->original, args, nargsf, keywords);
  if (g_call.settled && g_call.thread == PyThread_get_thread_ident()) {
    PyObject* kernel = args[0];
    const auto plan = plans().find(kernel);
    const Ref dict = plan == plans().end() ? Ref{} : attributes_of(kernel);
    if (dict) {
      const Py_ssize_t count =
          positional - 1 + (keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords));
      for (const auto& known : plan->second.launches)
        if (spelled_alike(*known, positional - 1, keywords) &&
            still_holds(*known, dict.get(), args + 1))
          return launch(*known, kernel, dict.get(), args + 1, count);
    }
  }
  return PyObject_Vectorcall(run->met, args, nargsf, keywords);
}

PyObject* intercepted_get(PyObject* self, PyObject* object, PyObject*) {
  return object == nullptr || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}
int intercepted_traverse(PyObject* self, visitproc visit, void* arg) {
  auto* const run = reinterpret_cast<InterceptedRun*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(run->original);
  Py_VISIT(run->met);
  Py_VISIT(run->dict);
  return 0;
}
int intercepted_clear(PyObject* self) {
  auto* const run = reinterpret_cast<InterceptedRun*>(self);
  Py_CLEAR(run->original);
  Py_CLEAR(run->met);
  Py_CLEAR(run->dict);
  return 0;
}
void intercepted_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  intercepted_clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* intercepted_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *original = nullptr, *met = nullptr;
  if (PyArg_ParseTuple(args, "OO:InterceptedRun", &original, &met) == 0) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  auto* const run = reinterpret_cast<InterceptedRun*>(self);
  run->original = Py_NewRef(original);
  run->met = Py_NewRef(met);
  run->vectorcall = intercepted_call;
  return self;
}

PyMemberDef k_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(InterceptedRun, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(InterceptedRun, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot k_slots[] = {{Py_tp_new, reinterpret_cast<void*>(intercepted_new)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(intercepted_dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(intercepted_traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(intercepted_clear)},
                         {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_descr_get, reinterpret_cast<void*>(intercepted_get)},
                         {Py_tp_members, k_members},
                         {0, nullptr}};
PyType_Spec k_spec = {"disttune._core.InterceptedRun", sizeof(InterceptedRun), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_METHOD_DESCRIPTOR,
                      k_slots};

PyObject* kernel_gone(PyObject* address, PyObject*) {
  plans().erase(static_cast<PyObject*>(PyLong_AsVoidPtr(address)));
  Py_RETURN_NONE;
}
PyMethodDef k_kernel_gone = {"kernel_gone", kernel_gone, METH_O, nullptr};

Plan& plan_of(PyObject* kernel) {
  Plan& plan = plans()[kernel];
  if (!plan.weak) {
    const Ref address = checked(PyLong_FromVoidPtr(kernel));
    const Ref gone = checked(PyCFunction_New(&k_kernel_gone, address.get()));
    plan.weak = checked(PyWeakref_NewRef(kernel, gone.get()));
  }
  return plan;
}

bool is_plain(PyObject* value) {
  return value == Py_None || PyLong_CheckExact(value) || PyBool_Check(value) ||
         PyFloat_CheckExact(value) || PyUnicode_CheckExact(value);
}

/// remember_launch(kernel, args, kwargs, key, config, tuned, key_names, seat, listener_dict): the
/// launch is that of a decided key. True where it will be made the short way from now on.
PyObject* remember_launch(PyObject*, PyObject* given) {
  PyObject *kernel, *args, *kwargs, *key, *config, *tuned, *key_names, *seat, *listener;
  if (PyArg_ParseTuple(given, "OO!O!O!OO!O!OO", &kernel, &PyTuple_Type, &args, &PyDict_Type,
                       &kwargs, &PyTuple_Type, &key, &config, &PyDict_Type, &tuned, &PySet_Type,
                       &key_names, &seat, &listener) == 0)
    return nullptr;
  try {
    const Ref kernel_dict = attributes_of(kernel);
    const Ref config_dict = attributes_of(config);
    if (!kernel_dict || !config_dict) Py_RETURN_FALSE;
    const Ref config_kwargs = checked(PyObject_GetAttrString(config, "kwargs"));
    const Ref cache = checked(PyObject_GetAttrString(kernel, "cache"));
    const Ref argument_names = checked(PyObject_GetAttrString(kernel, "arg_names"));
    if (!PyDict_Check(config_kwargs.get()) || !PyDict_Check(cache.get())) Py_RETURN_FALSE;
    auto known = std::make_unique<KnownLaunch>(KnownLaunch{
        .seat = Ref::borrow(seat),
        .key = Ref::borrow(key),
        .cache = cache,
        .config = Ref::borrow(config),
        .config_dict = config_dict,
        .config_kwargs = config_kwargs,
        .config_attributes = Snapshot(config_dict.get()),
        .config_values = Snapshot(config_kwargs.get()),
        .kernel_attributes = Snapshot(
            kernel_dict.get(), {Ref::borrow(names().best_config), Ref::borrow(names().nargs)}),
        .listener_dict = listener == Py_None ? Ref{} : Ref::borrow(listener),
        .fn = checked(PyObject_GetAttrString(kernel, "fn")),
    });
    known->positional = PyTuple_GET_SIZE(args);
    std::vector<PyObject*> values(&PyTuple_GET_ITEM(args, 0),
                                  &PyTuple_GET_ITEM(args, 0) + known->positional);
    std::vector<Ref> spelled;  // the name of each value
    for (Py_ssize_t i = 0; i < known->positional; ++i)
      spelled.push_back(checked(PySequence_GetItem(argument_names.get(), i)));
    Py_ssize_t at = 0;
    PyObject *name = nullptr, *value = nullptr;
    while (PyDict_Next(kwargs, &at, &name, &value) != 0) {
      if (name == names().warmup) known->warmup = static_cast<Py_ssize_t>(values.size());
      if (PyDict_Contains(tuned, name) != 0) Py_RETURN_FALSE;
      known->keywords.push_back(Ref::borrow(name));
      spelled.push_back(Ref::borrow(name));
      values.push_back(value);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int own = PySequence_Contains(argument_names.get(), spelled[i].get());
      checked(own);
      if (own == 0) continue;
      if (PyDict_Contains(tuned, spelled[i].get()) != 0) Py_RETURN_FALSE;
      const bool in_key = PySet_Contains(key_names, spelled[i].get()) == 1;
      Expected e{.place = static_cast<Py_ssize_t>(i),
                 .type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(values[i])))};
      if (!is_plain(values[i])) {
        e.dtype = optional_attribute(values[i], "dtype");
        if (!e.dtype || in_key) Py_RETURN_FALSE;
        if (known->device_place < 0) {
          known->device = optional_attribute(values[i], "device");
          if (known->device) known->device_place = e.place;
        }
      } else if (in_key) {
        e.value = Ref::borrow(values[i]);
      }
      known->arguments.push_back(std::move(e));
    }
    std::vector<PyObject*> merged;
    for (const Ref& n : known->keywords) merged.push_back(n.get());
    at = 0;
    while (PyDict_Next(tuned, &at, &name, &value) != 0) {
      merged.push_back(name);
      known->tuned.push_back(Ref::borrow(value));
    }
    known->merged_names = checked(PyTuple_New(static_cast<Py_ssize_t>(merged.size())));
    for (std::size_t i = 0; i < merged.size(); ++i)
      PyTuple_SET_ITEM(known->merged_names.get(), static_cast<Py_ssize_t>(i), Py_NewRef(merged[i]));
    Plan& plan = plan_of(kernel);
    // What does not hold any more goes first.
    std::erase_if(plan.launches, [&](const auto& old) {
      return !old->kernel_attributes.matches(kernel_dict.get());
    });
    if (plan.launches.size() == k_most_launches) plan.launches.pop_back();
    plan.launches.insert(plan.launches.begin(), std::move(known));
    Py_RETURN_TRUE;
  } catch (const ErrorSet&) {
    return nullptr;
  }
}

PyMethodDef k_functions[] = {
    {"remember_launch", remember_launch, METH_VARARGS,
     "remember_launch(kernel, args, kwargs, key, config, tuned, key_names, seat, listener_dict): "
     "a decided key's launch, made the short way from now on; False where it cannot be."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_fast_launch(PyObject* module) {
  const Ref type = checked(PyType_FromSpec(&k_spec));
  checked(PyModule_AddObjectRef(module, "InterceptedRun", type.get()));
  checked(PyModule_AddFunctions(module, k_functions));
}

}  // namespace disttune::python
