// Devices: the host, and devices that are written in Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/trampoline.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "describe.hpp"
#include "disttune/ascend.hpp"
#include "disttune/cuda.hpp"
#include "disttune/hip.hpp"
#include "drained_device.hpp"
#include "in_python.hpp"

namespace nb = nanobind;

namespace disttune::python {
namespace {

/// Seconds of time.monotonic, which is this clock.
double seconds_of(Deadline deadline) {
  return std::chrono::duration<double>(deadline.time_since_epoch()).count();
}

/// A timer that is a Python object: `start(sample)`, `stop(sample)`, `elapsed_ns(sample)`,
/// `synchronize(deadline)`, and what it has of the rest.
class PythonTimer final : public StreamTimer {
 public:
  explicit PythonTimer(nb::object timer) : m_timer(Ref::borrow(timer.ptr())) {
    const nb::object gate = ask(timer, "gate");
    if (gate.is_valid()) m_gate = nb::cast<std::string>(gate);
    m_holds = nb::hasattr(timer, "hold");
  }
  ~PythonTimer() override {
    in_python_quietly([&] { m_timer = Ref{}; });
  }

  void start(std::size_t sample) override {
    in_python([&] { self().attr("start")(sample); });
  }
  void stop(std::size_t sample) override {
    in_python([&] { self().attr("stop")(sample); });
  }
  std::int64_t elapsed_ns(std::size_t sample) override {
    return in_python([&] { return nb::cast<std::int64_t>(self().attr("elapsed_ns")(sample)); });
  }
  bool hold() override {
    if (!m_holds) return false;
    return in_python([&] { return nb::cast<bool>(self().attr("hold")()); });
  }
  void release() noexcept override {
    if (m_holds) in_python_quietly([&] { self().attr("release")(); });
  }
  std::string_view gate() const noexcept override { return m_gate; }
  bool capturing() const override {
    return in_python([&] {
      const nb::object capturing = ask(self(), "capturing");
      return capturing.is_valid() && nb::cast<bool>(capturing);
    });
  }
  void flush() override {
    in_python([&] { ask(self(), "flush"); });
  }
  bool synchronize(Deadline deadline) override {
    return in_python(
        [&] { return nb::cast<bool>(self().attr("synchronize")(seconds_of(deadline))); });
  }
  std::optional<std::string> fault() override {
    return in_python([&]() -> std::optional<std::string> {
      const nb::object fault = ask(self(), "fault");
      if (!fault.is_valid() || fault.is_none()) return std::nullopt;
      return nb::cast<std::string>(fault);
    });
  }
  bool begin_capture() override {
    return in_python([&] {
      const nb::object begun = ask(self(), "begin_capture");
      return begun.is_valid() && nb::cast<bool>(begun);
    });
  }
  void end_capture() override {
    in_python([&] { ask(self(), "end_capture"); });
  }
  void replay() override {
    in_python([&] { ask(self(), "replay"); });
  }

 private:
  [[nodiscard]] nb::handle self() const { return m_timer.get(); }

  Ref m_timer;
  std::string m_gate = "none";
  bool m_holds = false;
};

/// The C++ side of a disttune.Device subclass.
class PythonDevice final : public Device {
  NB_TRAMPOLINE(Device);

 public:
  std::string_view kind() const noexcept override { return text("kind", m_kind, "python"); }
  std::string_view clock() const noexcept override { return text("clock", m_clock, "device"); }
  Value fingerprint() const override { return value("fingerprint"); }
  Value software() const override { return value("software"); }
  Value information() const override { return value("information"); }
  int index() const override {
    return in_python([&] {
      const nb::object index = ask(nb_trampoline.base(), "index");
      return index.is_valid() ? nb::cast<int>(index) : 0;
    });
  }
  bool uniform() const override {
    return in_python([&] {
      const nb::object uniform = ask(nb_trampoline.base(), "uniform");
      return !uniform.is_valid() || nb::cast<bool>(uniform);
    });
  }
  bool capturing(void* stream) const override {
    return in_python([&] {
      const nb::handle self = nb_trampoline.base();
      return nb::hasattr(self, "capturing") &&
             nb::cast<bool>(self.attr("capturing")(reinterpret_cast<std::uintptr_t>(stream)));
    });
  }
  bool throttled() const noexcept override {
    bool known = false;
    in_python_quietly([&] {
      const nb::object said = ask(nb_trampoline.base(), "throttled");
      const int truth = said.is_valid() ? PyObject_IsTrue(said.ptr()) : 0;
      if (truth < 0) throw ErrorSet{};
      known = truth != 0;
    });
    return known;
  }
  std::unique_ptr<StreamTimer> open(void* stream, std::size_t samples) override {
    return in_python([&]() -> std::unique_ptr<StreamTimer> {
      const nb::handle self = nb_trampoline.base();
      return std::make_unique<PythonTimer>(
          self.attr("open")(reinterpret_cast<std::uintptr_t>(stream), samples));
    });
  }

 private:
  /// Read once: a device does not change its kind. Views of it are out from then on, so the first
  /// of several threads that ask has the word for good.
  std::string_view text(const char* name, std::string& kept,
                        std::string_view otherwise) const noexcept {
    std::string_view known = otherwise;  // the interpreter may have ended
    in_python_quietly([&] {
      if (kept.empty()) {
        std::string said;
        in_python_quietly([&] {
          const nb::object found = ask(nb_trampoline.base(), name);
          if (found.is_valid()) said = nb::cast<std::string>(found);
        });
        // Asking ran Python code, and with it perhaps another thread that asked.
        if (kept.empty()) kept = said.empty() ? otherwise : said;
      }
      known = kept;
    });
    return known;
  }
  Value value(const char* name) const {
    return in_python([&] {
      const nb::object found = ask(nb_trampoline.base(), name);
      return found.is_valid() ? describe(found.ptr(), name) : Value::dict({});
    });
  }

  mutable std::string m_kind;
  mutable std::string m_clock;
};

}  // namespace

std::shared_ptr<Device> device_of(PyObject* object) {
  try {
    return nb::cast<std::shared_ptr<Device>>(nb::handle(object));
  } catch (const nb::cast_error&) {
    PyErr_Format(PyExc_TypeError, "disttune: %R is no disttune.Device", object);
    throw ErrorSet{};
  }
}

void bind_devices(nb::module_& m) {
  nb::class_<Device, PythonDevice>(
      m, "Device",
      "A kind of device. Subclasses give `kind`, `fingerprint()`, `open(stream, samples)` and, "
      "where they differ from the default, `clock` (\"device\"), `software()`, `information()`, "
      "`index()`, `uniform()`, `capturing(stream)` and `throttled()`. `open` returns a timer: an "
      "object with "
      "`start(sample)`, `stop(sample)`, `elapsed_ns(sample)`, `synchronize(deadline)` (seconds of "
      "time.monotonic; False: late) and, where it can, `hold()`, `release()`, `gate`, `flush()`, "
      "`fault()`, `begin_capture()`, `end_capture()`, `replay()`. Where there is a `hold()`, what "
      "waits for the device must let go of the interpreter lock, as ctypes does: `release()` may "
      "have to be called by another thread in the meantime.")
      .def(nb::init<>());
  nb::class_<StreamTimer>(m, "StreamTimer", "A timer of a device that is written in C++.");
  m.def(
      "host", [] { return host().device; }, "The host itself: monotonic clock, no gate.");
  const auto of_stream = [](Stream (*make)(void*)) {
    return [make](std::uintptr_t stream) { return make(reinterpret_cast<void*>(stream)).device; };
  };
  m.def("cuda", of_stream(&disttune::cuda), nb::arg("stream"),
        "The CUDA device of a stream, given by its handle.");
  m.def("hip", of_stream(&disttune::hip), nb::arg("stream"),
        "The HIP device of a stream, given by its handle.");
  m.def(
      "ascend",
      [](std::uintptr_t stream, nb::object drain) {
        const auto device = disttune::ascend(reinterpret_cast<void*>(stream)).device;
        return drain.is_none() ? device : drained(device, drain.ptr());
      },
      nb::arg("stream"), nb::arg("drain").none() = nb::none(),
      "The Ascend device of a stream, given by its handle. `drain()` is called before anything is "
      "put on the stream: it empties the queue in which torch_npu keeps commands for it.");
  m.def(
      "device_fingerprint",
      [](nb::object device) {
        Value value;
        const auto held = device_of(device.ptr());
        {
          const NoGil released;
          value = held->fingerprint();
        }
        return value;
      },
      nb::arg("device"), "The hardware text of a device, as it stands in keys.");
}

}  // namespace disttune::python
