#include "session/tuning.hpp"

#include <algorithm>
#include <numeric>

namespace disttune::session {

bool Tuning::batch_full() const noexcept {
  if (m_lockstep) return m_at == m_steps.size();
  return std::all_of(m_steps.begin() + static_cast<std::ptrdiff_t>(m_at), m_steps.end(),
                     [&](const Step& s) { return m_failed[s.visit]; });
}

std::optional<Step> Tuning::next() {
  while (!m_lockstep && m_at < m_steps.size() && m_failed[m_steps[m_at].visit]) ++m_at;
  if (m_at == m_steps.size()) return std::nullopt;
  return m_steps[m_at++];
}

void Tuning::finish(const Step& step, std::int64_t sample) {
  if (core::is_failure(sample)) {
    m_failed[step.visit] = true;
    std::ranges::fill(samples_of(step.visit), sample);
  } else if (step.timed && !m_failed[step.visit]) {
    m_block[step.sample] = sample;
  }
}

bool Tuning::advance(bool stop) {
  for (std::size_t i = 0; i < m_place.size(); ++i) {
    m_samples[m_place[i]] = m_block[i];
    m_host_ns[m_place[i]] = m_block_host_ns[i];
  }
  if (!(stop && m_one_works) && repeat_spoiled_samples()) return false;
  for (std::size_t v = 0, at = 0; v < m_batch.size(); at += m_batch[v++].timed) {
    const auto samples = std::span(m_samples).subspan(at, m_batch[v].timed);
    const auto worst = std::ranges::max_element(samples);
    m_never_came_good = worst != samples.end() && core::is_retry(*worst);
    if (m_never_came_good)
      std::ranges::fill(samples, core::sample_of(Status::launch_failed));
    else if (worst != samples.end() && core::is_failure(*worst))
      std::ranges::fill(samples, *worst);
    m_one_works |= std::ranges::none_of(samples, core::is_failure);
    if (on_reported)
      on_reported(m_batch[v], samples, std::span(m_host_ns).subspan(at, m_batch[v].timed));
  }
  m_selector->report(m_samples);
  if (stop && m_one_works) {
    m_selector->stop();
    m_batch.clear();
    lay_out({});
    return true;
  }
  load();
  return false;
}

bool Tuning::repeat_spoiled_samples() {
  if (m_repetition == k_repetitions) return false;
  std::vector<Visit> again;
  std::vector<std::size_t> place;
  for (std::size_t v = 0, at = 0; v < m_batch.size(); at += m_batch[v++].timed) {
    const auto samples = std::span(m_samples).subspan(at, m_batch[v].timed);
    if (std::ranges::any_of(samples, core::is_failure)) continue;
    Visit visit{m_batch[v].candidate, std::min<std::uint16_t>(m_batch[v].untimed, 1), 0};
    for (std::size_t i = 0; i < samples.size(); ++i)
      if (core::is_retry(samples[i])) {
        ++visit.timed;
        place.push_back(at + i);
      }
    if (visit.timed > 0) again.push_back(visit);
  }
  if (again.empty()) return false;
  ++m_repetition;
  lay_out(std::move(again));
  m_place = std::move(place);
  return true;
}

void Tuning::load() {
  const auto next = m_selector->next();
  m_batch.assign(next.begin(), next.end());
  m_repetition = 0;
  lay_out(m_batch);
  m_place.resize(m_block.size() - core::k_trailer);
  std::iota(m_place.begin(), m_place.end(), std::size_t{0});
  m_samples.assign(m_place.size(), 0);
  m_host_ns.assign(m_place.size(), 0);
}

void Tuning::lay_out(std::vector<Visit> visits) {
  m_visits = std::move(visits);
  m_first.clear();
  m_steps.clear();
  m_at = 0;
  std::uint32_t samples = 0;
  for (std::uint32_t v = 0; v < m_visits.size(); ++v) {
    const Visit& visit = m_visits[v];
    m_first.push_back(samples);
    for (int i = 0; i < visit.untimed; ++i) m_steps.push_back({visit.candidate, false, v, 0});
    for (int i = 0; i < visit.timed; ++i) m_steps.push_back({visit.candidate, true, v, samples++});
  }
  m_failed.assign(m_visits.size(), false);
  m_block.assign(samples + core::k_trailer, 0);
  m_block_host_ns.assign(samples, 0);
  m_place.clear();
}

}  // namespace disttune::session
