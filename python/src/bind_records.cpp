// What a tuning learned, for Python: read-only.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "describe.hpp"
#include "records.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

nb::object owned(Ref object) { return nb::steal(object.release()); }

const CandidateRecord* find(const TuningRecord& tuning, const Value& identity) {
  for (const CandidateRecord& candidate : tuning.candidates)
    if (candidate.config.identity() == identity) return &candidate;
  return nullptr;
}

nb::object config_of(const TuningRecord& tuning, const std::optional<Value>& identity,
                     const LiveEntries* live) {
  if (!identity) return nb::none();
  if (const CandidateRecord* candidate = find(tuning, *identity); candidate != nullptr)
    return owned(shown_config(candidate->config, live));
  return owned(object_of(*identity));
}

std::vector<ShownCandidate> candidates_of(const TuningRecord& tuning,
                                          const std::shared_ptr<const LiveEntries>& live) {
  std::vector<ShownCandidate> out;
  for (const CandidateRecord& candidate : tuning.candidates) out.push_back({candidate, live});
  return out;
}

const TuningRecord& newest(const ShownRecord& record) {
  static const TuningRecord none;
  return record.record.tunings.empty() ? none : record.record.tunings.front();
}

/// A field of a tuning, on the tuning itself and, for the newest one, on the record.
template <class Get>
void add_tuning_field(nb::class_<ShownTuning>& tuning, nb::class_<ShownRecord>& record,
                      const char* name, Get get, const char* doc) {
  tuning.def_prop_ro(
      name, [get](const ShownTuning& t) { return get(t.tuning, t.live); }, doc);
  record.def_prop_ro(
      name, [get](const ShownRecord& r) { return get(newest(r), r.live); }, doc);
}

void bind_candidate(nb::module_& m) {
  nb::class_<ShownCandidate>(m, "CandidateRecord", "How one candidate ended.")
      .def_prop_ro("config",
                   [](const ShownCandidate& c) {
                     return owned(shown_config(c.candidate.config, c.live.get()));
                   })
      .def_prop_ro(
          "status", [](const ShownCandidate& c) { return to_string(c.candidate.status); },
          "ok, pruned, compile_failed, out_of_resources, launch_failed, wrong_result, timed_out, "
          "crashed or skipped")
      .def_prop_ro(
          "reason", [](const ShownCandidate& c) { return c.candidate.reason; },
          "Why it is not ok: stage, type and message.")
      .def_prop_ro(
          "samples_ns", [](const ShownCandidate& c) { return c.candidate.samples_ns; },
          "Nanoseconds of each timed run, the maximum over ranks.")
      .def_prop_ro(
          "host_ns", [](const ShownCandidate& c) { return c.candidate.host_ns; },
          "This rank's host time of the same runs.")
      .def_prop_ro(
          "score_ns", [](const ShownCandidate& c) { return c.candidate.score_ns; },
          "What it is compared by; None unless ok.")
      .def("__repr__", [](const ShownCandidate& c) {
        return "<" + c.candidate.config.display() + ": " +
               std::string(to_string(c.candidate.status)) +
               (c.candidate.reason.empty() ? "" : ", " + c.candidate.reason) + ">";
      });
}

void bind_tuning(nb::class_<ShownTuning>& tuning, nb::class_<ShownRecord>& record) {
  using Live = std::shared_ptr<const LiveEntries>;
  const auto add = [&](const char* name, auto get, const char* doc) {
    add_tuning_field(tuning, record, name, get, doc);
  };
  add(
      "candidates", [](const TuningRecord& t, const Live& live) { return candidates_of(t, live); },
      "Every candidate with its status and samples.");
  add(
      "winner",
      [](const TuningRecord& t, const Live& live) { return config_of(t, t.winner, live.get()); },
      "The chosen entry, a dict; None where nothing worked.");
  add(
      "default",
      [](const TuningRecord& t, const Live& live) {
        return config_of(t, t.default_config, live.get());
      },
      "Entry 0 of the space.");
  add(
      "deps", [](const TuningRecord& t, const Live&) { return owned(object_of(t.deps)); },
      "Software versions: a dict of texts.");
  add(
      "created", [](const TuningRecord& t, const Live&) { return t.created; }, "UTC.");
  add(
      "strategy", [](const TuningRecord& t, const Live&) { return t.strategy; },
      "The search strategy.");
  add(
      "warmup", [](const TuningRecord& t, const Live&) { return t.warmup; },
      "Untimed runs a candidate.");
  add(
      "repeat", [](const TuningRecord& t, const Live&) { return t.repeat; },
      "Timed runs a candidate.");
  add(
      "checked", [](const TuningRecord& t, const Live&) { return t.checked; },
      "Whether results were compared with a reference.");
  add(
      "prepare_seconds", [](const TuningRecord& t, const Live&) { return t.prepare_seconds; },
      "Spent compiling and loading.");
  add(
      "measure_seconds", [](const TuningRecord& t, const Live&) { return t.measure_seconds; },
      "Spent measuring.");
  add(
      "gate", [](const TuningRecord& t, const Live&) { return t.gate; },
      "How the stream was held closed while work was queued.");
  add(
      "quality", [](const TuningRecord& t, const Live&) { return t.quality; },
      "contended, throttled, ungated, budget");
  add(
      "rank_medians",
      [](const TuningRecord& t, const Live&) {
        nb::dict out;
        for (const RankMedian& median : t.rank_medians)
          out[nb::int_(median.rank)] = median.median_ns;
        return out;
      },
      "The winner's median on each rank, nanoseconds.");
  add(
      "host", [](const TuningRecord& t, const Live&) { return t.host; }, "The machine that tuned.");
  add(
      "tool_version", [](const TuningRecord& t, const Live&) { return t.tool_version; },
      "The version of disttune that tuned.");
}

void bind_record(nb::class_<ShownRecord>& record) {
  record.def_prop_ro("name", [](const ShownRecord& r) { return r.record.name; })
      .def_prop_ro("module", [](const ShownRecord& r) { return r.record.module; })
      .def_prop_ro(
          "key", [](const ShownRecord& r) { return owned(object_of(r.record.key.key)); },
          "The caller's key.")
      .def_prop_ro(
          "identity", [](const ShownRecord& r) { return owned(object_of(r.record.key.identity)); },
          "Who the function is: part to text or digest.")
      .def_prop_ro("hardware",
                   [](const ShownRecord& r) { return owned(object_of(r.record.key.hardware)); })
      .def_prop_ro(
          "group", [](const ShownRecord& r) { return owned(object_of(r.record.key.group)); },
          "None for one process; else size, ranks per node, hardware.")
      .def_prop_ro("policy",
                   [](const ShownRecord& r) { return owned(object_of(r.record.key.policy)); })
      .def_prop_ro("overwritten",
                   [](const ShownRecord& r) { return owned(object_of(r.record.key.overwritten)); })
      .def_prop_ro(
          "key_text", [](const ShownRecord& r) { return std::string(r.record.key.text().text()); },
          "The full key, in canonical text; its SHA-256 names the file.")
      .def_prop_ro(
          "tunings",
          [](const ShownRecord& r) {
            std::vector<ShownTuning> out;
            for (const TuningRecord& t : r.record.tunings) out.push_back({t, r.live});
            return out;
          },
          "One a set of software versions, newest first.")
      .def("__repr__", [](const ShownRecord& r) {
        return "<disttune.Record of " + r.record.name + ", " +
               std::to_string(newest(r).candidates.size()) + " candidates>";
      });
}

}  // namespace

Ref shown_config(const Config& config, const LiveEntries* live) {
  if (live != nullptr)
    if (const auto found = live->find(config.identity()); found != live->end())
      return checked(PyDict_Copy(found->second.get()));
  Ref out = checked(PyDict_New());
  for (const auto& [name, value] : config.entries())
    checked(PyDict_SetItem(out.get(), new_str(name).get(), object_of(value).get()));
  return out;
}

Ref wrap(ShownRecord record) { return Ref::steal(nb::cast(std::move(record)).release().ptr()); }
Ref wrap(ShownExplanation explanation) {
  return Ref::steal(nb::cast(std::move(explanation)).release().ptr());
}

void bind_records(nb::module_& m) {
  bind_candidate(m);
  nb::class_<ShownTuning> tuning(m, "TuningRecord", "One tuning under one set of versions.");
  nb::class_<ShownRecord> record(
      m, "Record",
      "Everything that tuning one key learned. The fields of the newest tuning are its own.");
  bind_tuning(tuning, record);
  bind_record(record);
  nb::class_<ShownExplanation>(m, "Explanation", "Why these arguments get the candidate they get.")
      .def_prop_ro(
          "source", [](const ShownExplanation& e) { return e.explanation.source; },
          "memory, store, layer, none …")
      .def_prop_ro(
          "config",
          [](const ShownExplanation& e) -> nb::object {
            if (!e.explanation.config) return nb::none();
            return owned(shown_config(*e.explanation.config, e.live.get()));
          },
          "What would run now; None where it would be tuned.")
      .def_prop_ro(
          "file", [](const ShownExplanation& e) { return owned(file_name(e.explanation.file)); },
          "The record's path, whether or not it is there.")
      .def_prop_ro(
          "miss_reason", [](const ShownExplanation& e) { return e.explanation.miss_reason; },
          "Empty on a hit.")
      .def_prop_ro(
          "differences", [](const ShownExplanation& e) { return e.explanation.differences; },
          "Fields in which the nearest record differs, one \"field: theirs → ours\" a line.")
      .def("__str__",
           [](const ShownExplanation& e) { return owned(new_str(e.explanation.text())); })
      .def("__repr__",
           [](const ShownExplanation& e) { return owned(new_str(e.explanation.text())); });
}

}  // namespace disttune::python
