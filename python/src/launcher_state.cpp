#include "launcher_state.hpp"

#include <algorithm>
#include <array>

#include "describe.hpp"
#include "describe_registry.hpp"
#include "surroundings.hpp"

namespace disttune::python {
namespace {

constexpr std::size_t k_most_shapes = 32;

Ref& copier() {
  static auto* function = new Ref;
  return *function;
}

bool is_immutable(PyObject* value) noexcept {
  const PyTypeObject* type = Py_TYPE(value);
  return value == Py_None || type == &PyBool_Type || type == &PyLong_Type ||
         type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyBytes_Type ||
         type == &PyFunction_Type || !recalled_constant(value).empty();
}

/// What deepcopy gives for a plain container of immutable items; nothing for other values.
Ref flat_copy(PyObject* value) {
  if (PyDict_CheckExact(value)) {
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item) != 0;)
      if (!is_immutable(key) || !is_immutable(item)) return {};
    return checked(PyDict_Copy(value));
  }
  if (PyList_CheckExact(value)) {
    const Py_ssize_t count = PyList_GET_SIZE(value);
    for (Py_ssize_t i = 0; i < count; ++i)
      if (!is_immutable(PyList_GET_ITEM(value, i))) return {};
    return checked(PyList_GetSlice(value, 0, count));
  }
  return {};
}

/// A launcher may change what it is given; its candidates stay as they are.
Ref copy_of_value(const Ref& value) {
  if (is_immutable(value.get()) || !copier()) return value;
  if (Ref flat = flat_copy(value.get())) return flat;
  return checked(PyObject_CallOneArg(copier().get(), value.get()));
}

/// Whether the parameters of a function after its first `positional` ones begin with `names`.
[[gnu::noinline]] bool parameters_follow(PyObject* code, Py_ssize_t positional, PyObject* names) {
  const Ref parameters = Ref::steal(PyObject_GetAttrString(code, "co_varnames"));
  if (!parameters) return PyErr_Clear(), false;
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  if (positional + count > reinterpret_cast<PyCodeObject*>(code)->co_argcount) return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!same_name(PyTuple_GET_ITEM(parameters.get(), positional + i), PyTuple_GET_ITEM(names, i)))
      return false;
  return true;
}

/// An array for one call's arguments: on the stack unless they are very many.
class ArgumentArray {
 public:
  explicit ArgumentArray(Py_ssize_t count)
      : m_data(count + 1 <= k_inline ? m_inline.data()
                                     : new PyObject*[static_cast<std::size_t>(count) + 1]) {}
  ~ArgumentArray() {
    if (m_data != m_inline.data()) delete[] m_data;
  }
  ArgumentArray(const ArgumentArray&) = delete;
  ArgumentArray& operator=(const ArgumentArray&) = delete;
  /// The slot before the first argument belongs to the callee (vectorcall's offset).
  [[nodiscard]] PyObject** arguments() noexcept { return m_data + 1; }

 private:
  static constexpr Py_ssize_t k_inline = 40;
  std::array<PyObject*, k_inline> m_inline;
  PyObject** m_data;
};

}  // namespace

const OwnKeywords& own_keywords() {
  static const OwnKeywords names{PyUnicode_InternFromString("autotune"),
                                 PyUnicode_InternFromString("autotune_verbose"),
                                 PyUnicode_InternFromString("autotune_allow_arg_overwrite"),
                                 PyUnicode_InternFromString("autotune_pg")};
  return names;
}

void set_copier(PyObject* copy) { copier() = Ref::borrow(copy); }

bool CallShape::fits(PyObject* names, Py_ssize_t count) const noexcept {
  if (positional != count) return false;
  if (keywords.get() == names) return true;
  // A call with ** makes a new tuple each time, of the same interned names.
  const Py_ssize_t size = PyTuple_GET_SIZE(names);
  if (PyTuple_GET_SIZE(keywords.get()) != size) return false;
  for (Py_ssize_t i = 0; i < size; ++i)
    if (PyTuple_GET_ITEM(keywords.get(), i) != PyTuple_GET_ITEM(names, i)) return false;
  return true;
}

// ---- running ------------------------------------------------------------------------------------

namespace {

[[gnu::noinline]] PyObject* merge_names(const Choice& choice, const Arguments& arguments,
                                        CallShape* shape, Ref& spare) {
  spare = Ref::steal(PySequence_Concat(arguments.keywords, choice.names()));
  // Choices of the space share their names; those of the caller's own mappings may be many.
  if (spare && shape != nullptr && shape->merged.size() < 8)
    shape->merged.emplace_back(Ref::borrow(choice.names()), spare);
  return spare.get();
}

}  // namespace

PyObject* LauncherState::merged_names(const Choice& choice, const Arguments& arguments,
                                      CallShape* shape, Ref& spare) const {
  if (arguments.keyword_count() == 0) return choice.names();
  if (shape != nullptr)
    for (const auto& [names, all] : shape->merged)
      if (names.get() == choice.names()) return all.get();
  return merge_names(choice, arguments, shape, spare);
}

PyObject* LauncherState::run(const Choice& choice, const Arguments& arguments, CallShape* shape,
                             bool overwrites) const {
  if (overwrites) return run_overwriting(choice, arguments);
  const auto& values = choice.values();
  const bool by_position = go_by_position(choice, arguments);
  auto positional = static_cast<std::size_t>(arguments.positional);
  Ref spare;
  PyObject* names = nullptr;
  if (by_position) {
    positional += values.size();
  } else {
    names = merged_names(choice, arguments, shape, spare);
    if (names == nullptr) return nullptr;
  }
  const Py_ssize_t given = arguments.count();
  ArgumentArray array(given + static_cast<Py_ssize_t>(values.size()));
  PyObject** at = std::copy_n(arguments.values, given, array.arguments());
  for (const Ref& value : values) *at++ = value.get();
  return call_vector(fn.get(), array.arguments(), positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                     names);
}

bool LauncherState::go_by_position(const Choice& choice, const Arguments& arguments) const {
  if (arguments.keyword_count() != 0 || !Py_IS_TYPE(fn.get(), &PyFunction_Type)) return false;
  PyObject* code = PyFunction_GET_CODE(fn.get());
  ByPosition& last = m_by_position;
  if (last.code.get() == code && last.names.get() == choice.names() &&
      last.positional == arguments.positional) [[likely]]
    return last.fit;
  last = {Ref::borrow(code), Ref::borrow(choice.names()), arguments.positional,
          parameters_follow(code, arguments.positional, choice.names())};
  return last.fit;
}

PyObject* LauncherState::run_overwriting(const Choice& choice, const Arguments& arguments) const {
  const auto theirs = overwritten(arguments);
  std::vector<PyObject*> names;
  ArgumentArray array(arguments.count() + static_cast<Py_ssize_t>(choice.values().size()));
  PyObject** at = std::copy_n(arguments.values, arguments.count(), array.arguments());
  for (Py_ssize_t i = 0; i < arguments.keyword_count(); ++i)
    names.push_back(PyTuple_GET_ITEM(arguments.keywords, i));
  for (std::size_t i = 0; i < choice.values().size(); ++i) {
    PyObject* tuned = PyTuple_GET_ITEM(choice.names(), static_cast<Py_ssize_t>(i));
    if (std::any_of(theirs.begin(), theirs.end(),
                    [&](const auto& item) { return same_name(item.first, tuned); }))
      continue;
    names.push_back(tuned);
    *at++ = choice.values()[i].get();
  }
  const Ref all = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
  if (!all) return nullptr;
  for (std::size_t i = 0; i < names.size(); ++i)
    PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i), Py_NewRef(names[i]));
  return PyObject_Vectorcall(
      fn.get(), array.arguments(),
      static_cast<std::size_t>(arguments.positional) | PY_VECTORCALL_ARGUMENTS_OFFSET, all.get());
}

// ---- the key ------------------------------------------------------------------------------------

std::uint64_t LauncherState::place(const Arguments& arguments, CallShape* shape,
                                   std::uint32_t group) const {
  std::uint64_t place = static_cast<std::uint64_t>(group) << 32U;
  if (g_devices_differ)
    place |= device_number(arguments.values, arguments.count(),
                           shape != nullptr ? shape->tensor : m_tensor);
  return place;
}

void LauncherState::take_key(KeyObjects& out, const Arguments& arguments,
                             const CallShape* shape) const {
  if (declared) {
    out.are_items = true;
    return take_fields(out, arguments, shape);
  }
  if (key_fn.get() == Py_None) return;
  if (!key_fn) throw Error("disttune: this tuned function is being destroyed");
  if (read_function && read_key(out, arguments, shape)) return;
  out.push(
      checked(call_vector(key_fn.get(), arguments.values,
                          static_cast<std::size_t>(arguments.positional), arguments.keywords)));
}

bool LauncherState::read_key(KeyObjects& out, const Arguments& arguments,
                             const CallShape* shape) const {
  const bool fits = shape == nullptr ? read_function->takes(arguments.positional) : shape->readable;
  if (!fits || !read_function->stands_for(key_fn.get())) return false;
  try {
    take_fields(out, arguments, shape);
  } catch (const ErrorSet&) {
    // The function raises it again, with its own lines in the traceback. An interrupt comes once.
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw;
    PyErr_Clear();
    out.clear();
    return false;
  }
  out.are_items = read_function->gives_tuple;
  return true;
}

void LauncherState::take_fields(KeyObjects& out, const Arguments& arguments,
                                const CallShape* shape) const {
  for (std::size_t i = 0; i < key_fields.size(); ++i) {
    const KeyField& field = key_fields[i];
    PyObject* argument = nullptr;
    if (field.position >= 0 && field.position < arguments.positional) {
      argument = arguments.values[field.position];
    } else if (shape != nullptr && shape->sources[i] >= 0) {
      argument = arguments.values[shape->sources[i]];
    } else {
      argument = field.fallback.get();
    }
    if (argument == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() is missing the argument '%U', which its key is made from",
                   name.c_str(), field.parameter.get());
      throw ErrorSet{};
    }
    out.push(field.read(argument, key_fn.get()));
  }
}

void LauncherState::write_key(Buffer& out, const KeyObjects& key) const {
  if (key.are_items) {
    out.put_count('(', key.size());
  } else if (key.size() == 0) {
    return out.put('N');
  }
  for (std::size_t i = 0; i < key.size(); ++i) {
    Describer describer(out);
    if (describer.describe(key[i])) continue;
    describer.raise(key.are_items ? "key[" + std::to_string(i) + "]" : "key");
    throw ErrorSet{};
  }
}

std::vector<std::pair<PyObject*, PyObject*>> LauncherState::overwritten(
    const Arguments& arguments) const {
  std::vector<std::pair<PyObject*, PyObject*>> out;
  for (const auto& [position, tuned] : tuned_positions)
    if (position < arguments.positional) out.emplace_back(tuned.get(), arguments.values[position]);
  for (Py_ssize_t i = 0; i < arguments.keyword_count(); ++i)
    if (PyObject* keyword = PyTuple_GET_ITEM(arguments.keywords, i); is_tuned(keyword))
      out.emplace_back(keyword, arguments.values[arguments.positional + i]);
  return out;
}

void LauncherState::write_overwritten(Buffer& out, const Arguments& arguments) const {
  const auto theirs = overwritten(arguments);
  const Ref dict = checked(PyDict_New());
  for (const auto& [tuned, value] : theirs) checked(PyDict_SetItem(dict.get(), tuned, value));
  Describer describer(out, Callables::describe);
  if (!describer.describe(dict.get())) {
    describer.raise("the overwritten arguments");
    throw ErrorSet{};
  }
}

// ---- shapes of calls ----------------------------------------------------------------------------

bool LauncherState::is_tuned(PyObject* keyword) const noexcept {
  return std::any_of(tuned_names.begin(), tuned_names.end(),
                     [&](const Ref& tuned) { return same_name(tuned.get(), keyword); });
}

CallShape* LauncherState::add_shape(PyObject* keywords, Py_ssize_t positional,
                                    std::unique_ptr<CallShape>& spare) const {
  auto shape = std::make_unique<CallShape>();
  shape->keywords = Ref::borrow(keywords);
  shape->positional = positional;
  const OwnKeywords& own = own_keywords();
  shape->plain = positional <= first_tuned_position;
  shape->readable = read_function && read_function->takes(positional, keywords);
  shape->sources.assign(key_fields.size(), -1);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, i);
    for (PyObject* name_of_ours : {own.autotune, own.verbose, own.allow_overwrite, own.group})
      if (same_name(name_of_ours, keyword)) shape->plain = false;
    if (is_tuned(keyword)) shape->plain = false;
    for (std::size_t field = 0; field < key_fields.size(); ++field)
      if (same_name(key_fields[field].parameter.get(), keyword))
        shape->sources[field] = positional + i;
  }
  auto& owner = m_shapes.size() < k_most_shapes ? m_shapes.emplace_back() : spare;
  owner = std::move(shape);
  return owner.get();
}

CallShape* LauncherState::shape_of(PyObject* keywords, Py_ssize_t positional,
                                   std::unique_ptr<CallShape>& spare) const {
  for (const auto& shape : m_shapes)
    if (shape->fits(keywords, positional)) return shape.get();
  return add_shape(keywords, positional, spare);
}

// ---- choices ------------------------------------------------------------------------------------

ChoiceRef LauncherState::copy_of(std::size_t candidate) const {
  const Entry& entry = entries[candidate];
  std::vector<Ref> values;
  values.reserve(entry.values.size());
  for (const Ref& value : entry.values) values.push_back(copy_of_value(value));
  return ChoiceRef(
      new Choice(entry.names, std::move(values), static_cast<Py_ssize_t>(candidate), Ref{}));
}

ChoiceRef LauncherState::choice_of(PyObject* mapping) const {
  if (PyMapping_Check(mapping) == 0 || PyObject_HasAttrString(mapping, "keys") == 0) {
    PyErr_Format(PyExc_TypeError,
                 "disttune: best_configs: a choice maps names of arguments to values, this is %R",
                 mapping);
    throw ErrorSet{};
  }
  const Ref entry = checked(PyDict_New());
  checked(PyDict_Update(entry.get(), mapping));
  const Ref items = checked(PyDict_Items(entry.get()));
  const Py_ssize_t count = PyList_GET_SIZE(items.get());
  Ref names = checked(PyTuple_New(count));
  std::vector<Ref> values;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* pair = PyList_GET_ITEM(items.get(), i);
    if (!PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
      PyErr_SetString(PyExc_TypeError, "disttune: best_configs: names of arguments are strings");
      throw ErrorSet{};
    }
    PyObject* keyword = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    PyUnicode_InternInPlace(&keyword);
    PyTuple_SET_ITEM(names.get(), i, keyword);
    values.push_back(Ref::borrow(PyTuple_GET_ITEM(pair, 1)));
  }
  return ChoiceRef(new Choice(std::move(names), std::move(values), -1, entry));
}

Ref LauncherState::shown(const Choice& choice) const {
  PyObject* entry = choice.candidate() >= 0
                        ? entries[static_cast<std::size_t>(choice.candidate())].mapping.get()
                        : choice.entry();
  return checked(PyDict_Copy(entry));
}

ChoiceRef LauncherState::default_choice() {
  if (!m_default) m_default = copy_of(0);
  return share(m_default.get());
}

int LauncherState::traverse(visitproc visit, void* arg) const {
  Py_VISIT(fn.get());
  Py_VISIT(key_fn.get());
  Py_VISIT(prune_fn.get());
  Py_VISIT(hooks.get());
  Py_VISIT(clock.get());
  for (const Entry& entry : entries) {
    Py_VISIT(entry.mapping.get());
    for (const Ref& value : entry.values) Py_VISIT(value.get());
  }
  for (const KeyField& field : key_fields) Py_VISIT(field.fallback.get());
  if (read_function) Py_VISIT(read_function->defaults.get());
  if (m_default)
    if (const int stop = m_default->traverse(visit, arg); stop != 0) return stop;
  return table.traverse(visit, arg);
}

void LauncherState::clear() {
  table.clear();
  m_default.reset();
  entries.clear();
  key_fields.clear();
  read_function.reset();
  for (Ref* part : {&fn, &key_fn, &prune_fn, &hooks, &clock}) *part = Ref{};
}

}  // namespace disttune::python
