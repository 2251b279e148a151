// Groups of ranks that are written in Python, and the errors and waits that they speak of.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <nanobind/trampoline.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "core/rank_list.hpp"
#include "core/seconds.hpp"
#include "disttune/unify.hpp"
#include "groups/roll_call.hpp"
#include "in_python.hpp"
#include "surroundings.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

/// `Wait` with texts of its own and times in seconds, since Python code may keep it.
struct ShownWait {
  double deadline;
  double patience;
  std::uint64_t sequence;
  std::string phase;
  bool first;
};

ShownWait shown(const Wait& wait) {
  return {std::chrono::duration<double>(wait.deadline.time_since_epoch()).count(),
          std::chrono::duration<double>(wait.patience).count(), wait.sequence,
          std::string(wait.phase), wait.first};
}

/// The C++ side of a disttune.ProcessGroup subclass.
class PythonGroup final : public ProcessGroup {
  NB_TRAMPOLINE(ProcessGroup);

 public:
  void all_reduce_max(std::span<std::int64_t> values, const Wait& wait) override {
    in_python([&] {
      nb::list given;
      for (const std::int64_t value : values) given.append(value);
      const nb::object reduced = self().attr("all_reduce_max")(given, shown(wait));
      const auto out = nb::cast<std::vector<std::int64_t>>(reduced);
      if (out.size() != values.size())
        throw Error("disttune: all_reduce_max returned a list of another length");
      std::copy(out.begin(), out.end(), values.begin());
    });
  }
  void abandon(std::uint64_t sequence, std::string_view why) noexcept override {
    in_python_quietly([&] { self().attr("abandon")(sequence, std::string(why)); });
  }
  void withdraw(std::uint64_t sequence) noexcept override {
    in_python_quietly([&] { call_if_there("withdraw", sequence); });
  }
  void alive() noexcept override {
    in_python_quietly([&] { call_if_there("alive"); });
  }
  void poll(const Wait& wait) override {
    in_python([&] { call_if_there("poll", shown(wait)); });
  }
  void note(std::uint64_t sequence, std::uint64_t what) noexcept override {
    in_python_quietly([&] { call_if_there("note", sequence, what); });
  }
  std::optional<int> noted(std::uint64_t sequence, std::uint64_t what) override {
    return in_python([&]() -> std::optional<int> {
      const nb::object rank = call_if_there("noted", sequence, what);
      if (!rank.is_valid() || rank.is_none()) return std::nullopt;
      return nb::cast<int>(rank);
    });
  }

 private:
  [[nodiscard]] nb::handle self() const { return nb_trampoline.base(); }
  template <class... Args>
  nb::object call_if_there(const char* name, const Args&... args) {
    const Ref method = optional_attribute(self().ptr(), name);
    if (!method) return {};
    return or_stand_still([&] { return nb::handle(method.get())(args...); });
  }
};

Deadline time_of(double seconds) { return Deadline(core::in_nanoseconds(seconds)); }

int checked_rank(const groups::RollCall& roll, int rank) {
  if (rank >= 0 && rank < roll.size()) return rank;
  throw std::invalid_argument("disttune: a roll call of " + std::to_string(roll.size()) +
                              " ranks has no rank " + std::to_string(rank));
}

/// `RollCall::check` for a wait that Python code was given, or made with the same attributes.
void check_roll(const groups::RollCall& roll, int self, nb::handle wait,
                const std::vector<bool>& arrived, double entered, double now) {
  if (arrived.size() != static_cast<std::size_t>(roll.size()))
    throw std::invalid_argument("disttune: arrived: one entry a rank");
  const auto phase = nb::cast<std::string>(wait.attr("phase"));
  const Wait same{time_of(nb::cast<double>(wait.attr("deadline"))),
                  core::in_nanoseconds(nb::cast<double>(wait.attr("patience"))),
                  nb::cast<std::uint64_t>(wait.attr("sequence")), phase,
                  nb::cast<bool>(wait.attr("first"))};
  roll.check(checked_rank(roll, self), same, arrived, time_of(entered), time_of(now));
}

void bind_roll_call(nb::module_& m) {
  using groups::RollCall;
  m.def(
      "name_ranks", [](const std::vector<int>& ranks) { return core::name_ranks(ranks); },
      nb::arg("ranks"), "Ranks, which are sorted, as people read them.");
  nb::class_<RollCall>(m, "RollCall",
                       "What a rank knows of the others, and which error is due because of it: for "
                       "groups that are written in Python. Times are seconds of time.monotonic.")
      .def(nb::init<int>(), nb::arg("size"))
      .def(
          "announce",
          [](RollCall& roll, int rank, std::uint64_t sequence, const std::string& why, double now) {
            roll.announce(checked_rank(roll, rank), sequence, why, time_of(now));
          },
          nb::arg("rank"), nb::arg("sequence"), nb::arg("why"), nb::arg("now"))
      .def(
          "withdraw",
          [](RollCall& roll, int rank, std::uint64_t sequence) {
            roll.withdraw(checked_rank(roll, rank), sequence);
          },
          nb::arg("rank"), nb::arg("sequence"))
      .def(
          "sign",
          [](RollCall& roll, int rank, double now) {
            roll.sign(checked_rank(roll, rank), time_of(now));
          },
          nb::arg("rank"), nb::arg("now"), "A sign of life.")
      .def("check", &check_roll, nb::arg("self_rank"), nb::arg("wait"), nb::arg("arrived"),
           nb::arg("entered"), nb::arg("now"),
           "Raise what is due for this rank, which has waited since `entered`.");
}

}  // namespace

ProcessGroup* group_pointer(PyObject* object) noexcept {
  const nb::handle handle(object);
  // Of a subclass that has not called ours there is nothing to point to.
  if (!nb::isinstance<ProcessGroup>(handle) || !nb::inst_ready(handle)) return nullptr;
  return nb::inst_ptr<ProcessGroup>(handle);
}

void bind_groups(nb::module_& m) {
  nb::class_<ShownWait>(m, "Wait", "What a collective says of itself.")
      .def_ro("deadline", &ShownWait::deadline,
              "Seconds of time.monotonic until which an arrival or sign of life is due.")
      .def_ro("patience", &ShownWait::patience, "How long the deadline is, in seconds.")
      .def_ro("sequence", &ShownWait::sequence, "The number of the cold call.")
      .def_ro("phase", &ShownWait::phase)
      .def_ro("first", &ShownWait::first, "Whether it is the first of its cold call.");
  nb::class_<ProcessGroup, PythonGroup>(
      m, "ProcessGroup",
      "The ranks that decide alike. Subclasses give `all_reduce_max(values, wait)` (a list of the "
      "elementwise maxima over all ranks) and `abandon(sequence, why)`, and may give "
      "`withdraw(sequence)`, `alive()`, `poll(wait)`, `note(sequence, what)` and "
      "`noted(sequence, what)`.",
      nb::is_weak_referenceable())
      .def(nb::init<int, int, std::vector<int>>(), nb::arg("rank"), nb::arg("size"),
           nb::arg("ranks_per_node") = std::vector<int>(),
           "`ranks_per_node`: how many ranks each node has, in any order, e.g. [8, 8]; empty: one "
           "node. ValueError for a rank outside 0 … size - 1 or numbers that do not sum up to "
           "`size`.")
      .def_prop_ro("rank", [](const ProcessGroup& g) { return g.rank(); })
      .def_prop_ro("size", [](const ProcessGroup& g) { return g.size(); })
      .def_prop_ro("ranks_per_node", [](const ProcessGroup& g) { return g.ranks_per_node(); });
  bind_roll_call(m);
  m.def(
      "group_is_made", [](nb::handle group) { return group_pointer(group.ptr()) != nullptr; },
      nb::arg("group"), "Whether ProcessGroup.__init__ has run for it.");
  m.def(
      "barrier",
      [](ProcessGroup& group, double seconds) {
        Messages::around([&] { barrier(group, core::in_nanoseconds(seconds)); });
      },
      nb::arg("group"), nb::arg("timeout"), "Return when all ranks are here.");
  m.def(
      "unify",
      [](ProcessGroup& group, std::optional<std::string> store, std::string name, double seconds) {
        std::vector<std::string> changed;
        Messages::around([&] {
          changed = unify(group, {.store = std::move(store),
                                  .name = std::move(name),
                                  .timeout = core::in_nanoseconds(seconds)});
        });
        return changed;
      },
      nb::arg("group"), nb::arg("store").none(), nb::arg("name"), nb::arg("timeout"),
      "Give all ranks the lowest rank's records; the names of functions that changed here.");
}

}  // namespace disttune::python
