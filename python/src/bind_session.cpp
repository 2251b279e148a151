// The rest of the session for Python: environment, store, versions, signals, measuring.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "core/environment.hpp"
#include "describe.hpp"
#include "disttune/measure.hpp"
#include "disttune/selector.hpp"
#include "errors.hpp"
#include "observe/event_lines.hpp"
#include "observe/observe.hpp"
#include "records.hpp"
#include "store/original_format.hpp"
#include "store/store.hpp"
#include "surroundings.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

nb::object owned(Ref object) { return nb::steal(object.release()); }

Ref& software_function() {
  static auto* function = new Ref;
  return *function;
}

/// The hook must never fail a tuning: versions that cannot be had are unknown.
Value read_software() {
  if (Py_IsInitialized() == 0) return Value::dict({});
  const Gil gil;
  try {
    const Ref versions = checked(PyObject_CallNoArgs(software_function().get()));
    return describe(versions.get(), "versions");
  } catch (const ErrorSet&) {
    PyErr_WriteUnraisable(software_function().get());
    return Value::dict({});
  }
}

/// Python's threads change the environment with the interpreter's lock held.
void with_interpreter_lock(const std::function<void()>& reading) {
  if (Py_IsInitialized() == 0) return reading();
  const Gil gil;
  reading();
}

void check_signals() {
  if (Py_IsInitialized() == 0) return;
  const Gil gil;
  if (PyErr_CheckSignals() < 0) throw_raised();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.good() && !file.eof()) throw StoreError("disttune: cannot read " + path.string());
  return text;
}

nb::dict original_form(const std::filesystem::path& path) {
  store::OriginalForm form;
  {
    const NoGil released;
    form = store::load_original_form(path);
  }
  nb::list config;
  for (const auto& [milliseconds, entry] : form.config)
    config.append(nb::make_tuple(milliseconds, owned(shown_config(entry, nullptr))));
  nb::dict out;
  out["config"] = config;
  out["deps"] = owned(object_of(form.deps));
  out["key"] = owned(object_of(form.key));
  out["func"] = form.func;
  out["timestamp"] = form.timestamp;
  return out;
}

store::Store store_of(const std::optional<std::filesystem::path>& root) {
  if (root) return store::Store(*root, {});
  const core::Environment environment = core::Environment::read();
  return store::Store(environment.home, environment.layers);
}

nb::tuple list_store(std::string_view name, const std::optional<std::filesystem::path>& root) {
  std::vector<store::Summary> summaries;
  std::vector<std::string> left_out;
  {
    const NoGil released;
    summaries = store_of(root).list(name, &left_out);
  }
  nb::list out;
  for (const store::Summary& summary : summaries) {
    nb::dict entry;
    entry["file"] = owned(file_name(summary.file.native()));
    entry["name"] = summary.name;
    entry["module"] = summary.module;
    entry["created"] = summary.created;
    entry["key"] = summary.key;
    entry["winner"] = summary.winner ? nb::cast(*summary.winner) : nb::none();
    entry["winner_ns"] = summary.winner_ns ? nb::cast(*summary.winner_ns) : nb::none();
    entry["default_ns"] = summary.default_ns ? nb::cast(*summary.default_ns) : nb::none();
    entry["original_format"] = summary.original_format;
    out.append(entry);
  }
  nb::list skipped;
  for (const std::string& line : left_out) skipped.append(owned(file_name(line)));
  return nb::make_tuple(out, skipped);
}

nb::list environment_table() {
  nb::list out;
  for (const core::Variable& variable : core::variables())
    out.append(nb::make_tuple(std::string(core::k_environment_prefix) + std::string(variable.name),
                              variable.type, variable.default_text, variable.meaning));
  return out;
}

void run_plainly(PyObject* run) {
  const Gil gil;
  const Ref result = Ref::steal(PyObject_CallNoArgs(run));
  if (!result) throw_raised();
}

Measurement measure_call(nb::object run, int warmup, int repeat, std::string cache,
                         std::string timer, nb::object device, std::uintptr_t stream,
                         nb::object group) {
  MeasureOptions options;
  options.warmup = warmup;
  options.repeat = repeat;
  options.cache = std::move(cache);
  options.timer = std::move(timer);
  if (!device.is_none())
    options.stream = {device_of(device.ptr()), reinterpret_cast<void*>(stream)};
  if (!group.is_none()) options.group = group_pointer(group.ptr());
  Measurement out;
  Messages::around([&] { out = measure([&] { run_plainly(run.ptr()); }, options); });
  return out;
}

void bind_measure(nb::module_& m) {
  nb::class_<Measurement>(m, "Measurement",
                          "Times of one callable in the steady state, in nanoseconds. With a group "
                          "all ranks hold the same numbers, except host_ns.")
      .def_prop_ro("samples_ns", [](const Measurement& r) { return r.samples_ns; })
      .def_prop_ro("host_ns", [](const Measurement& r) { return r.host_ns; })
      .def_ro("median_ns", &Measurement::median_ns)
      .def_ro("mean_ns", &Measurement::mean_ns, "Of the middle half.")
      .def_ro("spread_ns", &Measurement::spread_ns, "1.4826 × median absolute deviation.")
      .def_prop_ro("rank_medians",
                   [](const Measurement& r) {
                     nb::dict out;
                     for (const RankMedian& median : r.rank_medians)
                       out[nb::int_(median.rank)] = median.median_ns;
                     return out;
                   })
      .def_ro("slowest_rank", &Measurement::slowest_rank)
      .def_prop_ro("gate", [](const Measurement& r) { return r.gate; })
      .def("__repr__", [](const Measurement& r) {
        std::string text =
            fmt::format("Measurement(median {}, spread {}, {} samples, gate {}",
                        observe::readable_ns(r.median_ns), observe::readable_ns(r.spread_ns),
                        r.samples_ns.size(), r.gate);
        if (r.rank_medians.size() > 1) text += fmt::format(", slowest rank {}", r.slowest_rank);
        return text + ")";
      });
  m.def("measure", &measure_call, nb::arg("run"), nb::kw_only(), nb::arg("warmup"),
        nb::arg("repeat"), nb::arg("cache"), nb::arg("timer"), nb::arg("device").none(),
        nb::arg("stream"), nb::arg("group").none());
}

}  // namespace

void bind_session(nb::module_& m) {
  bind_measure(m);
  m.def(
      "strategies", [] { return strategies(); }, "The names that `strategy=` accepts.");
  m.def("environment_table", &environment_table,
        "(name, accepted, default, meaning) of every variable.");
  m.def(
      "describe_environment", [] { return owned(file_name(core::describe_environment())); },
      "Every variable with its value now, a line each.");
  m.def(
      "timeout_seconds", [] { return core::Environment::read().timeout_seconds; },
      "TIMEOUT as the session reads it. ValueError where a variable cannot be used.");
  m.def("list_store", &list_store, nb::arg("name") = "", nb::arg("root") = nb::none(),
        "Summaries of the records of one function (all: empty name), as dicts; and what could not "
        "be read, as texts \"path: reason\".");
  m.def(
      "load_record",
      [](const std::filesystem::path& path) {
        std::string text = read_file(path);
        return owned(wrap(ShownRecord{store::read_record(text), nullptr}));
      },
      nb::arg("path"), "Read one record. StoreError, with the offset, for what is not one.");
  m.def("load_original_form", &original_form, nb::arg("path"),
        "A record, or a file of the original tool, in the original's form: a dict of config "
        "[(milliseconds, entry) …] fastest first, deps, key, func and timestamp.");
  m.def("set_software_provider", [](nb::object versions) {
    software_function() = Ref::borrow(versions.ptr());
    detail::set_software_provider(&read_software);
  });
  detail::set_interrupt_hook(&check_signals);
  core::set_environment_guard(&with_interpreter_lock);
  observe::set_message_sink(&Messages::sink);
}

}  // namespace disttune::python
