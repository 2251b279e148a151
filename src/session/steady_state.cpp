// disttune::measure: one callable, thoroughly, on all ranks of a group or on one.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "agree/agreement.hpp"
#include "core/environment.hpp"
#include "core/seconds.hpp"
#include "core/statistics.hpp"
#include "disttune/detail/attempt.hpp"
#include "disttune/detail/signature.hpp"
#include "disttune/measure.hpp"
#include "measure/stopwatch.hpp"
#include "session/prepare.hpp"
#include "session/process.hpp"
#include "session/tuning.hpp"
#include "session/watched_attempt.hpp"

namespace disttune::session {
namespace {

class PlainRun final : public detail::Attempt {
 public:
  explicit PlainRun(const std::function<void()>& run) : m_run(run) {}
  void run(std::size_t) override {
    try {
      m_run();
    } catch (const std::exception&) {
      error = std::current_exception();
      throw;
    }
  }
  void drop_results() noexcept override {}
  void decided(std::size_t) override {}
  std::exception_ptr error;

 private:
  const std::function<void()>& m_run;
};

/// One visit of one candidate: repetition of bad samples comes with it.
class OneVisit final : public Selector {
 public:
  OneVisit(int untimed, int timed)
      : m_visit{0, static_cast<std::uint16_t>(untimed), static_cast<std::uint16_t>(timed)} {}
  std::span<const Visit> next() override {
    return samples.empty() ? std::span<const Visit>(&m_visit, 1) : std::span<const Visit>{};
  }
  void report(std::span<const std::int64_t> reduced) override {
    samples.assign(reduced.begin(), reduced.end());
  }
  void stop() override {}
  Decision decision() const override { return {}; }
  std::vector<std::int64_t> samples;

 private:
  Visit m_visit;
};

void check_options(const MeasureOptions& o) {
  detail::checked_count("warmup", o.warmup, 0);
  detail::checked_count("repeat", o.repeat, 1);
  detail::checked_choice("cache", o.cache, {"hot", "cold"});
  detail::checked_choice("timer", o.timer, {"auto", "device", "host", "graph"});
}

Measurement summarize(std::vector<std::int64_t> samples) {
  Measurement m;
  m.median_ns = core::median(samples);
  m.mean_ns = core::middle_half_mean(samples);
  m.spread_ns = core::robust_deviation(samples);
  m.samples_ns = std::move(samples);
  return m;
}

Measurement measure_once(const std::function<void()>& run, const MeasureOptions& o,
                         agree::Agreement& agreement, const core::Environment& environment) {
  const Stream stream = o.stream.device ? o.stream : host();
  timing::Policy policy;
  policy.cold = o.cache == "cold";
  // With a hot cache the whole visit behind one gate is the steadiest state there is.
  policy.alone = policy.cold && agreement.alone();
  policy.graph = o.timer == "graph";
  policy.host_clock = o.timer == "host";
  policy.clock = o.clock;
  policy.patience = core::in_nanoseconds(environment.timeout_seconds);
  policy.poll = [&] { agreement.poll(); };
  const auto turn = DeviceTurn::take(*stream.device, stream.device->fingerprint(),
                                     !timing::inside_visit() && !preparing(), agreement.alone());
  if (!turn)
    throw Error(
        "disttune: measure() inside a launcher that is being tuned in another thread's turn");
  timing::Stopwatch watch(stream, policy, static_cast<std::size_t>(o.repeat));
  PlainRun attempt(run);
  auto selector = std::make_unique<OneVisit>(o.warmup, o.repeat);
  const OneVisit& seen = *selector;
  Tuning tuning(std::move(selector));
  std::vector<std::int64_t> own, host_ns;
  tuning.on_reported = [&](const Visit&, std::span<const std::int64_t>,
                           std::span<const std::int64_t> on_host) {
    host_ns.assign(on_host.begin(), on_host.end());
  };
  bool interrupted = false;
  agreement.meet();
  while (!tuning.decided()) {
    agreement.visiting(0, "measure");
    WatchedAttempt watched(attempt);
    const auto end =
        watch.visit(tuning.visits()[0], watched, tuning.samples_of(0), tuning.host_ns_of(0));
    if (attempt.error) std::rethrow_exception(attempt.error);
    if (end.status != Status::ok) throw Error(fmt::format("disttune: measure: {}", end.reason));
    std::ranges::copy_if(tuning.samples_of(0), std::back_inserter(own),
                         [](std::int64_t ns) { return !core::is_retry(ns); });
    interrupted = std::ranges::find(tuning.samples_of(0), core::sample_of(core::Retry::spoiled)) !=
                  tuning.samples_of(0).end();
    tuning.mode() = static_cast<std::int64_t>(watch.mode());
    agreement.reduce(tuning.block());
    watch.weaken(static_cast<core::TimingMode>(tuning.mode()));
    tuning.advance();
  }
  if (std::ranges::any_of(seen.samples, core::is_failure)) {
    agreement.ended_alike();
    throw Error(interrupted ? "disttune: measure: what it runs tunes or measures something itself"
                            : "disttune: measure: the clock gave no usable time");
  }
  Measurement m = summarize(seen.samples);
  m.host_ns = std::move(host_ns);
  m.gate = std::string(watch.gate());
  const auto own_median = static_cast<std::int64_t>(core::median(own));
  m.rank_medians = agreement.finish("measured", own_median);
  if (agreement.alone()) m.rank_medians = {{0, own_median}};
  const auto slowest = std::ranges::max_element(m.rank_medians, {}, &RankMedian::median_ns);
  if (slowest != m.rank_medians.end()) m.slowest_rank = slowest->rank;
  return m;
}

}  // namespace
}  // namespace disttune::session

DISTTUNE_NAMESPACE_BEGIN

Measurement measure(const std::function<void()>& run, const MeasureOptions& options) {
  const core::Environment environment = [&] {
    try {
      session::check_options(options);
      return core::Environment::read();
    } catch (const std::exception& e) {
      if (options.group != nullptr) detail::abandon_call(*options.group, e.what());
      throw;
    }
  }();
  const auto timeout = core::in_nanoseconds(environment.timeout_seconds);
  agree::Agreement agreement(options.group, timeout, "measure");
  return agreement.run([&] { return session::measure_once(run, options, agreement, environment); });
}

DISTTUNE_NAMESPACE_END
