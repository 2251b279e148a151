// Attempts and kernels of a front end that is written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "describe.hpp"
#include "disttune/detail/attempt.hpp"
#include "errors.hpp"
#include "in_python.hpp"
#include "records.hpp"
#include "surroundings.hpp"

namespace disttune::python {

/// A Python object with `run(candidate)`, `decided(candidate)` and what it has of `admits`,
/// `prepare`, `held`, `begin_visit(candidate, runs)`, `before_run`, `check`, `drop_results`, `data`
/// and `before_final_run(candidate)`.
class PythonAttempt final : public detail::Attempt {
 public:
  explicit PythonAttempt(PyObject* object)
      : m_run(checked(PyObject_GetAttrString(object, "run"))),
        m_decided(checked(PyObject_GetAttrString(object, "decided"))),
        m_admits(optional_attribute(object, "admits")),
        m_prepare(optional_attribute(object, "prepare")),
        m_begin_visit(optional_attribute(object, "begin_visit")),
        m_held(optional_attribute(object, "held")),
        m_before_run(optional_attribute(object, "before_run")),
        m_check(optional_attribute(object, "check")),
        m_drop_results(optional_attribute(object, "drop_results")),
        m_data(optional_attribute(object, "data")),
        m_before_final_run(optional_attribute(object, "before_final_run")) {}

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
  std::optional<std::size_t> held() override {
    if (!m_held) return std::nullopt;
    const Gil gil;
    const Ref index = Ref::steal(PyObject_CallNoArgs(m_held.get()));
    if (!index) throw_raised();
    if (index.get() == Py_None) return std::nullopt;
    const std::size_t candidate = PyLong_AsSize_t(index.get());
    if (PyErr_Occurred() != nullptr) throw_raised();
    return candidate;
  }
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
    if (!Ref::steal(PyObject_CallNoArgs(m_before_run.get()))) throw_candidate_failure("pre_hook");
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
  std::vector<std::uintptr_t> data() override {
    if (!m_data) return {};
    const Gil gil;
    const Ref names = Ref::steal(PyObject_CallNoArgs(m_data.get()));
    const Ref iterator = names ? Ref::steal(PyObject_GetIter(names.get())) : Ref{};
    std::vector<std::uintptr_t> out;
    while (iterator) {
      const Ref name = Ref::steal(PyIter_Next(iterator.get()));
      if (!name) break;
      out.push_back(PyLong_AsUnsignedLongLongMask(name.get()));
    }
    if (PyErr_Occurred() != nullptr) throw_raised();
    return out;
  }
  void before_final_run(std::size_t candidate) override {
    if (!m_before_final_run) return;
    const Gil gil;
    if (!call(m_before_final_run, candidate)) throw_raised();
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

  Ref m_run, m_decided, m_admits, m_prepare, m_begin_visit, m_held, m_before_run, m_check,
      m_drop_results, m_data, m_before_final_run;
};

/// A launcher whose table and attempts are the front end's own.
struct Kernel {
  std::shared_ptr<LiveEntries> live = std::make_shared<LiveEntries>();
  std::unique_ptr<detail::Launcher> launcher;
};

/// What a call brings along, with what keeps it alive.
struct HeldCall {
  GroupSeat seat;
  detail::Call call;
};

inline HeldCall held_call(const nanobind::object& key, const nanobind::object& device,
                          std::uintptr_t stream, const nanobind::object& group, bool verbose) {
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

}  // namespace disttune::python
