// What all strategies share: checking the problem, the score of a candidate, and who wins a tie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "disttune/selector.hpp"

namespace disttune::search {

/// Scores closer to the best one than this share of it are the same speed.
inline constexpr double k_noise_band = 0.002;

/// Throws std::invalid_argument for a problem without candidates or without timed runs.
void check_problem(const Problem& problem);

/// What is known of a candidate beforehand; empty: nothing.
[[nodiscard]] std::span<const std::int64_t> known_samples(const Problem& problem,
                                                          std::uint32_t candidate) noexcept;

/// A run that gave no time: a status, a retry code that never came good, or no positive time.
[[nodiscard]] bool is_unusable(std::int64_t sample) noexcept;

/// Mean of the middle half of the samples; infinity when one of them is unusable or there is none.
[[nodiscard]] double score_of(std::span<const std::int64_t> samples);

/// The winner among finite scores. Within the noise band of the best: the incumbent, then the
/// default, then the lowest index.
[[nodiscard]] Decision decide(const Problem& problem, std::vector<double> scores);

}  // namespace disttune::search
