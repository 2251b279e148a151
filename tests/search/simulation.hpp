// A scripted device for selectors: true times, seeded noise, drift, failures. Counts what a search
// costs. The noise is invented; it stands for no device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "core/samples.hpp"
#include "disttune/selector.hpp"

namespace disttune::search {

struct Machine {
  std::vector<double> true_ns;
  double noise = 0;          ///< log-normal, as a share
  double outliers = 0;       ///< how many runs take twice as long
  double drift_per_run = 0;  ///< all candidates become slower by this share a run
  std::vector<std::uint32_t> failing = {};
  std::uint64_t seed = 1;
};

struct Course {
  Decision decision;
  std::size_t runs = 0;
  double busy_ns = 0;
  std::size_t batches = 0;
  std::vector<std::vector<Visit>> visits = {};  ///< by batch
};

/// Drives a selector to its decision, or to `stop` after so many batches.
inline Course run(Selector& selector, const Machine& machine, std::size_t stop_after = SIZE_MAX) {
  // The standard's distributions differ between libraries; this sum of twelve does not.
  std::mt19937_64 random(machine.seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11U) * 0x1p-53; };
  const auto normal = [&] {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  };
  Course course;
  for (auto batch = selector.next(); !batch.empty(); batch = selector.next()) {
    course.visits.emplace_back(batch.begin(), batch.end());
    std::vector<std::int64_t> samples;
    for (const Visit& visit : batch) {
      const bool fails = std::ranges::count(machine.failing, visit.candidate) > 0;
      for (int i = 0; i < visit.untimed + visit.timed; ++i, ++course.runs) {
        double ns = machine.true_ns[visit.candidate] * std::exp(machine.noise * normal()) *
                    (1 + machine.drift_per_run * static_cast<double>(course.runs));
        if (uniform() < machine.outliers) ns *= 2;
        course.busy_ns += ns;
        if (i >= visit.untimed)
          samples.push_back(fails ? core::sample_of(Status::launch_failed) : std::llround(ns));
      }
    }
    selector.report(samples);
    if (++course.batches == stop_after) {
      selector.stop();
      break;
    }
  }
  course.decision = selector.decision();
  return course;
}

/// How much slower than the best the chosen candidate truly is, as a share.
inline double regret(const Machine& machine, const Decision& decision) {
  return machine.true_ns[decision.winner.value()] / *std::ranges::min_element(machine.true_ns) - 1;
}

}  // namespace disttune::search
