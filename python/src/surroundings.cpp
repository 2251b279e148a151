#include "surroundings.hpp"

#include <nanobind/nanobind.h>

#include "bindings.hpp"
#include "errors.hpp"

namespace disttune::python {
namespace {

Ref& resolver() {
  static auto* function = new Ref;
  return *function;
}
Ref& log_function() {
  static auto* function = new Ref;
  return *function;
}

/// The last group that was resolved for an object of the caller's. The object is known weakly: a
/// destroyed group must be able to go.
struct LastGroup {
  bool known = false;
  Ref weak;  ///< null: resolved for None
  GroupSeat seat;

  [[nodiscard]] bool fits(PyObject* object) const noexcept {
    if (!known) return false;
    if (object == Py_None || object == nullptr) return !weak;
    if (!weak) return false;
    // Borrowed, and only compared: the lock is held.
    return PyWeakref_GET_OBJECT(weak.get()) == object;
  }
};
// Never destroyed: their objects would outlive the interpreter. No function's statics, which a warm
// call would look at twice.
LastGroup& g_default_group = *new LastGroup;
LastGroup& g_given_group = *new LastGroup;

GroupSeat resolve(PyObject* object) {
  if (!resolver()) return {};
  GroupSeat seat;
  seat.object = checked(PyObject_CallOneArg(resolver().get(), object));
  if (seat.object.get() == Py_None) return seat;
  seat.group = group_pointer(seat.object.get());
  if (seat.group == nullptr) {
    PyErr_Format(PyExc_TypeError, "disttune: autotune_pg: %R is no process group", object);
    throw ErrorSet{};
  }
  if (seat.group->size() < 2) return {};
  seat.serial = static_cast<std::uint32_t>(seat.group->place());
  return seat;
}

void remember(LastGroup& last, PyObject* object, const GroupSeat& seat) {
  last = {};
  if (object != Py_None) {
    last.weak = Ref::steal(PyWeakref_NewRef(object, nullptr));
    if (!last.weak) return PyErr_Clear();  // no weak references to it: resolved each time
  }
  last.seat = seat;
  last.known = true;
}

[[gnu::noinline]] GroupSeat resolve_default(PyObject* world) {
  const Ref keep = Ref::borrow(world);
  GroupSeat seat = resolve(Py_None);
  remember(g_default_group, world, seat);
  return seat;
}

/// The attributes of torch.distributed's world object, owned; null while the caller has not
/// imported it. Sets `name` to the attribute that holds the default group.
[[gnu::noinline]] PyObject* find_world(PyObject*& name) {
  static Py_ssize_t modules_seen = -1;
  PyObject* modules = PyImport_GetModuleDict();
  if (PyDict_GET_SIZE(modules) == modules_seen) return nullptr;
  PyObject* c10d = PyDict_GetItemString(modules, "torch.distributed.distributed_c10d");
  const Ref world = c10d == nullptr ? Ref{} : Ref::steal(PyObject_GetAttrString(c10d, "_world"));
  // Its own attributes, so that no property is run on a warm call.
  const Ref attributes = world ? Ref::steal(PyObject_GenericGetDict(world.get(), nullptr)) : Ref{};
  PyErr_Clear();  // still being imported, or another version's layout: looked at again later
  if (!attributes || !PyDict_Check(attributes.get())) {
    if (c10d == nullptr) modules_seen = PyDict_GET_SIZE(modules);
    return nullptr;
  }
  name = PyUnicode_InternFromString("_default_pg");
  return Py_NewRef(attributes.get());
}

/// The world of torch.distributed now, borrowed; None where there is none.
PyObject* torch_world() {
  static PyObject* attributes = nullptr;
  static PyObject* name = nullptr;
  if (attributes == nullptr) {
    attributes = find_world(name);
    if (attributes == nullptr) return Py_None;
  }
#if PY_VERSION_HEX < 0x030c0000
  // As long as the dict was not written to, what was found there still holds.
  static std::uint64_t version = 0;
  static PyObject* last = nullptr;
  const std::uint64_t now = reinterpret_cast<PyDictObject*>(attributes)->ma_version_tag;
  if (now == version) [[likely]]
    return last;
  version = now;
  PyObject* found = last = PyDict_GetItemWithError(attributes, name);
  if (found == nullptr) last = Py_None;
#else
  PyObject* found = PyDict_GetItemWithError(attributes, name);
#endif
  return found == nullptr ? Py_None : found;
}

bool is_ours(PyObject* frame) {
  const Ref globals = checked(PyObject_GetAttrString(frame, "f_globals"));
  PyObject* name = PyDict_GetItemString(globals.get(), "__name__");
  if (name == nullptr || !PyUnicode_Check(name)) return false;
  const std::string_view text = utf8(name);
  return text == "disttune" || text.starts_with("disttune.");
}

/// The stack level of the innermost frame that is not this package's: where the user's program is.
int users_level() {
  int level = 1;
  for (Ref frame = Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
       frame && frame.get() != Py_None; ++level) {
    if (!is_ours(frame.get())) return level;
    frame = checked(PyObject_GetAttrString(frame.get(), "f_back"));
  }
  return 1;
}

void give_warning(std::string_view text) {
  const Ref message = new_str(text);
  const Ref shown = Ref::steal(PyUnicode_AsUTF8String(message.get()));
  if (!shown) throw ErrorSet{};
  checked(PyErr_WarnEx(error_classes().warning, PyBytes_AS_STRING(shown.get()), users_level()));
}

const char* level_name(Level level) noexcept {
  switch (level) {
    case Level::debug:
      return "debug";
    case Level::info:
      return "info";
    case Level::warning:
      return "warning";
    case Level::error:
      return "error";
  }
  return "error";
}

void give_message(Level level, std::string_view text) {
  if (log_function()) {
    const Ref message = new_str(text);
    checked(PyObject_CallFunction(log_function().get(), "sO", level_name(level), message.get()));
  }
  if (level == Level::warning) give_warning(text);
}

thread_local Messages* t_messages = nullptr;

}  // namespace

void set_group_resolver(PyObject* function) {
  resolver() = Ref::borrow(function == Py_None ? nullptr : function);
  forget_default_group();
}

void forget_default_group() noexcept {
  g_default_group = {};
  g_given_group = {};
}

std::uint32_t default_group_serial() {
  PyObject* world = torch_world();
  if (g_default_group.fits(world)) [[likely]]
    return g_default_group.seat.serial;
  return resolve_default(world).serial;
}

GroupSeat group_of(PyObject* autotune_pg) {
  if (autotune_pg == nullptr || autotune_pg == Py_None) {
    PyObject* world = torch_world();
    return g_default_group.fits(world) ? g_default_group.seat : resolve_default(world);
  }
  if (g_given_group.fits(autotune_pg)) return g_given_group.seat;
  GroupSeat seat = resolve(autotune_pg);
  remember(g_given_group, autotune_pg, seat);
  return seat;
}

GroupSeat known_group(PyObject* autotune_pg) noexcept {
  const bool by_default = autotune_pg == nullptr || autotune_pg == Py_None;
  const LastGroup& last = by_default ? g_default_group : g_given_group;
  if (last.fits(by_default ? torch_world() : autotune_pg)) return last.seat;
  ProcessGroup* own = by_default ? nullptr : group_pointer(autotune_pg);
  if (own == nullptr || own->size() < 2) return {};
  GroupSeat seat;  // a group that is its own seat needs no meeting to be known
  seat.object = Ref::borrow(autotune_pg);
  seat.group = own;
  return seat;
}

// ---- devices ------------------------------------------------------------------------------------

bool g_devices_differ = false;

namespace {

Ref& current_device() {
  static auto* function = new Ref;
  return *function;
}

/// torch.Tensor, borrowed; null while torch is not imported.
PyTypeObject* tensor_type() {
  static PyTypeObject* type = nullptr;
  if (type == nullptr) {
    PyObject* torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
    if (torch == nullptr) return nullptr;
    PyObject* found = PyObject_GetAttrString(torch, "Tensor");
    if (found == nullptr || !PyType_Check(found)) {
      PyErr_Clear();
      return nullptr;
    }
    type = reinterpret_cast<PyTypeObject*>(found);
  }
  return type;
}

std::uint32_t number_of(PyObject* device_index) {
  const long index = PyLong_AsLong(device_index);
  if (index == -1 && PyErr_Occurred() != nullptr) throw ErrorSet{};
  return static_cast<std::uint32_t>(index + 1);
}

}  // namespace

void set_devices_differ(bool differ, PyObject* current) {
  g_devices_differ = differ;
  current_device() = Ref::borrow(current == Py_None ? nullptr : current);
}

std::uint32_t device_number(PyObject* const* args, Py_ssize_t count, Py_ssize_t& remembered) {
  static PyObject* const get_device = PyUnicode_InternFromString("get_device");
  PyTypeObject* type = tensor_type();
  // Zero for what is no tensor, or lies in host memory.
  const auto accelerator = [&](Py_ssize_t at) -> std::uint32_t {
    if (type == nullptr || !PyObject_TypeCheck(args[at], type)) return 0;
    return number_of(checked(PyObject_CallMethodNoArgs(args[at], get_device)).get());
  };
  if (remembered >= 0 && remembered < count)
    if (const std::uint32_t number = accelerator(remembered); number != 0) return number;
  bool tensors = false;
  for (Py_ssize_t at = 0; at < count; ++at) {
    tensors = tensors || (type != nullptr && PyObject_TypeCheck(args[at], type));
    if (const std::uint32_t number = accelerator(at); number != 0) {
      remembered = at;
      return number;
    }
  }
  if (tensors || !current_device()) return 0;
  return number_of(checked(PyObject_CallNoArgs(current_device().get())).get());
}

// ---- messages -----------------------------------------------------------------------------------

Messages::Messages() noexcept : m_outer(t_messages) { t_messages = this; }
Messages::~Messages() { t_messages = m_outer; }

void Messages::around(const std::function<void()>& body) {
  Messages messages;
  try {
    const NoGil released;
    body();
  } catch (...) {
    static_cast<void>(messages.give());
    throw;
  }
  const auto raised = messages.give();
  if (!raised) return;
  raised->restore();
  throw ErrorSet{};
}

std::optional<Raised> Messages::give() {
  std::optional<Raised> first;
  for (const auto& [level, text] : std::exchange(m_kept, {})) {
    try {
      give_message(level, text);
    } catch (const ErrorSet&) {
      // A warning that the program made an error, or an interrupt. That it cannot be shown (a
      // closed stream, a handler's mistake) fails nothing.
      if (PyErr_ExceptionMatches(PyExc_Exception) != 0 &&
          PyErr_ExceptionMatches(PyExc_Warning) == 0) {
        PyErr_WriteUnraisable(error_classes().warning);
        continue;
      }
      Raised raised = Raised::take();
      if (!first) first = std::move(raised);
    }
  }
  return first;
}

void Messages::sink(Level level, std::string_view text) {
  if (t_messages != nullptr && level == Level::warning) {
    t_messages->m_kept.emplace_back(level, std::string(text));
    return;
  }
  if (Py_IsInitialized() == 0) return;
  const Gil gil;
  try {
    give_message(level, text);
  } catch (const ErrorSet&) {
    // Nothing can be raised from here, but by the next Python code of the main thread. A simulated
    // signal would not do: a process that was started in the background ignores it.
    const bool interrupt = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0;
    interrupt ? PyErr_Clear() : PyErr_WriteUnraisable(error_classes().warning);
    const auto raise_it = [](void*) {
      PyErr_SetNone(PyExc_KeyboardInterrupt);
      return -1;
    };
    if (interrupt) Py_AddPendingCall(raise_it, nullptr);
  }
}

void set_log(PyObject* log) { log_function() = Ref::borrow(log == Py_None ? nullptr : log); }

}  // namespace disttune::python
