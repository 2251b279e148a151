// The search strategy as a pure state machine: equal reports, equal decisions. It knows no clock,
// no device, no file and no rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// The least sample that is a status instead of a time: `k_failed + int(Status)`. Larger than any
/// time, so that MAX over ranks lets the worst failure win.
inline constexpr std::int64_t k_failed = std::numeric_limits<std::int64_t>::max() - 255;

/// Run one candidate `untimed` times, then `timed` times.
struct Visit {
  std::uint32_t candidate = 0;
  std::uint16_t untimed = 0;
  std::uint16_t timed = 0;
  friend bool operator==(const Visit&, const Visit&) = default;
};

/// Who has won. `winner` is nothing when no candidate has a finite score.
struct Decision {
  std::optional<std::uint32_t> winner;
  std::vector<double>
      scores;  ///< nanoseconds by candidate; infinity where it failed or was not visited
};

/// What a selector is made from: agreed data only.
struct Problem {
  std::size_t candidates = 0;  ///< after pruning and removing duplicates, > 0
  std::uint16_t untimed = 5;
  std::uint16_t timed = 10;  ///< > 0
  /// Index of the space's entry 0; anything from `candidates` on: it did not survive.
  std::uint32_t default_candidate = 0;
  std::optional<std::uint32_t> incumbent = {};  ///< the stored winner, favoured in a tie
  /// Samples that need not be taken again (a resumed or incremental tuning), by candidate; empty:
  /// visit it. Same coding as `report`.
  std::vector<std::vector<std::int64_t>> known = {};
  bool one_by_one = false;  ///< one candidate a batch (a budget is set)
};

/// Called by one thread at a time.
class Selector {
 public:
  Selector() = default;
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;
  virtual ~Selector() = default;

  /// The next batch; empty when decided. The span lives until `report` or `stop`.
  [[nodiscard]] virtual std::span<const Visit> next() = 0;
  /// The batch's timed runs in order, in nanoseconds after reduction; from `k_failed` on it is no
  /// time but a status. A visit with a failed run has failed, and all its runs say so.
  virtual void report(std::span<const std::int64_t> samples) = 0;
  /// No more batches (the budget is spent): decide from what is known. `next` is not asked again.
  virtual void stop() {}
  /// Valid once `next` is empty or `stop` was called.
  [[nodiscard]] virtual Decision decision() const = 0;
};

using SelectorFactory = std::function<std::unique_ptr<Selector>(const Problem&)>;

/// Makes a strategy available to `strategy=` and STRATEGY under `name`. Thread-safe. Throws
/// std::invalid_argument when the name is taken. A call whose strategy asks for or chooses a
/// candidate that does not exist, failed or was never timed ends in Error that says so.
void register_strategy(std::string name, SelectorFactory factory);
[[nodiscard]] std::vector<std::string> strategies();
/// Throws std::invalid_argument that lists the known names.
[[nodiscard]] std::unique_ptr<Selector> make_selector(std::string_view strategy,
                                                      const Problem& problem);

DISTTUNE_NAMESPACE_END
