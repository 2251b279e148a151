// One tuning in progress, seen as a stream of steps; the only user of a Selector. Both modes drive
// it: the function session pulls it dry a visit at a time, the contextual session takes one step a
// launch. The reduction over ranks is one call between batches, on `block()`.
//
// Samples that came back with a retry code are taken again in a batch of their own (at most three
// times, then their visit has failed), so a selector sees times and failures only, and all ranks
// repeat the same runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/samples.hpp"
#include "disttune/selector.hpp"

namespace disttune::session {

struct Step {
  std::uint32_t candidate = 0;
  bool timed = false;
  std::uint32_t visit = 0;   ///< which visit of the batch this step belongs to
  std::uint32_t sample = 0;  ///< place in the block, for timed steps
};

class Tuning {
 public:
  static constexpr int k_repetitions = 3;

  /// `lockstep`: the steps of a failed visit are handed out too (and their turn passes unused), so
  /// that the batches of ranks that take a step a launch fill in the same launch.
  explicit Tuning(std::unique_ptr<Selector> selector, bool lockstep = false)
      : m_selector(std::move(selector)), m_lockstep(lockstep) {
    load();
  }

  /// True when there is nothing more to visit: `decision()` holds.
  [[nodiscard]] bool decided() const noexcept { return m_visits.empty(); }
  /// True when what this batch spoils is not taken again.
  [[nodiscard]] bool last_repetition() const noexcept { return m_repetition == k_repetitions; }
  /// True when all steps of the batch were handed out.
  [[nodiscard]] bool batch_full() const noexcept;
  [[nodiscard]] std::span<const Visit> visits() const noexcept { return m_visits; }
  /// The samples of one visit of the batch, in the block.
  [[nodiscard]] std::span<std::int64_t> samples_of(std::size_t visit) noexcept {
    return std::span(m_block).subspan(m_first[visit], m_visits[visit].timed);
  }

  /// This rank's host times of the same runs, to be filled in where they are known.
  [[nodiscard]] std::span<std::int64_t> host_ns_of(std::size_t visit) noexcept {
    return std::span(m_block_host_ns).subspan(m_first[visit], m_visits[visit].timed);
  }

  /// The next step; nothing when the batch is full. A visit that failed has no further steps,
  /// except in lockstep.
  [[nodiscard]] std::optional<Step> next();
  /// The step handed out last is handed out again.
  void put_back() noexcept { --m_at; }
  [[nodiscard]] bool failed(const Step& step) const noexcept { return m_failed[step.visit]; }
  /// A timed step's nanoseconds or retry code; for any step a failure: then the whole visit failed.
  void finish(const Step& step, std::int64_t sample);

  /// What one all_reduce_max is given: samples, nanoseconds spent, weakest timing mode.
  [[nodiscard]] std::span<std::int64_t> block() noexcept { return m_block; }
  [[nodiscard]] std::int64_t& elapsed_ns() noexcept { return m_block[m_block.size() - 2]; }
  [[nodiscard]] std::int64_t& mode() noexcept { return m_block[m_block.size() - 1]; }

  /// After the reduction: reports the samples and loads the next batch. `stop`: no more batches, as
  /// soon as a candidate has worked; true when that ended the tuning.
  bool advance(bool stop = false);
  /// There is a candidate that works, of which samples are known already.
  void one_works() noexcept { m_one_works = true; }
  [[nodiscard]] Decision decision() const { return m_selector->decision(); }
  /// All reduced samples of the selector's last batch, once it was reported: by visit as given,
  /// with the host times of the runs that they are of. Called by `advance` before the selector sees
  /// them.
  std::function<void(const Visit&, std::span<const std::int64_t> samples,
                     std::span<const std::int64_t> host_ns)>
      on_reported;
  /// In `on_reported`: the visit failed because its samples never came good, on any rank.
  [[nodiscard]] bool never_came_good() const noexcept { return m_never_came_good; }

 private:
  void load();
  void lay_out(std::vector<Visit> visits);
  [[nodiscard]] bool repeat_spoiled_samples();

  std::unique_ptr<Selector> m_selector;
  bool m_lockstep;
  std::vector<Visit> m_batch;           ///< as the selector gave it
  std::vector<std::int64_t> m_samples;  ///< of m_batch, after reduction
  std::vector<std::int64_t> m_host_ns;  ///< of m_samples
  std::vector<std::size_t> m_place;     ///< block sample → m_samples, in a repetition
  std::vector<Visit> m_visits;          ///< the batch at hand: m_batch or a repetition
  std::vector<std::size_t> m_first;
  std::vector<Step> m_steps;
  std::vector<bool> m_failed;
  std::vector<std::int64_t> m_block;
  std::vector<std::int64_t> m_block_host_ns;
  std::size_t m_at = 0;
  int m_repetition = 0;
  bool m_never_came_good = false;
  bool m_one_works = false;
};

}  // namespace disttune::session
