// Timing runs on one stream: gate, marks, flush, watchdog. Used by both modes; knows no selector,
// no rank and no store.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/samples.hpp"
#include "disttune/detail/attempt.hpp"
#include "disttune/device.hpp"
#include "disttune/selector.hpp"

namespace disttune::measure {

struct Policy {
  bool cold = false;                    ///< flush the cache before each timed run
  bool graph = false;                   ///< capture the launcher once, replay it for each run
  bool host_clock = false;              ///< time on the host, the stream drained at both marks
  std::function<std::int64_t()> clock;  ///< the caller's clock instead (nanoseconds now)
  std::chrono::nanoseconds patience{};  ///< how long a visit's work may take before `timed_out`
  std::function<void()> poll;           ///< called now and then while waiting; may throw
};

/// How one visit ended on this rank.
struct VisitEnd {
  Status status = Status::ok;
  std::string reason;  ///< empty when ok
};

class Stopwatch {
 public:
  /// Opens a timer for at most `samples` samples between two calls of `collect`.
  Stopwatch(const Stream& stream, Policy policy, std::size_t samples);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Function-level: the visit's untimed runs, then its timed runs, as `mode` says. Fills `samples`
  /// (nanoseconds, retry or failure codes) and `host_ns` (this rank's host time of the same runs).
  /// A failing candidate is a result; DeviceLost and what is no std::exception pass.
  VisitEnd visit(const Visit& visit, detail::Attempt& attempt, std::span<std::int64_t> samples,
                 std::span<std::int64_t> host_ns);

  /// Contextual: one timed launch in the middle of other work: flush if cold, hold, mark, launch,
  /// mark, release. `before` runs ahead of the flush, outside the sample.
  void timed(std::size_t sample, const std::function<void()>& before,
             const std::function<void()>& launch);
  /// Waits for the stream and reads the samples of `timed` calls since the last `collect`, in
  /// order.
  void collect(std::span<std::int64_t> samples);

  /// The weakest mode seen so far; never becomes stronger again.
  [[nodiscard]] core::TimingMode mode() const noexcept;
  void weaken(core::TimingMode mode) noexcept;
  [[nodiscard]] std::string_view gate() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> m_impl;
};

/// True while this thread is inside a visit (a launcher under measurement has called back into us).
[[nodiscard]] bool inside_visit() noexcept;
/// Something ran inside the sample at hand that does not belong there: it will be taken again.
void spoil_sample() noexcept;

}  // namespace disttune::measure
