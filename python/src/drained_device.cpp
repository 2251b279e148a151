#include "drained_device.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "in_python.hpp"

namespace disttune::python {
namespace {

/// A Python callable, owned by threads that do not hold the interpreter lock.
using Drain = std::shared_ptr<PyObject>;

class DrainedTimer final : public StreamTimer {
 public:
  DrainedTimer(std::unique_ptr<StreamTimer> timer, Drain drain)
      : m_timer(std::move(timer)), m_drain(std::move(drain)) {}

  void start(std::size_t sample) override {
    drain();
    m_timer->start(sample);
  }
  void stop(std::size_t sample) override {
    drain();
    m_timer->stop(sample);
  }
  std::int64_t elapsed_ns(std::size_t sample) override { return m_timer->elapsed_ns(sample); }
  bool hold() override {
    drain();
    return m_timer->hold();
  }
  void release() noexcept override { m_timer->release(); }
  std::string_view gate() const noexcept override { return m_timer->gate(); }
  bool capturing() const override { return m_timer->capturing(); }
  void flush() override {
    drain();
    m_timer->flush();
  }
  bool synchronize(Deadline deadline) override {
    drain();
    return m_timer->synchronize(deadline);
  }
  std::optional<std::string> fault() override { return m_timer->fault(); }
  bool begin_capture() override {
    drain();
    return m_timer->begin_capture();
  }
  void end_capture() override {
    drain();
    m_timer->end_capture();
  }
  void replay() override {
    drain();
    m_timer->replay();
  }

 private:
  void drain() const {
    in_python([&] { checked(PyObject_CallNoArgs(m_drain.get())); });
  }

  std::unique_ptr<StreamTimer> m_timer;
  Drain m_drain;
};

class DrainedDevice final : public Device {
 public:
  DrainedDevice(std::shared_ptr<Device> device, Drain drain)
      : m_device(std::move(device)), m_drain(std::move(drain)) {}

  std::string_view kind() const noexcept override { return m_device->kind(); }
  std::string_view clock() const noexcept override { return m_device->clock(); }
  Value fingerprint() const override { return m_device->fingerprint(); }
  Value software() const override { return m_device->software(); }
  Value information() const override { return m_device->information(); }
  int index() const override { return m_device->index(); }
  bool uniform() const override { return m_device->uniform(); }
  bool capturing(void* stream) const override { return m_device->capturing(stream); }
  bool throttled() const noexcept override { return m_device->throttled(); }
  std::unique_ptr<StreamTimer> open(void* stream, std::size_t samples) override {
    return std::make_unique<DrainedTimer>(m_device->open(stream, samples), m_drain);
  }

 private:
  std::shared_ptr<Device> m_device;
  Drain m_drain;
};

}  // namespace

std::shared_ptr<Device> drained(std::shared_ptr<Device> device, PyObject* drain) {
  return std::make_shared<DrainedDevice>(std::move(device),
                                         owned_by_any_thread(Ref::borrow(drain)));
}

}  // namespace disttune::python
