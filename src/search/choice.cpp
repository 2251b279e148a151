#include "search/choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "core/samples.hpp"
#include "core/statistics.hpp"

namespace disttune::search {

void check_problem(const Problem& problem) {
  if (problem.candidates == 0)
    throw std::invalid_argument("disttune: a search needs at least one candidate");
  if (problem.candidates > std::numeric_limits<std::uint32_t>::max())
    throw std::invalid_argument("disttune: a search takes at most 2^32 - 1 candidates");
  if (problem.timed == 0)
    throw std::invalid_argument("disttune: a search needs at least one timed run a candidate");
}

std::span<const std::int64_t> known_samples(const Problem& problem,
                                            std::uint32_t candidate) noexcept {
  if (candidate >= problem.known.size()) return {};
  return problem.known[candidate];
}

bool is_unusable(std::int64_t sample) noexcept {
  return sample <= 0 || core::is_failure(sample) || core::is_retry(sample);
}

double score_of(std::span<const std::int64_t> samples) {
  if (samples.empty() || std::ranges::any_of(samples, is_unusable))
    return std::numeric_limits<double>::infinity();
  return core::middle_half_mean(samples);
}

Decision decide(const Problem& problem, std::vector<double> scores) {
  Decision out{std::nullopt, std::move(scores)};
  const auto best = std::ranges::min_element(out.scores);
  if (best == out.scores.end() || !std::isfinite(*best)) return out;
  const double limit = *best + k_noise_band * *best;
  const auto in_band = [&](std::uint32_t c) {
    return c < out.scores.size() && out.scores[c] <= limit;
  };
  if (problem.incumbent && in_band(*problem.incumbent)) {
    out.winner = problem.incumbent;
  } else if (in_band(problem.default_candidate)) {
    out.winner = problem.default_candidate;
  } else {
    std::uint32_t lowest = 0;
    while (!in_band(lowest)) ++lowest;
    out.winner = lowest;
  }
  return out;
}

}  // namespace disttune::search
