#include "search/race.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/statistics.hpp"
#include "search/choice.hpp"
#include "search/fixed_log.hpp"

namespace disttune::search {
namespace {

constexpr std::size_t k_block = 64;       // candidates a batch of the screen
constexpr std::size_t k_max_rounds = 24;  // the screen counts as one
constexpr std::size_t k_few = 4;          // so few candidates all race
constexpr std::size_t k_least_cap = 6;
constexpr std::int64_t k_tick_ns = 500;  // coarse device clocks

// In units of log2: 0.01 is about 0.7 %.
constexpr double k_log2_of_e = 1.4426950408889634;
constexpr double k_one = static_cast<double>(k_log_one);
constexpr double k_screen = 0.6780719051126377 * k_one;  // log2(1.6)
constexpr double k_band = k_noise_band * k_log2_of_e * k_one;
// How noisy a comparison is taken to be at least. Dropping for good asks for more caution than
// stopping, and two rounds say little about their own noise.
constexpr double k_early_noise = 0.02 * k_log2_of_e * k_one;
constexpr double k_drop_noise = 0.003 * k_log2_of_e * k_one;
constexpr double k_stop_noise = 0.0005 * k_log2_of_e * k_one;

constexpr double k_confidence = 3;
constexpr double k_median_error = 1.25;  // a median's standard error, as a share of a mean's

std::int64_t median_of(std::vector<std::int64_t> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, half);
  return *half;
}

}  // namespace

RaceSelector::RaceSelector(Problem problem)
    : m_problem(std::move(problem)),
      m_untimed(std::min<std::uint16_t>(m_problem.untimed, 1)),
      m_timed(std::min<std::uint16_t>(m_problem.timed, 2)),
      m_random(m_problem.candidates) {
  check_problem(m_problem);
  m_runners.resize(m_problem.candidates);
  // NOLINTNEXTLINE(cppcoreguidelines-prefer-member-initializer): of a checked problem only
  m_runs_left = m_problem.candidates * (std::size_t{m_problem.untimed} + m_problem.timed);
  plan_screen();
}

void RaceSelector::plan_screen() {
  std::vector<std::uint32_t> unknown;
  for (std::uint32_t c = 0; c < m_problem.candidates; ++c) {
    const auto known = known_samples(m_problem, c);
    if (known.empty()) {
      unknown.push_back(c);
      continue;
    }
    m_has_known = true;
    const double score = score_of(known);
    Runner& runner = m_runners[c];
    runner.failed = !std::isfinite(score);
    runner.racing = !runner.failed;
    if (runner.racing) runner.logs = {log2_fixed(std::max<std::int64_t>(std::llround(score), 1))};
  }
  shuffle(unknown);
  for (const std::uint32_t c : unknown) m_plan.push_back({c, m_untimed, m_timed});
  m_batch = m_problem.one_by_one ? 1 : k_block;
}

std::span<const Visit> RaceSelector::next() {
  if (m_end == m_begin) m_end = std::min(m_begin + m_batch, m_plan.size());
  return std::span(m_plan).subspan(m_begin, m_end - m_begin);
}

void RaceSelector::report(std::span<const std::int64_t> samples) {
  if (m_end == m_begin) throw std::logic_error("disttune: race: a report without a batch");
  if (samples.size() != (m_end - m_begin) * m_timed)
    throw std::invalid_argument("disttune: race: a report of another length than its batch");
  for (; m_begin < m_end; ++m_begin) {
    record(m_plan[m_begin].candidate, samples.first(m_timed));
    samples = samples.subspan(m_timed);
  }
  if (m_begin == m_plan.size()) group_done();
}

void RaceSelector::record(std::uint32_t candidate, std::span<const std::int64_t> samples) {
  Runner& runner = m_runners[candidate];
  m_runs_left -= std::min<std::size_t>(m_runs_left, std::size_t{m_untimed} + m_timed);
  if (std::ranges::any_of(samples, is_unusable)) runner.failed = true;
  if (runner.failed)
    runner.racing = false;
  else  // the smaller of two drops most interruptions
    runner.logs.push_back(log2_fixed(*std::ranges::min_element(samples)));
}

void RaceSelector::stop() {
  m_plan.clear();
  m_begin = m_end = 0;
}

std::vector<std::uint32_t> RaceSelector::survivors() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t c = 0; c < m_runners.size(); ++c)
    if (m_runners[c].racing && !m_runners[c].logs.empty()) out.push_back(c);
  return out;
}

void RaceSelector::group_done() {
  m_plan.clear();
  m_begin = m_end = 0;
  if (m_group == 0) {
    drop_after_screen();
  } else if (const auto racing = survivors(); racing.size() > 1) {
    drop_slower(racing);
  }
  if (const std::size_t rounds = rounds_next(); rounds > 0) plan_rounds(rounds);
}

void RaceSelector::drop_after_screen() {
  if (m_problem.candidates <= k_few) return;
  const auto racing = survivors();
  if (racing.empty()) return;
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (const std::uint32_t c : racing) best = std::min(best, m_runners[c].logs.front());
  const double limit =
      k_screen +
      static_cast<double>(log2_fixed(std::llround(nanoseconds_from_log2(best)) + 2 * k_tick_ns));
  for (const std::uint32_t c : racing)
    if (static_cast<double>(m_runners[c].logs.front()) > limit && c != m_problem.default_candidate)
      m_runners[c].racing = false;
}

void RaceSelector::drop_slower(const std::vector<std::uint32_t>& racing) {
  const std::uint32_t leader = leader_of(racing);
  const std::size_t compared = lags(leader, leader).size();
  std::vector<double> behind;
  std::vector<double> noises;
  for (const std::uint32_t c : racing) {
    const auto lag = lags(c, leader);
    behind.push_back(core::median(lag));
    if (c != leader) noises.push_back(core::robust_deviation(lag));
  }
  const auto half = noises.begin() + static_cast<std::ptrdiff_t>(noises.size() / 2);
  std::ranges::nth_element(noises, half);
  const bool early = compared <= 2;
  const double width = k_confidence * k_median_error / std::sqrt(static_cast<double>(compared));
  const double drop_width = width * std::max(*half, early ? k_early_noise : k_drop_noise);
  const double stop_width = width * std::max(*half, early ? k_early_noise : k_stop_noise);

  m_level = true;
  for (std::size_t i = 0; i < racing.size(); ++i) {
    if (behind[i] > drop_width)
      m_runners[racing[i]].racing = false;
    else if (behind[i] + stop_width >= k_band)
      m_level = false;
  }
  drop_beyond_cap(racing, behind);
}

void RaceSelector::drop_beyond_cap(std::vector<std::uint32_t> racing,
                                   const std::vector<double>& behind) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < racing.size(); ++i)
    if (m_runners[racing[i]].racing) order.push_back(i);
  const std::size_t share = std::size_t{1} << std::min<std::size_t>(m_group + 1, 32);
  const std::size_t cap = std::max(k_least_cap, (m_problem.candidates + share - 1) / share);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return behind[i]; });
  for (std::size_t place = cap; place < order.size(); ++place)
    if (racing[order[place]] != m_problem.default_candidate)
      m_runners[racing[order[place]]].racing = false;
}

/// 1, 1, 2, 2, 4, 4, 4 …, cut where the runs or the rounds end.
std::size_t RaceSelector::rounds_next() const {
  const auto racing = survivors();
  if (racing.size() < 2 || m_level) return 0;
  std::size_t rounds = k_max_rounds;
  for (const std::uint32_t c : racing) rounds = std::min(rounds, m_runners[c].logs.size());
  const std::size_t wanted = m_group < 2 ? 1 : m_group < 4 ? 2 : 4;
  const std::size_t round_cost = racing.size() * (std::size_t{m_untimed} + m_timed);
  return std::min({wanted, k_max_rounds - rounds, m_runs_left / round_cost});
}

void RaceSelector::plan_rounds(std::size_t rounds) {
  ++m_group;
  auto racing = survivors();
  for (; rounds > 0; --rounds) {
    shuffle(racing);
    for (const std::uint32_t c : racing) m_plan.push_back({c, m_untimed, m_timed});
  }
  m_batch = m_problem.one_by_one ? 1 : m_plan.size();
}

/// Known samples were taken at another time: once there are rounds to compare, they do not count.
std::size_t RaceSelector::first_round(std::size_t rounds) const noexcept {
  return m_has_known && rounds > 1 ? 1 : 0;
}

/// How far `c` was behind `leader`, in each round that both ran.
std::vector<std::int64_t> RaceSelector::lags(std::uint32_t c, std::uint32_t leader) const {
  const auto& mine = m_runners[c].logs;
  const auto& best = m_runners[leader].logs;
  const std::size_t rounds = std::min(mine.size(), best.size());
  std::vector<std::int64_t> out;
  for (std::size_t r = first_round(rounds); r < rounds; ++r) out.push_back(mine[r] - best[r]);
  return out;
}

std::uint32_t RaceSelector::leader_of(const std::vector<std::uint32_t>& racing) const {
  std::size_t rounds = k_max_rounds;
  for (const std::uint32_t c : racing) rounds = std::min(rounds, m_runners[c].logs.size());
  std::vector<std::vector<std::int64_t>> centred(racing.size());
  for (std::size_t r = first_round(rounds); r < rounds; ++r) {
    std::vector<std::int64_t> round;
    for (const std::uint32_t c : racing) round.push_back(m_runners[c].logs[r]);
    const std::int64_t centre = median_of(round);
    for (std::size_t i = 0; i < racing.size(); ++i) centred[i].push_back(round[i] - centre);
  }
  std::size_t leader = 0;
  std::vector<double> medians;
  for (const auto& c : centred) medians.push_back(core::median(c));
  for (std::size_t i = 1; i < racing.size(); ++i)
    if (medians[i] < medians[leader]) leader = i;
  return racing[leader];
}

Decision RaceSelector::decision() const {
  const auto racing = survivors();
  std::vector<double> scores(m_runners.size(), std::numeric_limits<double>::infinity());
  if (racing.empty()) return decide(m_problem, std::move(scores));

  std::size_t rounds = k_max_rounds;
  for (const std::uint32_t c : racing) rounds = std::min(rounds, m_runners[c].logs.size());
  std::vector<std::int64_t> centres;
  std::vector<std::vector<std::int64_t>> centred(racing.size());
  for (std::size_t r = first_round(rounds); r < rounds; ++r) {
    std::vector<std::int64_t> round;
    for (const std::uint32_t c : racing) round.push_back(m_runners[c].logs[r]);
    centres.push_back(median_of(round));
    for (std::size_t i = 0; i < racing.size(); ++i) centred[i].push_back(round[i] - centres.back());
  }
  const double level = core::middle_half_mean(centres);
  std::vector<std::int64_t> logs(m_runners.size());
  for (std::size_t i = 0; i < racing.size(); ++i) {
    logs[racing[i]] = std::llround(level + core::middle_half_mean(centred[i]));
    scores[racing[i]] = nanoseconds_from_log2(logs[racing[i]]);
  }
  Decision out = decide(m_problem, std::move(scores));

  const std::uint32_t winner = *out.winner;
  for (std::uint32_t c = 0; c < m_runners.size(); ++c) {
    const Runner& runner = m_runners[c];
    if (runner.racing || runner.failed || runner.logs.empty()) continue;
    const std::int64_t lag = std::llround(core::median(lags(c, winner)));
    out.scores[c] = nanoseconds_from_log2(logs[winner] + std::max<std::int64_t>(lag, 0));
  }
  return out;
}

// SplitMix64 (Steele, Lea, Flood 2014) and Fisher-Yates: the standard library's shuffle may differ
// from one implementation to the next, and all ranks must run the same order.
void RaceSelector::shuffle(std::vector<std::uint32_t>& list) {
  const auto random = [this] {
    std::uint64_t z = m_random += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  };
  for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random() % i]);
}

std::unique_ptr<Selector> make_race(const Problem& problem) {
  return std::make_unique<RaceSelector>(problem);
}

}  // namespace disttune::search
