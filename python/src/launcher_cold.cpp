// The cold path: from a miss in the memory table to the session and back.
#include <memory>
#include <optional>

#include "bindings.hpp"
#include "describe.hpp"
#include "errors.hpp"
#include "launcher.hpp"
#include "launcher_attempt.hpp"
#include "observe/observe.hpp"
#include "records.hpp"
#include "surroundings.hpp"

namespace disttune::python {
namespace {

Stream stream_of(const LauncherState& state, const Arguments& arguments) {
  const Ref find = checked(PyObject_GetAttrString(state.hooks.get(), "stream"));
  const Ref found = checked(PyObject_CallFunctionObjArgs(find.get(), arguments.tuple().get(),
                                                         arguments.dict().get(), nullptr));
  if (found.get() == Py_None) return {};
  PyObject* device = nullptr;
  PyObject* handle = nullptr;
  if (PyArg_ParseTuple(found.get(), "OO:stream", &device, &handle) == 0) throw ErrorSet{};
  if (device == Py_None) return {};
  void* pointer = handle == Py_None ? nullptr : PyLong_AsVoidPtr(handle);
  if (pointer == nullptr && PyErr_Occurred() != nullptr) throw ErrorSet{};
  return {device_of(device), pointer};
}

/// A call that does not fit the signature is the caller's error, not that of every candidate.
void bind(const LauncherState& state, const Arguments& arguments) {
  const Ref check = checked(PyObject_GetAttrString(state.hooks.get(), "bind"));
  checked(PyObject_CallFunctionObjArgs(check.get(), arguments.tuple().get(), arguments.dict().get(),
                                       nullptr));
}

detail::Outcome decide(LauncherState& state, const detail::Call& call, LauncherAttempt& attempt) {
  detail::Outcome outcome;
  Messages::around([&] {
    try {
      outcome = detail::decide(*state.session, call, attempt);
    } catch (...) {
      const Gil gil;
      attempt.give_back();
      throw;
    }
  });
  return outcome;
}

/// A cold call, from where nothing can fail any more that the session would not hear of.
struct ColdCall {
  ColdCall(LauncherState& state, const Arguments& arguments, CallShape* shape,
           const CallOptions& options, const TableKey& key, Stream stream)
      : seat(group_of(options.group)),
        call{key.key(), key.overwritten(), std::move(stream), seat.group, options.verbose},
        attempt(state, arguments, shape, options, key) {}

  GroupSeat seat;
  detail::Call call;
  LauncherAttempt attempt;
};

/// Python counts its own frames, but not how much stack a cold call takes between two of them.
constexpr int k_deepest = 200;

/// A cold call of this thread, inside others.
class Depth {
 public:
  explicit Depth(const LauncherState& state) {
    if (t_depth >= k_deepest) {
      PyErr_Format(PyExc_RecursionError,
                   "disttune: %s() is met with a new key inside %d other cold calls: it seems to "
                   "call itself without end",
                   state.name.c_str(), k_deepest);
      throw ErrorSet{};
    }
    ++t_depth;
  }
  ~Depth() { --t_depth; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  static thread_local int t_depth;
};
thread_local int Depth::t_depth = 0;

PyObject* run_cold(LauncherState& state, const Arguments& arguments, CallShape* shape,
                   const CallOptions& options, const TableKey& key, ColdCall& cold) {
  LauncherAttempt& attempt = cold.attempt;
  const Depth deeper(state);
  const detail::Outcome outcome = decide(state, cold.call, attempt);
  ChoiceRef choice;
  if (outcome.decided) {
    attempt.decided(outcome.candidate);
    choice = share(state.table.find(key.view(), key.hash));
  }
  if (!choice) choice = state.copy_of(outcome.candidate);
  if (outcome.restore) attempt.restore();
  return state.run(*choice, arguments, shape, options.overwrites);
}

void warn_of_overwriting(const LauncherState& state, const Arguments& arguments) {
  std::string names;
  for (const auto& [name, value] : state.overwritten(arguments))
    names += (names.empty() ? "'" : "', '") + message_text(name);
  const std::string text = "disttune: " + state.name + "() is called with " + names +
                           "' of the caller's instead of its tuning's; it is tuned for these "
                           "values apart";
  // Functions of two modules may share their name.
  const std::string cause = state.session->spec().module + ": " + text;
  Messages::around([&] { observe::message(Level::warning, text, cause); });
}

std::shared_ptr<LiveEntries> live_entries(const LauncherState& state) {
  auto live = std::make_shared<LiveEntries>();
  const auto& candidates = state.session->spec().candidates;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    live->emplace(candidates[i].identity(), state.entries[i].mapping);
  return live;
}

/// What a choice in memory runs; an entry that the caller has put there joins `live`.
Config config_of(const LauncherState& state, const Choice& choice, LiveEntries& live) {
  if (choice.candidate() >= 0)
    return state.session->spec().candidates[static_cast<std::size_t>(choice.candidate())];
  Config config;
  for (std::size_t i = 0; i < choice.values().size(); ++i) {
    PyObject* const value = choice.values()[i].get();
    const std::string name(utf8(PyTuple_GET_ITEM(choice.names(), static_cast<Py_ssize_t>(i))));
    try {
      config.set(name, describe(value, name, Callables::describe));
    } catch (const ErrorSet&) {  // it need not be one of those that a space may hold
      PyErr_Clear();
      const Ref text = checked(PyObject_Repr(value));
      config.set(name, Value(message_text(text.get())));
    }
  }
  live.insert_or_assign(config.identity(), Ref::borrow(choice.entry()));
  return config;
}

/// What explain and result are asked about.
struct Question {
  TableKey key;
  GroupSeat seat;
  detail::Call call;
};

void ask(Question& question, const LauncherState& state, StrippedCall& stripped) {
  stripped.settle(state);
  const Arguments& arguments = stripped.arguments();
  std::unique_ptr<CallShape> spare;
  CallShape* shape = arguments.keyword_count() == 0
                         ? nullptr
                         : state.shape_of(arguments.keywords, arguments.positional, spare);
  Stream stream = stream_of(state, arguments);  // first: it may notice that devices differ
  write_table_key(question.key, state, arguments, shape, stripped.options());
  question.seat = group_of(stripped.options().group);
  question.call = {question.key.key(), question.key.overwritten(), std::move(stream),
                   question.seat.group, false};
}

}  // namespace

PyObject* call_cold(PyObject* self, const Arguments& arguments, CallShape* shape,
                    const CallOptions& options, const TableKey& key) {
  LauncherState& state = state_of(self);
  std::optional<ColdCall> cold;
  try {
    if (!state.fn) throw Error("disttune: this tuned function is being destroyed");
    const bool differed = g_devices_differ;
    Stream stream = stream_of(state, arguments);
    if (differed == g_devices_differ) {
      if (options.overwrites) warn_of_overwriting(state, arguments);
      bind(state, arguments);
      cold.emplace(state, arguments, shape, options, key, std::move(stream));
    }
  } catch (...) {
    return ended_early(options.group);
  }
  // The first tensors of an accelerator make places differ: the key is made again.
  if (!cold) return call_keyed(self, state, arguments, shape, options);
  return run_cold(state, arguments, shape, options, key, *cold);
}

Ref explain_call(PyObject* self, StrippedCall call) {
  LauncherState& state = state_of(self);
  Question question;
  ask(question, state, call);
  Explanation explanation;
  const ChoiceRef known = share(state.table.find(question.key.view(), question.key.hash));
  LauncherAttempt attempt(state, call.arguments(), nullptr, call.options(), question.key);
  Messages::around([&] {
    explanation = detail::explain(*state.session, question.call,
                                  [&](std::size_t i) { return known || attempt.admits(i); });
  });
  auto live = live_entries(state);
  if (known) {
    const bool stored = explanation.source == "store" || explanation.source == "layer";
    explanation.source = "memory";
    explanation.config = config_of(state, *known, *live);
    if (!stored) {  // a default that MODE put there, or a choice that could not be stored
      explanation.differences.clear();
      if (!explanation.miss_reason.empty())
        explanation.differences.push_back("not from the store: " + explanation.miss_reason);
    }
    explanation.miss_reason.clear();
  }
  return wrap(ShownExplanation{std::move(explanation), std::move(live)});
}

Ref result_of_call(PyObject* self, StrippedCall call) {
  LauncherState& state = state_of(self);
  Question question;
  ask(question, state, call);
  std::optional<Record> record;
  Messages::around([&] { record = detail::result(*state.session, question.call); });
  if (!record) return Ref::borrow(Py_None);
  return wrap(ShownRecord{std::move(*record), live_entries(state)});
}

}  // namespace disttune::python
