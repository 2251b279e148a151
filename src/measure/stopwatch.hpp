// Timing runs on one stream: gate, marks, flush, watchdog. Used by both modes; knows no selector,
// no rank and no store.
//
// A gated sample in order, each step with its reason:
//   before_run   what a run needs put back; where it waits for the device, `gate_a_run` is found
//   hold         the stream stands still, so that the device meets what follows in one piece: the
//                sample holds no host time (ungated, small kernels are timed at the host's launch
//                rate and the winner is noise)
//   flush        cold policy: the last run's data leave the cache; behind the gate, since a pause
//                between flush and run would change what the run finds
//   start, run, stop
//   release      nothing of ours waits for the device between hold and here
//   synchronize, read, and only then the runs' results are dropped (a destructor may wait for the
//                device, which would never come behind a closed gate)
// `gate_a_visit` holds around all runs of a visit. Except for ranks it does so in pieces. With a
// hot cache it is pipelined: once the runs that wait keep the device busy until the rest is queued,
// they go ahead, so that no run but the first finds the device idle (it then takes up to 17 %
// longer). With a cold one a piece is one run, since what is queued behind a run disturbs it (H200,
// kernels of 4 to 27 µs: with nothing behind them their times are 3 to 8 % shorter and scatter half
// as much as with the whole visit). `gate_a_run` holds around each run; there, and where the host's
// clock counts, each run is waited for and its result dropped at once. A visit whose kept results
// fill the memory goes on as `gate_a_run`. Nothing is run again here: a sample that is worth
// nothing is a retry code, and the tuning schedules the repetition, so that all ranks repeat alike.
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

namespace disttune::timing {

struct Policy {
  bool cold = false;        ///< flush the cache before each timed run
  bool graph = false;       ///< capture the launcher once, replay it for each run
  bool host_clock = false;  ///< time on the host, the stream drained at both marks
  /// No run waits for another rank, whose host's time would be in each sample that begins before
  /// all of a visit are queued. Then the device need not wait for that: with a hot cache visits are
  /// pipelined, with a cold one each run has a gate of its own.
  bool alone = false;
  std::function<std::int64_t()> clock;  ///< the caller's clock instead (nanoseconds now)
  /// How long a visit's work may take before `timed_out`; zero: for ever.
  std::chrono::nanoseconds patience{};
  /// Called about ten times a second while waiting for the stream. What it throws passes.
  std::function<void()> poll;
  /// The steady clock for host times, patience and watchdog (tests script it); also read by the
  /// watchdog's thread. Empty: std::chrono's.
  std::function<Deadline()> now;
};

/// How one visit ended on this rank.
struct VisitEnd {
  Status status = Status::ok;
  std::string reason;  ///< empty when ok
};

class Stopwatch {
 public:
  /// Opens a timer for at most `samples` samples a visit, or between two calls of `collect`. A
  /// stream without a device is the host's.
  Stopwatch(const Stream& stream, Policy policy, std::size_t samples);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Waits for what an earlier visit left behind unended, once more as long as that visit did;
  /// every visit begins with it. Throws DeviceLost where it still does not end.
  void catch_up();

  /// Function-level: the visit's untimed runs, then its timed runs, as `mode` says. Fills `samples`
  /// (nanoseconds, retry or failure codes) and `host_ns` (this rank's host time of the same runs:
  /// until the launcher returned, or until the work was done where the host's clock is the one that
  /// counts). Both spans have `visit.timed` entries.
  ///
  /// A failing candidate is a result, with a reason "stage: type: message". DeviceLost passes, also
  /// the one raised here when a failed candidate left a sticky error or never ended; so do what the
  /// caller's clock and `poll` throw, and what is no std::exception. However it ends, the gate is
  /// open, the results are dropped and the stream is drained if that can be had in seconds.
  VisitEnd visit(const Visit& visit, detail::Attempt& attempt, std::span<std::int64_t> samples,
                 std::span<std::int64_t> host_ns);

  /// Contextual: one timed launch in the middle of other work, with a gate of its own. `before`
  /// (may be empty) runs ahead of the flush, outside the sample. `sample`: a number below the
  /// constructor's, free since the last `collect`. What is thrown passes; the gate is open then and
  /// the sample not taken. Returns the host's time as in `visit`; 0: the sample is that time.
  std::int64_t timed(std::size_t sample, const std::function<void()>& before,
                     const std::function<void()>& launch);
  /// Waits for the stream and reads the samples of the `timed` calls since the last `collect`, in
  /// the order of the calls: nanoseconds, retry codes, or `timed_out` in all when the stream was
  /// late. `samples` has one entry a call.
  void collect(std::span<std::int64_t> samples);

  /// The weakest mode seen so far; never becomes stronger again.
  [[nodiscard]] core::TimingMode mode() const noexcept;
  void weaken(core::TimingMode mode) noexcept;
  /// Whether later visits take samples with `stand_in_sample` in them for what they are.
  void accept_stand_ins(bool accept) noexcept;
  /// How the stream has been held so far, for the record; "none" as long as it has not.
  [[nodiscard]] std::string_view gate() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> m_impl;
};

/// True while this thread is inside a visit or a timed launch (a launcher under measurement has
/// called back into us).
[[nodiscard]] bool inside_visit() noexcept;
/// Something is about to run inside the sample at hand that does not belong there: the gate opens
/// (it may wait for the device) and the sample will be taken again. No effect in untimed runs. A
/// visit inside a visit does this by itself.
void spoil_sample() noexcept;
/// As `spoil_sample`, where a call of the launcher under measurement runs the default: to itself,
/// or for what another thread is tuning. A launcher that does so in every run has no other times:
/// see `Stopwatch::accept_stand_ins`.
void stand_in_sample() noexcept;

}  // namespace disttune::timing
