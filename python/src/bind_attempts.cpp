// What a front end in Python needs to drive the session itself: kernels, attempts and passes of
// contextual tuning.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "describe.hpp"
#include "disttune/contextual.hpp"
#include "errors.hpp"
#include "in_python.hpp"
#include "records.hpp"
#include "surroundings.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

/// A Python object with `run(candidate)`, `decided(candidate)` and what it has of `admits`,
/// `prepare`, `begin_visit(candidate, runs)`, `before_run`, `check` and `drop_results`.
class PythonAttempt final : public detail::Attempt {
 public:
  explicit PythonAttempt(PyObject* object)
      : m_run(checked(PyObject_GetAttrString(object, "run"))),
        m_decided(checked(PyObject_GetAttrString(object, "decided"))),
        m_admits(optional_attribute(object, "admits")),
        m_prepare(optional_attribute(object, "prepare")),
        m_begin_visit(optional_attribute(object, "begin_visit")),
        m_before_run(optional_attribute(object, "before_run")),
        m_check(optional_attribute(object, "check")),
        m_drop_results(optional_attribute(object, "drop_results")) {}

  bool admits(std::size_t candidate) override {
    if (!m_admits) return true;
    const Gil gil;
    const Ref kept = call(m_admits, candidate);
    const int truth = kept ? PyObject_IsTrue(kept.get()) : -1;
    if (truth < 0) throw_raised();
    return truth == 1;
  }
  bool can_prepare() const override { return static_cast<bool>(m_prepare); }
  void prepare(std::size_t candidate) override { must(m_prepare, candidate, "prepare"); }
  void begin_visit(std::size_t candidate, std::size_t runs) override {
    if (!m_begin_visit) return;
    const Gil gil;
    if (!Ref::steal(PyObject_CallFunction(m_begin_visit.get(), "nn",
                                          static_cast<Py_ssize_t>(candidate),
                                          static_cast<Py_ssize_t>(runs))))
      throw_candidate_failure("copy");
  }
  void before_run() override {
    if (!m_before_run) return;
    const Gil gil;
    if (!Ref::steal(PyObject_CallNoArgs(m_before_run.get()))) throw_raised();
  }
  void run(std::size_t candidate) override { must(m_run, candidate, "run"); }
  std::optional<std::string> check(std::size_t candidate) override {
    if (!m_check) return std::nullopt;
    const Gil gil;
    const Ref verdict = call(m_check, candidate);
    if (!verdict) throw_candidate_failure("check");
    if (verdict.get() == Py_None) return std::nullopt;
    return message_text(verdict.get());
  }
  void drop_results() noexcept override {
    if (!m_drop_results) return;
    in_python_quietly([&] { checked(PyObject_CallNoArgs(m_drop_results.get())); });
  }
  void decided(std::size_t candidate) override {
    const Gil gil;
    if (!call(m_decided, candidate)) throw_raised();
  }

 private:
  static Ref call(const Ref& method, std::size_t candidate) {
    const Ref index = Ref::steal(PyLong_FromSize_t(candidate));
    return index ? Ref::steal(PyObject_CallOneArg(method.get(), index.get())) : Ref{};
  }
  static void must(const Ref& method, std::size_t candidate, std::string_view stage) {
    const Gil gil;
    if (!call(method, candidate)) throw_candidate_failure(stage);
  }

  Ref m_run, m_decided, m_admits, m_prepare, m_begin_visit, m_before_run, m_check, m_drop_results;
};

/// A launcher whose table and attempts are the front end's own.
struct Kernel {
  std::shared_ptr<LiveEntries> live = std::make_shared<LiveEntries>();
  std::unique_ptr<detail::Launcher> launcher;
};

Kernel make_kernel(std::string name, std::string module, nb::list candidates, nb::object identity,
                   std::optional<std::string> strategy, std::optional<std::string> timer,
                   std::optional<std::string> cache, std::optional<std::string> store) {
  Kernel kernel;
  detail::LauncherSpec spec;
  spec.name = std::move(name);
  spec.module = std::move(module);
  for (const nb::handle candidate : candidates) {
    Config config;
    for (const auto& [field, value] : nb::cast<nb::dict>(candidate))
      config.set(nb::cast<std::string>(field),
                 describe(value.ptr(), "candidate", Callables::describe));
    kernel.live->emplace(config.identity(), Ref::borrow(candidate.ptr()));
    spec.candidates.push_back(std::move(config));
  }
  spec.options.strategy = std::move(strategy);
  spec.options.timer = std::move(timer);
  spec.options.cache = std::move(cache);
  spec.options.store = std::move(store);
  const std::shared_ptr<PyObject> function(Py_NewRef(identity.ptr()), [](PyObject* held) {
    if (Py_IsInitialized() == 0) return;
    const Gil gil;
    Py_DECREF(held);
  });
  spec.identity = [function] {
    const Gil gil;
    try {
      return describe(checked(PyObject_CallNoArgs(function.get())).get(), "identity");
    } catch (const ErrorSet&) {
      throw_raised();
    }
  };
  kernel.launcher = std::make_unique<detail::Launcher>(std::move(spec));
  return kernel;
}

/// What a call brings along, with what keeps it alive.
struct HeldCall {
  GroupSeat seat;
  detail::Call call;
};

HeldCall held_call(const nb::object& key, const nb::object& device, std::uintptr_t stream,
                   const nb::object& group, bool verbose) {
  HeldCall held;
  held.call.key = describe(key.ptr(), "key");
  if (!device.is_none())
    held.call.stream = {device_of(device.ptr()), reinterpret_cast<void*>(stream)};
  if (!group.is_none()) {
    held.seat.object = Ref::borrow(group.ptr());
    held.call.group = group_pointer(group.ptr());
  }
  held.call.verbose = verbose;
  return held;
}

/// A running pass, for as long as it runs.
struct ShownPass {
  detail::Pass* pass = nullptr;
};

void answer(const ShownPass& shown, const Kernel& kernel, nb::object key, nb::object attempt,
            nb::object device, std::uintptr_t stream, nb::object group) {
  if (shown.pass == nullptr) throw Error("disttune: this pass of the outer function has ended");
  const HeldCall held = held_call(key, device, stream, group, false);
  PythonAttempt wrapped(attempt.ptr());
  Messages messages;
  {
    const NoGil released;
    shown.pass->answer(*kernel.launcher, held.call, wrapped);
  }
  messages.flush();
}

nb::tuple decide(const Kernel& kernel, nb::object key, nb::object attempt, nb::object device,
                 std::uintptr_t stream, nb::object group, bool verbose) {
  const HeldCall held = held_call(key, device, stream, group, verbose);
  PythonAttempt wrapped(attempt.ptr());
  Messages messages;
  detail::Outcome outcome;
  {
    const NoGil released;
    outcome = detail::decide(*kernel.launcher, held.call, wrapped);
  }
  messages.flush();
  return nb::make_tuple(outcome.candidate, outcome.decided, outcome.source, outcome.restore);
}

void run_outer(const nb::object& outer, detail::Pass& pass) {
  const Gil gil;
  // Owned by Python: code of the outer function may keep it beyond the pass.
  const nb::object shown = nb::cast(ShownPass{&pass});
  const Ref result = Ref::steal(PyObject_CallOneArg(outer.ptr(), shown.ptr()));
  nb::cast<ShownPass&>(shown).pass = nullptr;
  if (!result) throw_raised();
}

/// `decided(name, key, candidates, winner)` with what a front end puts into its kernel.
void tell_decided(const nb::object& decided, const detail::Launcher& kernel, const Value& key,
                  const TuningRecord& tuning, std::size_t winner) {
  const Gil gil;
  try {
    const auto live = std::make_shared<LiveEntries>();
    Record record;
    record.name = kernel.spec().name;
    record.module = kernel.spec().module;
    record.key.key = key;
    record.tunings.push_back(tuning);
    decided(record.name, key, nb::cast(ShownRecord{std::move(record), live}), winner);
  } catch (nb::python_error& error) {
    error.restore();
    throw_raised();
  }
}

void run_contextual(const std::string& name, nb::object outer, int n_warmup, int n_repeat,
                    nb::object group, std::string cache, std::string strategy, nb::object decided) {
  ContextualOptions options;
  options.n_warmup = n_warmup;
  options.n_repeat = n_repeat;
  options.cache = std::move(cache);
  options.strategy = std::move(strategy);
  if (!group.is_none()) options.group = group_pointer(group.ptr());
  detail::ContextDecided tell;
  if (!decided.is_none())
    tell = [&](const detail::Launcher& kernel, const Value& key, const TuningRecord& tuning,
               std::size_t winner) { tell_decided(decided, kernel, key, tuning, winner); };
  Messages messages;
  {
    const NoGil released;
    detail::run_contextual(
        name, options, [&](detail::Pass& pass) { run_outer(outer, pass); }, tell);
  }
  messages.flush();
}

}  // namespace

void bind_attempts(nb::module_& m) {
  nb::class_<Kernel>(m, "Kernel", "A tuned kernel of a front end: candidates and identity.")
      .def_prop_ro("name", [](const Kernel& k) { return k.launcher->spec().name; });
  m.def("make_kernel", &make_kernel, nb::arg("name"), nb::arg("module"), nb::arg("candidates"),
        nb::arg("identity"), nb::kw_only(), nb::arg("strategy") = nb::none(),
        nb::arg("timer") = nb::none(), nb::arg("cache") = nb::none(), nb::arg("store") = nb::none(),
        "`candidates`: dicts, the first is the default; `identity()`: a dict of texts, asked once. "
        "It must not refer to the kernel that is made here.");
  nb::class_<ShownPass>(m, "Pass", "One run of the outer function of a contextual call.")
      .def("answer", &answer, nb::arg("kernel"), nb::arg("key").none(), nb::arg("attempt"),
           nb::kw_only(), nb::arg("device").none() = nb::none(), nb::arg("stream") = 0,
           nb::arg("group").none() = nb::none(),
           "Take one step of the kernel's context with this launch. `attempt` has "
           "`run(candidate)`, `decided(candidate)` and, where they matter, `admits(candidate)`, "
           "`prepare(candidate)`, `begin_visit(candidate, runs)`, `before_run()`, "
           "`check(candidate)`, `drop_results()`. Callable from any thread.");
  m.def("decide", &decide, nb::arg("kernel"), nb::arg("key").none(), nb::arg("attempt"),
        nb::kw_only(), nb::arg("device").none() = nb::none(), nb::arg("stream") = 0,
        nb::arg("group").none() = nb::none(), nb::arg("verbose") = false,
        "A cold call of a kernel by itself: (candidate, decided, source, restore).");
  m.def("run_contextual", &run_contextual, nb::arg("name"), nb::arg("outer"), nb::kw_only(),
        nb::arg("n_warmup"), nb::arg("n_repeat"), nb::arg("group").none() = nb::none(),
        nb::arg("cache") = "cold", nb::arg("strategy") = "", nb::arg("decided").none() = nb::none(),
        "Run `outer(pass)` until no kernel that it reaches is left to tune, then once more. "
        "`decided(name, key, record, winner)` is told between passes.");
  m.def(
      "abandon_call",
      [](nb::object group, const std::string& why) {
        ProcessGroup* pointer = group_pointer(group.ptr());
        const NoGil released;
        if (pointer != nullptr) detail::abandon_call(*pointer, why);
      },
      nb::arg("group"), nb::arg("why"));
}

}  // namespace disttune::python
