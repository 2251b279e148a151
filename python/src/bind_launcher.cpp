// Making a tuned function from what the decorator has checked (_function.py).
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "describe.hpp"
#include "errors.hpp"
#include "in_python.hpp"
#include "launcher.hpp"
#include "surroundings.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

Ref interned(PyObject* text) {
  PyObject* out = Py_NewRef(text);
  PyUnicode_InternInPlace(&out);
  return Ref::steal(out);
}

/// The names of an entry; entries with equal names share one tuple.
Ref names_of(PyObject* mapping, const std::vector<Entry>& before) {
  const Ref keys = checked(PyDict_Keys(mapping));
  for (const Entry& entry : before) {
    const Ref list = checked(PySequence_List(entry.names.get()));
    const int equal = PyObject_RichCompareBool(list.get(), keys.get(), Py_EQ);
    checked(equal);
    if (equal == 1) return entry.names;
  }
  const Ref names = checked(PyTuple_New(PyList_GET_SIZE(keys.get())));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i)
    PyTuple_SET_ITEM(names.get(), i, interned(PyList_GET_ITEM(keys.get(), i)).release());
  return names;
}

/// Takes the entries over, and describes them. Throws ErrorSet for a value that cannot be.
std::vector<Config> take_entries(LauncherState& state, const nb::list& entries) {
  std::vector<Config> configs;
  for (const nb::handle given : entries) {
    Entry entry;
    entry.mapping = checked(PyDict_Copy(given.ptr()));
    entry.names = names_of(entry.mapping.get(), state.entries);
    Config config;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entry.names.get()); ++i) {
      PyObject* name = PyTuple_GET_ITEM(entry.names.get(), i);
      PyObject* value = PyDict_GetItemWithError(entry.mapping.get(), name);
      if (value == nullptr) throw ErrorSet{};
      const std::string text(utf8(name));
      const std::string where =
          "config_space[" + std::to_string(configs.size()) + "]['" + text + "']";
      config.set(text, describe(value, where, Callables::describe));
      entry.values.push_back(Ref::borrow(value));
      if (!state.is_tuned(name)) state.tuned_names.push_back(Ref::borrow(name));
    }
    configs.push_back(std::move(config));
    state.entries.push_back(std::move(entry));
  }
  return configs;
}

void take_parameters(LauncherState& state, const nb::tuple& positional) {
  for (const nb::handle parameter : positional) {
    const auto position = static_cast<Py_ssize_t>(state.positional_names.size());
    state.positional_names.push_back(interned(parameter.ptr()));
    if (!state.is_tuned(parameter.ptr())) continue;
    state.tuned_positions.emplace_back(position, state.positional_names.back());
    if (state.first_tuned_position > position) state.first_tuned_position = position;
  }
}

KeyStep step_of(const nb::handle step, bool is_last) {
  const auto kind = nb::cast<std::string>(step[0]);
  const nb::object what = step[1];
  if (kind == "item") return ItemStep{Ref::borrow(what.ptr())};
  if (kind == "function") return FunctionStep{interned(what.ptr()), is_last};
  return Attribute(interned(what.ptr()), kind == "method");
}

/// Takes a KeyFields (_key.py).
void take_key_fields(LauncherState& state, const nb::handle key) {
  if (key.is_none()) return;
  std::vector<Ref> positional;
  for (const nb::handle name : key.attr("positional")) positional.push_back(interned(name.ptr()));
  const auto defaults = nb::cast<nb::dict>(key.attr("defaults"));
  for (const nb::handle given : key.attr("fields")) {
    KeyField field;
    const nb::object parameter = given[0];
    field.parameter = interned(parameter.ptr());
    for (std::size_t i = 0; i < positional.size(); ++i)
      if (same_name(positional[i].get(), parameter.ptr()))
        field.position = static_cast<Py_ssize_t>(i);
    if (defaults.contains(parameter))
      field.fallback = Ref::borrow(nb::object(defaults[parameter]).ptr());
    const auto steps = nb::cast<nb::tuple>(given[1]);
    for (std::size_t i = 0; i < steps.size(); ++i)
      field.steps.push_back(step_of(steps[i], i + 1 == steps.size()));
    state.key_fields.push_back(std::move(field));
  }
  const nb::object calls = key.attr("calls");
  state.declared = calls.is_none();
  if (state.declared) return;
  PyObject* key_fn = state.key_fn.get();
  ReadFunction& read = state.read_function.emplace();
  read.code = Ref::borrow(PyFunction_GET_CODE(key_fn));
  read.defaults = Ref::borrow(PyFunction_GET_DEFAULTS(key_fn));
  read.parameters = std::move(positional);
  read.required = nb::cast<Py_ssize_t>(calls.attr("required"));
  read.more_positional = nb::cast<bool>(calls.attr("more_positional"));
  read.more_keywords = nb::cast<bool>(calls.attr("more_keywords"));
  read.gives_tuple = nb::cast<bool>(calls.attr("gives_tuple"));
}

Value read_identity(const LauncherState& state) {
  const Gil gil;
  try {
    const Ref parts = checked(PyObject_CallMethod(state.hooks.get(), "identity", nullptr));
    return describe(parts.get(), "identity");
  } catch (const ErrorSet&) {
    throw_raised();
  }
}

template <class T>
std::optional<T> optional_in(const nb::dict& options, const char* name) {
  if (!options.contains(name)) return std::nullopt;
  const nb::object value = options[name];
  if (value.is_none()) return std::nullopt;
  return nb::cast<T>(value);
}

detail::LauncherOptions options_of(LauncherState& state, const nb::dict& options) {
  detail::LauncherOptions out;
  out.strategy = optional_in<std::string>(options, "strategy");
  out.warmup = optional_in<int>(options, "warmup");
  out.repeat = optional_in<int>(options, "repeat");
  out.timer = optional_in<std::string>(options, "timer");
  out.cache = optional_in<std::string>(options, "cache");
  out.store = optional_in<std::string>(options, "store");
  out.checked = optional_in<bool>(options, "checked").value_or(false);
  if (state.clock.get() != Py_None) {
    // The state outlives the session that it owns; a reference of the session's own would be a
    // cycle that the collector cannot see. The same holds for the identity.
    out.clock = [raw = &state] { return read_clock(raw->clock.get()); };
    out.clock_name = optional_in<std::string>(options, "clock_name").value_or("clock");
  }
  return out;
}

nb::object make_tuned(nb::object fn, std::string name, std::string module, nb::object key_fn,
                      nb::object key_fields, nb::object prune_fn, nb::list entries,
                      nb::tuple positional, nb::object hooks, nb::object clock, nb::dict options) {
  auto state = std::make_unique<LauncherState>();
  state->fn = Ref::borrow(fn.ptr());
  state->key_fn = Ref::borrow(key_fn.ptr());
  state->prune_fn = Ref::borrow(prune_fn.ptr());
  state->hooks = Ref::borrow(hooks.ptr());
  state->clock = Ref::borrow(clock.ptr());
  state->name = name;
  detail::LauncherSpec spec;
  spec.name = std::move(name);
  spec.module = std::move(module);
  spec.candidates = take_entries(*state, entries);
  take_parameters(*state, positional);
  take_key_fields(*state, key_fields);
  spec.options = options_of(*state, options);
  spec.identity = [raw = state.get()] { return read_identity(*raw); };
  state->session = std::make_unique<detail::Launcher>(std::move(spec));
  return nb::steal(new_launcher(std::move(state)).release());
}

}  // namespace

void bind_launcher(nb::module_& m) {
  add_launcher_type(m.ptr());
  add_best_configs_type(m.ptr());
  m.def("make_tuned", &make_tuned, nb::kw_only(), nb::arg("fn"), nb::arg("name"), nb::arg("module"),
        nb::arg("key_fn").none(), nb::arg("key_fields").none(), nb::arg("prune_fn").none(),
        nb::arg("entries"), nb::arg("positional"), nb::arg("hooks"), nb::arg("clock").none(),
        nb::arg("options"), "Make a tuned function from parts that the decorator has checked.");
  m.def("set_copier", [](nb::object copy) { set_copier(copy.ptr()); });
  m.def("set_log", [](nb::object log) { set_log(log.ptr()); });
  m.def(
      "set_group_resolver", [](nb::object resolve) { set_group_resolver(resolve.ptr()); },
      nb::arg("resolve").none());
  m.def("forget_default_group", &forget_default_group);
  m.def(
      "set_devices_differ",
      [](bool differ, nb::object current) { set_devices_differ(differ, current.ptr()); },
      nb::arg("differ"), nb::arg("current").none());
}

}  // namespace disttune::python
