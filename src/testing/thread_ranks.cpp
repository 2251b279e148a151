#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "disttune/testing/ranks.hpp"
#include "groups/roll_call.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace testing {

namespace {

constexpr std::chrono::seconds k_sign_interval{5};

/// One collective. Ranks hand in views of their own words, so that one who leaves leaves no trace.
struct Round {
  explicit Round(std::size_t size)
      : arrived(size, false), seen(size, false), headers(size), words(size) {}
  std::vector<bool> arrived;
  std::vector<bool> seen;  ///< arrived, even if it has left with an error since: not a missing rank
  std::vector<groups::Header> headers;
  std::vector<std::span<const std::int64_t>> words;
  std::size_t count = 0;
  std::size_t first = 0;  ///< a rank that is there, if any; all that are there agree
  bool done = false;
  std::vector<std::int64_t> result;
  std::string error;

  void remove(std::size_t rank) {
    if (!arrived[rank]) return;
    arrived[rank] = false;
    --count;
    if (const auto next = std::ranges::find(arrived, true); next != arrived.end())
      first = static_cast<std::size_t>(next - arrived.begin());
  }
};

}  // namespace

class Ranks::Hub {
 public:
  using Lock = std::unique_lock<std::mutex>;
  struct Chair {
    std::vector<Fault> faults;
    std::uint64_t reductions = 0;
    std::uint64_t words = 0;
    bool muted = false;
    bool waiting = false;  ///< inside a collective
    bool blocked = false;
    Deadline wake;
  };

  Hub(int size, Time time)
      : roll(size),
        chairs(static_cast<std::size_t>(size)),
        m_scripted(time == Time::scripted),
        m_now(Deadline(std::chrono::hours(1))),
        m_round(std::make_shared<Round>(chairs.size())) {}

  [[nodiscard]] Deadline now() const {
    return m_scripted ? m_now : std::chrono::steady_clock::now();
  }
  [[nodiscard]] Chair& chair(int rank) { return chairs[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Round& round() const { return *m_round; }

  void reduce(int rank, std::span<std::int64_t> values, const Wait& wait, Lock& lock);
  void sleep(int rank, std::chrono::nanoseconds time, bool alive, Lock& lock);
  void kill(int rank, bool broken);
  void wake_all();
  void join(int threads) { m_members += threads; }
  void leave() {
    --m_members;
    advance_if_all_wait();
  }

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  mutable std::condition_variable arrivals;  ///< for wait_until_waiting alone
  groups::RollCall roll;
  std::vector<Chair> chairs;

 private:
  void meet_faults(int rank, Lock& lock);
  void block(int rank, Deadline wake, Lock& lock);
  bool advance_if_all_wait();
  void refuse_if_out_of_step(Round& round, const groups::Header& header, int rank,
                             const Wait& wait);
  void complete(Round& round);

  bool m_scripted;
  Deadline m_now;
  bool m_stuck = false;
  int m_members = 0;
  int m_blocked = 0;
  std::shared_ptr<Round> m_round;
};

void Ranks::Hub::wake_all() {
  for (Chair& c : chairs) c.blocked = false;
  m_blocked = 0;
  changed.notify_all();
}

bool Ranks::Hub::advance_if_all_wait() {
  if (!m_scripted || m_members == 0 || m_blocked < m_members) return false;
  Deadline next = Deadline::max();
  for (const Chair& c : chairs)
    if (c.blocked) next = std::min(next, c.wake);
  if (next == Deadline::max())
    m_stuck = true;
  else
    m_now = std::max(m_now, next);
  wake_all();
  return true;
}

void Ranks::Hub::block(int rank, Deadline wake, Lock& lock) {
  Chair& self = chair(rank);
  self.wake = wake;
  self.blocked = true;
  ++m_blocked;
  if (advance_if_all_wait()) {
  } else if (m_scripted) {
    changed.wait(lock, [&] { return !self.blocked; });
  } else if (!changed.wait_until(lock, wake, [&] { return !self.blocked; })) {
    self.blocked = false;
    --m_blocked;
  }
  if (m_stuck) throw std::logic_error("disttune: all ranks wait, and none of them for a deadline");
}

void Ranks::Hub::sleep(int rank, std::chrono::nanoseconds time, bool alive, Lock& lock) {
  const Deadline end = now() + time;
  while (now() < end) {
    if (alive) roll.sign(rank, now());
    block(rank, std::min(end, now() + k_sign_interval), lock);
  }
}

void Ranks::Hub::kill(int rank, bool broken) {
  chair(rank).muted = true;
  if (!broken) return;
  roll.lose(rank, "connection closed");
  wake_all();
}

void Ranks::Hub::meet_faults(int rank, Lock& lock) {
  Chair& self = chair(rank);
  for (const Fault& fault : self.faults) {
    if (fault.reduction != self.reductions) continue;
    switch (fault.kind) {
      case Fault::Kind::delay:
      case Fault::Kind::hang:
        sleep(rank, fault.time, fault.kind == Fault::Kind::delay, lock);
        break;
      case Fault::Kind::disconnect:
      case Fault::Kind::vanish:
        kill(rank, fault.kind == Fault::Kind::disconnect);
        [[fallthrough]];
      case Fault::Kind::fail:
        throw InjectedFault(
            fmt::format("injected fault on rank {} in its reduction {}", rank, fault.reduction));
    }
  }
}

void Ranks::Hub::refuse_if_out_of_step(Round& round, const groups::Header& header, int rank,
                                       const Wait& wait) {
  if (round.count == 0 || header == round.headers[round.first]) return;
  std::vector<std::pair<groups::Header, std::vector<int>>> sides{{header, {rank}}};
  for (std::size_t r = 0; r < chairs.size(); ++r) {
    if (!round.arrived[r]) continue;
    // A rank that waits for an older call than the newcomer's, which the newcomer has left with an
    // error, is about to learn that; it is not out of step.
    if (round.headers[r].sequence < wait.sequence &&
        roll.ended(rank) == round.headers[r].sequence) {
      round.remove(r);
      continue;
    }
    const auto side =
        std::ranges::find(sides, round.headers[r], [](const auto& s) { return s.first; });
    if (side == sides.end())
      sides.push_back({round.headers[r], {static_cast<int>(r)}});
    else
      side->second.push_back(static_cast<int>(r));
  }
  for (auto& side : sides) std::ranges::sort(side.second);
  if (sides.size() > 1) round.error = groups::out_of_step(std::move(sides));
}

void Ranks::Hub::complete(Round& round) {
  if (round.error.empty()) {
    round.result.assign(round.words[0].begin(), round.words[0].end());
    for (std::size_t r = 1; r < chairs.size(); ++r)
      for (std::size_t i = 0; i < round.result.size(); ++i)
        round.result[i] = std::max(round.result[i], round.words[r][i]);
  }
  round.done = true;
  m_round = std::make_shared<Round>(chairs.size());
  wake_all();
}

void Ranks::Hub::reduce(int rank, std::span<std::int64_t> values, const Wait& wait, Lock& lock) {
  Chair& self = chair(rank);
  ++self.reductions;
  self.words += values.size();
  meet_faults(rank, lock);

  const auto round = m_round;
  const std::size_t me = static_cast<std::size_t>(rank);
  const Deadline entered = now();
  static_cast<void>(roll.check(rank, wait, round->seen, entered, entered));
  const groups::Header header{wait.sequence, std::string(wait.phase), values.size()};
  refuse_if_out_of_step(*round, header, rank, wait);
  round->headers[me] = header;
  round->words[me] = values;
  round->arrived[me] = true;
  round->seen[me] = true;
  if (round->count == 0) round->first = me;
  if (++round->count == chairs.size() || !round->error.empty()) complete(*round);

  self.waiting = true;
  arrivals.notify_all();
  try {
    while (!round->done) block(rank, roll.check(rank, wait, round->seen, entered, now()), lock);
  } catch (...) {
    self.waiting = false;
    round->remove(me);
    throw;
  }
  self.waiting = false;
  if (!round->error.empty()) throw Disagreement(round->error);
  std::ranges::copy(round->result, values.begin());
}

class Ranks::Seat final : public ProcessGroup {
 public:
  Seat(Hub& hub, int rank, int size, std::vector<int> ranks_per_node)
      : ProcessGroup(rank, size, std::move(ranks_per_node)), m_hub(hub) {}

  void all_reduce_max(std::span<std::int64_t> values, const Wait& wait) override {
    Hub::Lock lock(m_hub.mutex);
    m_hub.reduce(rank(), values, wait, lock);
  }
  void abandon(std::uint64_t sequence, std::string_view why) noexcept override {
    const std::lock_guard lock(m_hub.mutex);
    if (m_hub.chair(rank()).muted) return;
    m_hub.roll.announce(rank(), sequence, why, m_hub.now());
    m_hub.wake_all();
  }
  void withdraw(std::uint64_t sequence) noexcept override {
    const std::lock_guard lock(m_hub.mutex);
    if (!m_hub.chair(rank()).muted) m_hub.roll.withdraw(rank(), sequence);
  }
  void alive() noexcept override {
    const std::lock_guard lock(m_hub.mutex);
    if (!m_hub.chair(rank()).muted) m_hub.roll.sign(rank(), m_hub.now());
  }
  void poll(const Wait& wait) override {
    const std::lock_guard lock(m_hub.mutex);
    const Deadline now = m_hub.now();
    static_cast<void>(m_hub.roll.check(rank(), wait, m_hub.round().seen, now, now));
  }
  void note(std::uint64_t sequence, std::uint64_t what) noexcept override {
    const std::lock_guard lock(m_hub.mutex);
    if (!m_hub.chair(rank()).muted) m_hub.roll.note(rank(), sequence, what);
  }
  [[nodiscard]] std::optional<int> noted(std::uint64_t sequence, std::uint64_t what) override {
    const std::lock_guard lock(m_hub.mutex);
    return m_hub.roll.noted(rank(), sequence, what);
  }
  [[nodiscard]] Deadline now() const override {
    const std::lock_guard lock(m_hub.mutex);
    return m_hub.now();
  }

 private:
  Hub& m_hub;
};

Ranks::Ranks(int size, Time time, std::vector<int> ranks_per_node)
    : m_hub(std::make_unique<Hub>(std::max(size, 1), time)) {
  if (size < 1) throw std::invalid_argument("disttune: a group has at least one rank");
  for (int r = 0; r < size; ++r)
    m_seats.push_back(std::make_unique<Seat>(*m_hub, r, size, ranks_per_node));
}
Ranks::~Ranks() = default;

int Ranks::size() const noexcept { return static_cast<int>(m_seats.size()); }
ProcessGroup& Ranks::operator[](int rank) noexcept {
  return *m_seats[static_cast<std::size_t>(rank)];
}

void Ranks::inject(Fault fault) {
  const std::lock_guard lock(m_hub->mutex);
  m_hub->chair(fault.rank).faults.push_back(fault);
}

std::vector<std::exception_ptr> Ranks::run(const std::function<void(ProcessGroup&)>& body,
                                           const std::vector<int>& absent) {
  std::vector<std::exception_ptr> ends(m_seats.size());
  std::vector<std::thread> threads;
  const auto there = [&](int r) { return std::ranges::find(absent, r) == absent.end(); };
  {
    const std::lock_guard lock(m_hub->mutex);
    for (int r = 0; r < size(); ++r) m_hub->join(there(r) ? 1 : 0);
  }
  for (int r = 0; r < size(); ++r) {
    if (!there(r)) continue;
    threads.emplace_back([&, r] {
      try {
        body((*this)[r]);
      } catch (...) {
        ends[static_cast<std::size_t>(r)] = std::current_exception();
      }
      const std::lock_guard lock(m_hub->mutex);
      m_hub->leave();
    });
  }
  for (std::thread& t : threads) t.join();
  return ends;
}

void Ranks::sleep(int rank, std::chrono::nanoseconds time, bool alive) {
  Hub::Lock lock(m_hub->mutex);
  m_hub->sleep(rank, time, alive, lock);
}

void Ranks::kill(int rank, bool broken) {
  const std::lock_guard lock(m_hub->mutex);
  m_hub->kill(rank, broken);
}

Deadline Ranks::now() const {
  const std::lock_guard lock(m_hub->mutex);
  return m_hub->now();
}
std::uint64_t Ranks::reductions(int rank) const {
  const std::lock_guard lock(m_hub->mutex);
  return m_hub->chair(rank).reductions;
}
std::uint64_t Ranks::words(int rank) const {
  const std::lock_guard lock(m_hub->mutex);
  return m_hub->chair(rank).words;
}
void Ranks::wait_until_waiting(int count) const {
  Hub::Lock lock(m_hub->mutex);
  m_hub->arrivals.wait(
      lock, [&] { return std::ranges::count_if(m_hub->chairs, &Hub::Chair::waiting) >= count; });
}

std::string what(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "not a std::exception";
  }
}

}  // namespace testing
DISTTUNE_NAMESPACE_END
