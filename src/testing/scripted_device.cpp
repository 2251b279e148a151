#include "disttune/testing/scripted_device.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

DISTTUNE_NAMESPACE_BEGIN
namespace testing {
namespace {

constexpr std::int64_t k_never_ns = std::numeric_limits<std::int64_t>::max();
constexpr std::chrono::milliseconds k_step{10};     // scripted, while blocked behind a gate
constexpr std::chrono::milliseconds k_look{1};      // real, between two steps
constexpr std::chrono::minutes k_longest_block{1};  // real

struct Marks {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> stop;
};

/// One entry of the queue: takes `ns`, then writes when it was done to `mark`, if any.
struct Entry {
  std::int64_t ns = 0;
  std::shared_ptr<Marks> marks;
  std::int64_t* mark = nullptr;
};

}  // namespace

struct ScriptedDevice::State {
  State(std::shared_ptr<ScriptedClock> c, ScriptedDeviceOptions o)
      : clock(std::move(c)), options(std::move(o)) {}

  // All with the mutex held.
  void note(std::string what) { log.push_back(std::move(what)); }
  void execute(const Entry& e) {
    at = std::max(at, clock->now_ns());
    at = at == k_never_ns || e.ns > k_never_ns - at ? k_never_ns : at + e.ns;
    if (e.mark != nullptr) *e.mark = at;
  }
  void queue(Entry e) {
    if (capturing)
      graph.push_back(std::move(e));
    else if (held)
      waiting.push_back(std::move(e));
    else
      execute(e);
  }
  void let_go() {
    for (const Entry& e : waiting) execute(e);
    waiting.clear();
    launches_waiting = 0;
  }
  void require_healthy() const {
    if (fault) throw DeviceLost("scripted device: " + *fault);
  }
  void await_release(std::unique_lock<std::mutex>& lock) {
    const auto limit = std::chrono::steady_clock::now() + k_longest_block;
    while (held) {
      if (std::chrono::steady_clock::now() > limit)
        throw std::logic_error("scripted device: blocked behind a gate that nobody opens");
      clock->advance(k_step);
      opened.wait_for(lock, k_look);
    }
  }

  const std::shared_ptr<ScriptedClock> clock;
  const ScriptedDeviceOptions options;
  mutable std::mutex mutex;
  std::condition_variable opened;
  std::int64_t at = 0;  ///< when the executed part of the queue is done
  bool held = false;
  bool capturing = false;
  bool throttled = false;
  std::size_t launches_waiting = 0;
  std::deque<Entry> waiting;
  std::vector<Entry> graph;
  std::optional<std::string> fault;
  std::deque<std::int64_t> given;
  std::optional<std::int64_t> always;
  std::vector<std::string> log;
  std::size_t timers = 0;
};

namespace {

using State = ScriptedDevice::State;

class ScriptedTimer final : public StreamTimer {
 public:
  ScriptedTimer(std::shared_ptr<State> state, std::size_t samples)
      : m_state(std::move(state)), m_marks(std::make_shared<Marks>()) {
    m_marks->start.resize(samples);
    m_marks->stop.resize(samples);
    const std::lock_guard lock(m_state->mutex);
    ++m_state->timers;
  }
  ~ScriptedTimer() override {
    release();
    const std::lock_guard lock(m_state->mutex);
    --m_state->timers;
  }

  void start(std::size_t sample) override { mark("start ", sample, m_marks->start); }
  void stop(std::size_t sample) override { mark("stop ", sample, m_marks->stop); }

  std::int64_t elapsed_ns(std::size_t sample) override {
    const std::lock_guard lock(m_state->mutex);
    m_state->note("elapsed " + std::to_string(sample));
    if (!m_state->given.empty()) {
      const std::int64_t ns = m_state->given.front();
      m_state->given.pop_front();
      return ns;
    }
    if (m_state->always) return *m_state->always;
    return m_marks->stop.at(sample) - m_marks->start.at(sample);
  }

  bool hold() override {
    const std::lock_guard lock(m_state->mutex);
    if (!m_state->options.gate) return false;
    m_state->require_healthy();
    m_state->note("hold");
    m_state->held = true;
    return true;
  }
  void release() noexcept override {
    {
      const std::lock_guard lock(m_state->mutex);
      if (!std::exchange(m_state->held, false)) return;
      m_state->note("release");
      m_state->let_go();
    }
    m_state->opened.notify_all();
  }
  void advance() override {
    const std::lock_guard lock(m_state->mutex);
    if (!m_state->held) return;
    m_state->note("advance");
    m_state->let_go();
  }
  [[nodiscard]] std::string_view gate() const noexcept override {
    return m_state->options.gate ? "stream_wait" : "none";
  }

  void flush() override {
    const std::lock_guard lock(m_state->mutex);
    m_state->note("flush");
    m_state->queue({m_state->options.flush_time.count(), {}, nullptr});
  }
  bool synchronize(Deadline deadline) override {
    const std::lock_guard lock(m_state->mutex);
    m_state->note("synchronize");
    m_state->require_healthy();
    if (m_state->held)
      throw std::logic_error("scripted device: synchronize behind a closed gate never returns");
    const std::int64_t limit =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    if (m_state->at == k_never_ns && limit == k_never_ns)
      throw std::logic_error("scripted device: waits without a deadline for work that never ends");
    m_state->clock->reach(std::min(m_state->at, limit));
    return m_state->at <= limit;
  }
  [[nodiscard]] std::optional<std::string> fault() override {
    const std::lock_guard lock(m_state->mutex);
    return m_state->fault;
  }

  bool begin_capture() override {
    const std::lock_guard lock(m_state->mutex);
    if (!m_state->options.graphs) return false;
    m_state->note("begin_capture");
    m_state->capturing = true;
    m_state->graph.clear();
    return true;
  }
  void end_capture() override {
    const std::lock_guard lock(m_state->mutex);
    m_state->note("end_capture");
    m_state->capturing = false;
  }
  void replay() override {
    const std::lock_guard lock(m_state->mutex);
    m_state->note("replay");
    for (const Entry& e : m_state->graph) m_state->queue(e);
  }

 private:
  void mark(const char* name, std::size_t sample, std::vector<std::int64_t>& marks) {
    const std::lock_guard lock(m_state->mutex);
    m_state->require_healthy();
    m_state->note(name + std::to_string(sample));
    m_state->queue({0, m_marks, &marks.at(sample)});
  }

  const std::shared_ptr<State> m_state;
  const std::shared_ptr<Marks> m_marks;
};

}  // namespace

ScriptedDevice::ScriptedDevice(std::shared_ptr<ScriptedClock> clock, ScriptedDeviceOptions options)
    : m_state(std::make_shared<State>(std::move(clock), std::move(options))) {}
ScriptedDevice::~ScriptedDevice() = default;

void ScriptedDevice::launch(std::chrono::nanoseconds work, std::chrono::nanoseconds host) {
  std::unique_lock lock(m_state->mutex);
  m_state->require_healthy();
  m_state->note("launch");
  m_state->clock->advance(host);
  if (m_state->held && m_state->launches_waiting == m_state->options.queue_capacity)
    m_state->await_release(lock);
  if (m_state->held) ++m_state->launches_waiting;
  m_state->queue({work.count(), {}, nullptr});
}

void ScriptedDevice::block_until_released() {
  std::unique_lock lock(m_state->mutex);
  m_state->require_healthy();
  m_state->note("block");
  if (m_state->capturing) throw Error("scripted device: cannot wait during capture");
  m_state->await_release(lock);
  if (m_state->at == k_never_ns)
    throw std::logic_error("scripted device: a launcher waits for work that never ends");
  m_state->clock->reach(m_state->at);
}

void ScriptedDevice::break_context(std::string why) {
  const std::lock_guard lock(m_state->mutex);
  m_state->fault = std::move(why);
}
void ScriptedDevice::give_samples(std::vector<std::int64_t> ns) {
  const std::lock_guard lock(m_state->mutex);
  m_state->given.assign(ns.begin(), ns.end());
}
void ScriptedDevice::give_always(std::int64_t ns) {
  const std::lock_guard lock(m_state->mutex);
  m_state->always = ns;
}
void ScriptedDevice::set_throttled(bool throttled) {
  const std::lock_guard lock(m_state->mutex);
  m_state->throttled = throttled;
}

void ScriptedDevice::set_capturing(bool capturing) {
  const std::lock_guard lock(m_state->mutex);
  m_state->capturing = capturing;
}

std::vector<std::string> ScriptedDevice::log() const {
  const std::lock_guard lock(m_state->mutex);
  return m_state->log;
}
void ScriptedDevice::clear_log() {
  const std::lock_guard lock(m_state->mutex);
  m_state->log.clear();
}
std::size_t ScriptedDevice::open_timers() const {
  const std::lock_guard lock(m_state->mutex);
  return m_state->timers;
}
bool ScriptedDevice::held() const {
  const std::lock_guard lock(m_state->mutex);
  return m_state->held;
}

std::string_view ScriptedDevice::kind() const noexcept { return m_state->options.kind; }
std::string_view ScriptedDevice::clock() const noexcept { return m_state->options.clock; }
Value ScriptedDevice::fingerprint() const { return m_state->options.fingerprint; }
bool ScriptedDevice::capturing(void*) const {
  const std::lock_guard lock(m_state->mutex);
  return m_state->capturing;
}
bool ScriptedDevice::throttled() const noexcept {
  const std::lock_guard lock(m_state->mutex);
  return m_state->throttled;
}
std::unique_ptr<StreamTimer> ScriptedDevice::open(void*, std::size_t samples) {
  return std::make_unique<ScriptedTimer>(m_state, samples);
}

}  // namespace testing
DISTTUNE_NAMESPACE_END
