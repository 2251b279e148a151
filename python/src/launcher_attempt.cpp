#include "launcher_attempt.hpp"

#include "errors.hpp"
#include "in_python.hpp"

namespace disttune::python {
namespace {

bool hook_says(PyObject* hooks, const char* name) {
  const Ref flag = checked(PyObject_GetAttrString(hooks, name));
  const int truth = PyObject_IsTrue(flag.get());
  checked(truth);
  return truth == 1;
}

}  // namespace

LauncherAttempt::LauncherAttempt(LauncherState& state, const Arguments& arguments, CallShape* shape,
                                 const CallOptions& options, const TableKey& key)
    : m_state(state),
      m_arguments(arguments),
      m_shape(shape),
      m_options(options),
      m_key(key),
      m_can_prepare(hook_says(state.hooks.get(), "can_prepare")),
      m_guarded(hook_says(state.hooks.get(), "guarded")) {}

LauncherAttempt::~LauncherAttempt() = default;

Ref LauncherAttempt::call_with_entry(PyObject* function, std::size_t candidate, bool copy) const {
  Ref entry = checked(PyDict_Copy(m_state.entries[candidate].mapping.get()));
  if (copy) {
    const ChoiceRef mine = m_state.copy_of(candidate);
    for (std::size_t i = 0; i < mine->values().size(); ++i)
      checked(PyDict_SetItem(entry.get(),
                             PyTuple_GET_ITEM(mine->names(), static_cast<Py_ssize_t>(i)),
                             mine->values()[i].get()));
  }
  std::vector<PyObject*> values{entry.get()};
  values.insert(values.end(), m_arguments.values, m_arguments.values + m_arguments.count());
  return Ref::steal(PyObject_Vectorcall(function, values.data(),
                                        static_cast<std::size_t>(m_arguments.positional) + 1,
                                        m_arguments.keywords));
}

bool LauncherAttempt::admits(std::size_t candidate) {
  if (m_state.prune_fn.get() == Py_None) return true;
  const Gil gil;
  try {
    const Ref kept = call_with_entry(m_state.prune_fn.get(), candidate, false);
    if (!kept) throw ErrorSet{};
    const int truth = PyObject_IsTrue(kept.get());
    checked(truth);
    return truth == 1;
  } catch (const ErrorSet&) {
    throw_raised();
  }
}

void LauncherAttempt::prepare(std::size_t candidate) {
  const Gil gil;
  try {
    const Ref function = checked(PyObject_GetAttrString(m_state.hooks.get(), "prepare"));
    if (!call_with_entry(function.get(), candidate, true)) throw ErrorSet{};
  } catch (const ErrorSet&) {
    throw_candidate_failure("prepare");
  }
}

void LauncherAttempt::take_copy(std::size_t candidate) { m_copy = m_state.copy_of(candidate); }

void LauncherAttempt::begin_visit(std::size_t candidate, std::size_t runs) {
  const Gil gil;
  // Signals are seen between visits too, not only by the launcher's own code.
  if (PyErr_CheckSignals() < 0) throw_raised();
  try {
    take_copy(candidate);
  } catch (const ErrorSet&) {
    throw_candidate_failure("copy");
  }
  m_results.reserve(runs);
}

void LauncherAttempt::run(std::size_t candidate) {
  const Gil gil;
  try {
    if (!m_copy || m_copy->candidate() != static_cast<Py_ssize_t>(candidate)) take_copy(candidate);
  } catch (const ErrorSet&) {
    throw_candidate_failure("copy");
  }
  // One result at a time: its memory goes to the next run, as with a caller that calls again and
  // again. Ten results at once would be ten buffers, and no cache would be hot. A destructor that
  // waits for the device defeats the gate; the stopwatch notices and learns.
  m_results.clear();
  PyObject* result = m_state.run(*m_copy, m_arguments, m_shape, m_options.overwrites);
  if (result == nullptr) throw_candidate_failure("run");
  m_results.push_back(Ref::steal(result));
}

void LauncherAttempt::drop_results() noexcept {
  // Destructors may run Python code: the exception of a failing candidate must survive them.
  in_python_quietly([&] { m_results.clear(); });
}

PyObject* LauncherAttempt::guard() {
  if (!m_guard) {
    const Ref make = checked(PyObject_GetAttrString(m_state.hooks.get(), "guard"));
    m_guard = checked(PyObject_CallFunctionObjArgs(make.get(), m_arguments.tuple().get(),
                                                   m_arguments.dict().get(), nullptr));
  }
  return m_guard.get();
}

void LauncherAttempt::restore() {
  if (m_guarded) checked(PyObject_CallMethod(guard(), "before_run", nullptr));
}

void LauncherAttempt::give_back() noexcept {
  if (!m_guard) return;
  const Ref done = Ref::steal(
      or_stand_still([&] { return PyObject_CallMethod(m_guard.get(), "give_back", nullptr); }));
  if (!done) PyErr_Clear();  // the exception that ended the tuning is the one to see
}

void LauncherAttempt::before_run() {
  if (!m_guarded) return;
  const Gil gil;
  try {
    restore();
  } catch (const ErrorSet&) {
    throw_raised();
  }
}

void LauncherAttempt::expect() {
  const Gil gil;
  try {
    checked(PyObject_CallMethod(guard(), "expect", nullptr));
  } catch (const ErrorSet&) {
    throw_raised();
  }
}

std::optional<std::string> LauncherAttempt::check(std::size_t candidate) {
  expect();  // where nothing is tuned
  const Gil gil;
  try {
    const ChoiceRef mine = m_state.copy_of(candidate);
    const Ref values = checked(PyDict_New());
    for (std::size_t i = 0; i < mine->values().size(); ++i)
      checked(PyDict_SetItem(values.get(),
                             PyTuple_GET_ITEM(mine->names(), static_cast<Py_ssize_t>(i)),
                             mine->values()[i].get()));
    if (m_options.overwrites)  // the caller's own values win here too
      for (const auto& [name, value] : m_state.overwritten(m_arguments))
        if (const int held = PyDict_Contains(values.get(), name); held > 0)
          checked(PyDict_DelItem(values.get(), name));
    const Ref verdict = checked(PyObject_CallMethod(guard(), "check", "O", values.get()));
    if (verdict.get() == Py_None) return std::nullopt;
    return message_text(verdict.get());
  } catch (const ErrorSet&) {
    throw_candidate_failure("check");
  }
}

void LauncherAttempt::decided(std::size_t candidate) {
  const Gil gil;
  const Choice* known = m_state.table.find(m_key.view(), m_key.hash);
  if (known != nullptr && known->candidate() == static_cast<Py_ssize_t>(candidate)) return;
  try {
    m_state.table.insert(m_key.view(), m_key.hash, m_state.copy_of(candidate));
  } catch (const ErrorSet&) {
    throw_raised();
  }
}

}  // namespace disttune::python
