// Contextual tuning for a front end that is written in Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "attempts.hpp"
#include "disttune/contextual.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

/// As `autotune` calls it: its own name, or that of its type.
std::string clock_name_of(const nb::object& clock) {
  return nb::str(nb::getattr(clock, "__name__", nb::getattr(clock.type(), "__name__"))).c_str();
}

/// A contextual call whose first pass Python runs itself.
class Contextual {
 public:
  Contextual(std::string name, ContextualOptions options, nb::object group, nb::object decided)
      : m_group(std::move(group)),
        m_decided(std::move(decided)),
        m_call(std::move(name), with_group(std::move(options)),
               [this](const detail::Launcher& kernel, const Value&, const TuningRecord& tuning,
                      std::size_t winner) { tell(kernel, tuning, winner); }) {}

  /// One launch. The kernel object is kept until the call ends: the session refers to it.
  void answer(nb::object kernel, const nb::object& key, const nb::object& attempt,
              const nb::object& device, std::uintptr_t stream) {
    if (m_over) throw Error("disttune: this contextual call has ended");
    const auto& launcher = *nb::cast<const Kernel&>(kernel).launcher;
    m_kernels.try_emplace(&launcher, std::move(kernel));
    const HeldCall held = held_call(key, device, stream, nb::none(), false);
    PythonAttempt wrapped(attempt.ptr());
    Messages::around([&] { m_call.pass().answer(launcher, held.call, wrapped); });
  }

  void complete(const nb::object& outer) {
    Messages::around([&] {
      m_call.complete([&](detail::Pass&) {
        const Gil gil;
        if (Ref::steal(PyObject_CallNoArgs(outer.ptr()))) return;
        if (PyErr_ExceptionMatches(PyExc_Exception) == 0 || !settled_by_complete()) throw_raised();
        PyErr_Clear();  // of a kernel for which nothing works: the ranks say so together
      });
      const Gil gil;
      m_over = true;
    });
  }

  void abandon(const std::string& why) {
    m_over = true;
    const NoGil released;
    m_call.abandon(why);
  }

  bool settled_by_complete() {
    const NoGil released;
    return m_call.settled_by_complete();
  }

  void note(const std::string& line) {
    const NoGil released;
    m_call.note(line);
  }

 private:
  ContextualOptions with_group(ContextualOptions options) const {
    if (!m_group.is_none()) options.group = group_pointer(m_group.ptr());
    return options;
  }

  /// `decided(kernel, winner, candidates)`, candidates as (place, status, reason, samples).
  void tell(const detail::Launcher& launcher, const TuningRecord& tuning, std::size_t winner) {
    const Gil gil;
    try {
      nb::list candidates;
      for (const CandidateRecord& c : tuning.candidates) {
        const auto& space = launcher.spec().candidates;
        const auto at = std::ranges::find(space, c.config.identity(), &Config::identity);
        if (at == space.end()) continue;  // stored, and no longer one of them
        nb::list samples;
        for (const std::int64_t ns : c.samples_ns) samples.append(ns);
        candidates.append(
            nb::make_tuple(at - space.begin(), to_string(c.status), c.reason, samples));
      }
      m_decided(m_kernels.at(&launcher), winner, candidates);
      return;
    } catch (nb::python_error& error) {
      error.restore();
    }
    throw_raised();
  }

  nb::object m_group;
  nb::object m_decided;
  std::unordered_map<const detail::Launcher*, nb::object> m_kernels;
  bool m_over = false;
  detail::ContextualCall m_call;  // last: it refers to all of the above
};

Contextual* make_contextual(std::string name, std::optional<int> n_warmup,
                            std::optional<int> n_repeat, nb::object group, std::string cache,
                            std::string strategy, const nb::object& timer, int rank, bool persist,
                            nb::object decided) {
  ContextualOptions options;
  options.n_warmup = n_warmup;
  options.n_repeat = n_repeat;
  options.cache = std::move(cache);
  options.strategy = std::move(strategy);
  options.rank = rank;
  options.persist = persist;
  if (nb::isinstance<nb::str>(timer))
    options.timer = nb::cast<std::string>(timer);
  else if (!timer.is_none()) {
    options.clock = [clock = owned_by_any_thread(Ref::borrow(timer.ptr()))] {
      return read_clock(clock.get());
    };
    options.clock_name = clock_name_of(timer);
  }
  return new Contextual(std::move(name), std::move(options), std::move(group), std::move(decided));
}

}  // namespace

void bind_contextual(nb::module_& m) {
  nb::class_<Contextual>(m, "Contextual",
                         "A contextual call, from the first launch that is not decided.")
      .def("answer", &Contextual::answer, nb::arg("kernel"), nb::arg("key").none(),
           nb::arg("attempt"), nb::kw_only(), nb::arg("device").none() = nb::none(),
           nb::arg("stream") = 0,
           "Take one step of the kernel's context with this launch. `attempt` has "
           "`run(candidate)`, `decided(candidate)` and, where they matter, `admits(candidate)`, "
           "`held()`, `prepare(candidate)`, `begin_visit(candidate, runs)`, `before_run()`, "
           "`drop_results()`, `data()` (integers that name what `before_final_run(candidate)` puts "
           "back). Callable from any thread.")
      .def("complete", &Contextual::complete, nb::arg("outer"),
           "After the first pass: run `outer()` until no kernel is left to tune, then once more.")
      .def("abandon", &Contextual::abandon, nb::arg("why"),
           "The first pass raised: tell the other ranks.")
      .def(
          "settled_by_complete", &Contextual::settled_by_complete,
          "Whether the first pass raised over a kernel with nothing left to run on this rank: then "
          "`complete` raises NoValidConfig on all ranks.")
      .def("note", &Contextual::note, nb::arg("line"), "Add a line to the log.");
  m.def("make_contextual", &make_contextual, nb::rv_policy::take_ownership, nb::arg("name"),
        nb::kw_only(), nb::arg("n_warmup").none(), nb::arg("n_repeat").none(),
        nb::arg("group").none(), nb::arg("cache"), nb::arg("strategy"), nb::arg("timer").none(),
        nb::arg("rank"), nb::arg("persist"), nb::arg("decided"),
        "`decided(kernel, winner, candidates)` is told ahead of the last pass; `candidates` is a "
        "list of (place, status, reason, samples in nanoseconds).");
}

}  // namespace disttune::python
