// The host as a device: its steady clock, no gate (what a launcher does here is done when it
// returns).
#include <sys/utsname.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "devices/host_facts.hpp"
#include "disttune/device.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace {

constexpr std::size_t k_cache_line = 64;

class HostTimer final : public StreamTimer {
 public:
  explicit HostTimer(std::size_t samples) : m_marks(samples) {}

  void start(std::size_t sample) override { m_marks.at(sample).start = Clock::now(); }
  void stop(std::size_t sample) override { m_marks.at(sample).stop = Clock::now(); }
  std::int64_t elapsed_ns(std::size_t sample) override {
    const Marks& m = m_marks.at(sample);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(m.stop - m.start).count();
  }
  bool synchronize(Deadline) override { return true; }

  /// Writes a buffer of the last-level cache's size. Made at the first flush: hot tunings need
  /// none.
  void flush() override {
    if (!m_buffer) {
      m_size = devices::cache_bytes();
      m_buffer = std::make_unique<char[]>(m_size);
    }
    volatile char* const p = m_buffer.get();
    for (std::size_t i = 0; i < m_size; i += k_cache_line) p[i] = static_cast<char>(p[i] + 1);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Marks {
    Clock::time_point start;
    Clock::time_point stop;
  };
  std::vector<Marks> m_marks;
  std::unique_ptr<char[]> m_buffer;
  std::size_t m_size = 0;
};

class HostDevice final : public Device {
 public:
  [[nodiscard]] std::string_view kind() const noexcept override { return "host"; }
  [[nodiscard]] std::string_view clock() const noexcept override { return "host"; }
  /// Cores are read anew: affinity may change while the process runs, the rest may not.
  [[nodiscard]] Value fingerprint() const override {
    static const Hardware& hardware = *new Hardware;
    return Value::dict({{"kind", "host"},
                        {"cpu", hardware.cpu},
                        {"machine", hardware.machine},
                        {"cores", devices::usable_cores()},
                        {"memory_gib", hardware.memory_gib}});
  }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void*, std::size_t samples) override {
    return std::make_unique<HostTimer>(samples);
  }

 private:
  struct Hardware {
    Hardware() {
      utsname system{};
      machine = uname(&system) == 0 ? system.machine : "unknown";
      cpu = devices::cpu_model(devices::read_text("/proc/cpuinfo"), machine);
    }
    std::string machine;
    std::string cpu;
    std::int64_t memory_gib = devices::memory_gib();
  };
};

}  // namespace

Stream host() {
  // Never destroyed: launchers may be called while the process ends.
  static const auto& device = *new auto(std::make_shared<HostDevice>());
  return {device, nullptr};
}

DISTTUNE_NAMESPACE_END
