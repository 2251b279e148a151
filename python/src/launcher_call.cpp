// The warm path of a call, and what the call's own keywords change about it.
#include "launcher.hpp"

#include <memory>

#include "errors.hpp"
#include "surroundings.hpp"

namespace disttune::python {
namespace {

std::uint32_t group_serial_of(const CallOptions& options) {
  return options.group == nullptr || options.group == Py_None ? default_group_serial()
                                                              : group_of(options.group).serial;
}

void finish_key(TableKey& key, std::uint64_t place, const KeyObjects& objects,
                const LauncherState& state, const Arguments& arguments,
                const CallOptions& options) {
  key.bytes.put_place(place);
  state.write_key(key.bytes, objects);
  key.key_end = key.bytes.size();
  if (options.overwrites) [[unlikely]]
    state.write_overwritten(key.bytes, arguments);
  key.hash = hash_of(key.view());
}

PyObject* run_chosen(LauncherState& state, Choice* found, const Arguments& arguments,
                     CallShape* shape, const CallOptions& options, KeyObjects& objects) {
  // The launcher may clear the table: its values stay until it has returned.
  const ChoiceRef choice = share(found);
  objects.clear();
  return state.run(*choice, arguments, shape, options.overwrites);
}

/// A call with another key than the call before. Here and below, what is no part of most warm calls
/// stays out of line: inlined, it would cost them its stack and registers.
[[gnu::noinline]] PyObject* call_by_table(PyObject* self, LauncherState& state,
                                          const Arguments& arguments, CallShape* shape,
                                          const CallOptions& options, KeyObjects& objects,
                                          std::uint64_t place) {
  TableKey key;
  try {
    finish_key(key, place, objects, state, arguments, options);
  } catch (...) {
    return ended_early(options.group);
  }
  Choice* found = state.table.find(key.view(), key.hash);
  if (found == nullptr) {
    objects.clear();
    return call_cold(self, arguments, shape, options, key);
  }
  if (!options.overwrites) state.recent.remember(objects, place, state.table, found);
  return run_chosen(state, found, arguments, shape, options, objects);
}

/// The others may be in the group's first meeting, where nothing can be announced to them: a call
/// that raises before it has looked for its group joins it for that. The exception that is set
/// stays, but for an interrupt of the waiting: false.
bool meet(PyObject* autotune_pg) {
  const Raised raised = Raised::take();
  try {
    static_cast<void>(group_of(autotune_pg));
  } catch (const ErrorSet&) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
    PyErr_Clear();
  }
  raised.restore();
  return true;
}

[[gnu::noinline]] PyObject* call_stripped(PyObject* self, LauncherState& state,
                                          PyObject* const* args, Py_ssize_t positional,
                                          PyObject* keywords) {
  try {
    StrippedCall call(state, args, positional, keywords);
    const Arguments& arguments = call.arguments();
    try {
      call.settle(state);
    } catch (const ErrorSet&) {
      if (!call.options().tune) throw;
      if (!meet(call.options().group)) return nullptr;
      return ended_early(call.options().group);
    }
    if (!call.options().tune) {
      if (!state.fn) throw Error("disttune: this tuned function is being destroyed");
      const ChoiceRef choice = state.default_choice();
      return state.run(*choice, arguments, nullptr, call.options().overwrites);
    }
    std::unique_ptr<CallShape> spare;
    CallShape* shape = arguments.keyword_count() == 0
                           ? nullptr
                           : state.shape_of(arguments.keywords, arguments.positional, spare);
    return call_keyed(self, state, arguments, shape, call.options());
  } catch (...) {
    set_from_current_exception();
    return nullptr;
  }
}

bool is_true(PyObject* object) {
  const int truth = PyObject_IsTrue(object);
  checked(truth);
  return truth == 1;
}

}  // namespace

PyObject* ended_early(PyObject* autotune_pg) {
  set_from_current_exception();
  const Raised raised = Raised::take();
  const GroupSeat seat = known_group(autotune_pg);
  if (seat.group != nullptr) {
    const std::string why = "it raised before it could be tuned: " + text_of(raised.exception());
    const NoGil released;
    detail::abandon_call(*seat.group, why);
  }
  raised.restore();
  return nullptr;
}

void write_table_key(TableKey& key, const LauncherState& state, const Arguments& arguments,
                     CallShape* shape, const CallOptions& options) {
  KeyObjects objects(state.key_size());
  const std::uint64_t place = state.place(arguments, shape, group_serial_of(options));
  state.take_key(objects, arguments, shape);
  finish_key(key, place, objects, state, arguments, options);
}

PyObject* call_keyed(PyObject* self, LauncherState& state, const Arguments& arguments,
                     CallShape* shape, const CallOptions& options) {
  KeyObjects objects(state.key_size());
  std::uint64_t place = 0;
  try {
    place = state.place(arguments, shape, group_serial_of(options));
    state.take_key(objects, arguments, shape);
  } catch (...) {
    return ended_early(options.group);
  }
  Choice* found = options.overwrites ? nullptr : state.recent.find(objects, place, state.table);
  if (found == nullptr) [[unlikely]]
    return call_by_table(self, state, arguments, shape, options, objects, place);
  return run_chosen(state, found, arguments, shape, options, objects);
}

PyObject* call_launcher(PyObject* self, PyObject* const* args, std::size_t nargsf,
                        PyObject* keywords) {
  LauncherState& state = state_of(self);
  const Py_ssize_t positional = PyVectorcall_NARGS(nargsf);
  try {
    if (keywords == nullptr || PyTuple_GET_SIZE(keywords) == 0) {
      if (positional > state.first_tuned_position) [[unlikely]]
        return call_stripped(self, state, args, positional, nullptr);
      return call_keyed(self, state, {args, positional, nullptr}, nullptr, {});
    }
    std::unique_ptr<CallShape> spare;
    CallShape* shape = state.shape_of(keywords, positional, spare);
    if (!shape->plain) return call_stripped(self, state, args, positional, keywords);
    return call_keyed(self, state, {args, positional, keywords}, shape, {});
  } catch (...) {
    set_from_current_exception();
    return nullptr;
  }
}

StrippedCall::StrippedCall(const LauncherState& state, PyObject* const* args, Py_ssize_t positional,
                           PyObject* keywords) {
  take_out(args, positional, keywords);
  if (m_arguments.positional > state.first_tuned_position) m_options.overwrites = true;
  for (Py_ssize_t i = 0; i < m_arguments.keyword_count(); ++i)
    if (state.is_tuned(PyTuple_GET_ITEM(m_arguments.keywords, i))) m_options.overwrites = true;
}

void StrippedCall::take_out(PyObject* const* args, Py_ssize_t positional, PyObject* keywords) {
  const OwnKeywords& own = own_keywords();
  m_values.assign(args, args + positional);
  std::vector<PyObject*> kept;
  const Py_ssize_t count = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, i);
    PyObject* value = args[positional + i];
    const auto is = [&](PyObject* name) { return same_name(name, keyword); };
    if (is(own.autotune)) {
      m_tune = value;
    } else if (is(own.verbose)) {
      m_verbose = value;
    } else if (is(own.allow_overwrite)) {
      m_allow_overwrite = value;
    } else if (is(own.group)) {
      m_options.group = value;
    } else {
      kept.push_back(keyword);
      m_values.push_back(value);
    }
  }
  if (!kept.empty()) {
    m_keywords = checked(PyTuple_New(static_cast<Py_ssize_t>(kept.size())));
    for (std::size_t i = 0; i < kept.size(); ++i)
      PyTuple_SET_ITEM(m_keywords.get(), static_cast<Py_ssize_t>(i), Py_NewRef(kept[i]));
  }
  m_arguments = {m_values.data(), positional, m_keywords.get()};
}

void StrippedCall::settle(const LauncherState& state) {
  m_options.tune = is_true(m_tune);
  m_options.verbose = is_true(m_verbose);
  m_options.allow_overwrite = is_true(m_allow_overwrite);
  refuse_collisions(state);
}

void StrippedCall::refuse_collisions(const LauncherState& state) const {
  if (!m_options.overwrites || m_options.allow_overwrite) return;
  std::string names;
  for (const auto& [name, value] : state.overwritten(m_arguments))
    names += (names.empty() ? "'" : "', '") + message_text(name);
  PyErr_Format(
      PyExc_ValueError,
      "disttune: %s() was given %s', which its tuning sets; leave it out (put tuned parameters "
      "last in the signature, or pass those after them by name), or pass "
      "autotune_allow_arg_overwrite=True to let the argument win",
      state.name.c_str(), names.c_str());
  throw ErrorSet{};
}

Value TableKey::key() const {
  return value_of(bytes.view().substr(k_place_size, key_end - k_place_size));
}

Value TableKey::overwritten() const {
  return bytes.size() == key_end ? Value() : value_of(bytes.view(key_end));
}

}  // namespace disttune::python
