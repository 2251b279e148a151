// What a front end in Python needs to drive the session itself: kernels and attempts.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "attempts.hpp"
#include "bindings.hpp"
#include "describe.hpp"
#include "errors.hpp"
#include "in_python.hpp"
#include "surroundings.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

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
  spec.identity = [function = owned_by_any_thread(Ref::borrow(identity.ptr()))] {
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

nb::tuple decide(const Kernel& kernel, nb::object key, nb::object attempt, nb::object device,
                 std::uintptr_t stream, nb::object group, bool verbose) {
  const HeldCall held = held_call(key, device, stream, group, verbose);
  PythonAttempt wrapped(attempt.ptr());
  detail::Outcome outcome;
  Messages::around([&] { outcome = detail::decide(*kernel.launcher, held.call, wrapped); });
  return nb::make_tuple(outcome.candidate, outcome.decided, outcome.source, outcome.restore);
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
  m.def("decide", &decide, nb::arg("kernel"), nb::arg("key").none(), nb::arg("attempt"),
        nb::kw_only(), nb::arg("device").none() = nb::none(), nb::arg("stream") = 0,
        nb::arg("group").none() = nb::none(), nb::arg("verbose") = false,
        "A cold call of a kernel by itself: (candidate, decided, source, restore).");
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
