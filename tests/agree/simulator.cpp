#include "agree/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <set>

#include "agree/agreement.hpp"
#include "core/samples.hpp"
#include "disttune/selector.hpp"
#include "session/tuning.hpp"

namespace disttune::agree::test {

namespace {

using namespace std::chrono_literals;
using testing::Ranks;

constexpr std::chrono::nanoseconds k_timeout = 600s;

class Random {
 public:
  explicit Random(std::uint64_t seed) : m_engine(seed) {}
  int below(int n) { return static_cast<int>(m_engine() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::mt19937_64 m_engine;
};

std::size_t at(int i) { return static_cast<std::size_t>(i); }

struct RaisedHere : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Died {};

/// The list of a record: candidates' numbers, best first.
std::string record_of(const std::vector<std::uint32_t>& ranking) {
  std::string text;
  for (const auto c : ranking) text += fmt::format("{} ", c);
  return text;
}

}  // namespace

World World::random(std::uint64_t seed) {
  Random r(seed);
  World w;
  w.seed = seed;
  w.ranks = r.chance(10) ? 9 + r.below(24) : 2 + r.below(7);
  w.calls = 1 + r.below(4);
  w.candidates = 1 + r.below(12);
  w.strategy = r.chance(40) ? "race" : "fixed";
  if (r.chance(15)) w.budget = std::chrono::microseconds(50 + r.below(5000));
  const int stores = r.below(4);  // 0: one shared store
  for (int i = 0; i < w.ranks; ++i) {
    w.store_of.push_back(r.chance(5) ? 0 : 1 + static_cast<std::uint64_t>(r.below(stores + 1)));
    w.always_tune.push_back(r.chance(4));
    auto& prepare = w.prepare.emplace_back();
    auto& fails_at = w.fails_at.emplace_back();
    for (int c = 0; c < w.candidates; ++c) {
      prepare.push_back(r.chance(4) ? Status::compile_failed : Status::ok);
      fails_at.push_back(r.chance(4) ? r.below(16) : -1);
    }
  }
  for (const std::uint64_t store : std::set(w.store_of.begin(), w.store_of.end()))
    if (store != 0 && r.chance(25)) {
      std::vector<std::uint32_t> ranking;
      for (int i = 0; i < 3; ++i)
        ranking.push_back(static_cast<std::uint32_t>(r.below(w.candidates + 2)));
      w.found[store] = record_of(ranking);
    }
  const int troubles = r.chance(35) ? 0 : 1 + (r.chance(25) ? r.below(3) : 0);
  for (int i = 0; i < troubles; ++i) {
    Trouble t;
    t.kind = static_cast<Trouble::Kind>(r.below(8));
    t.rank = r.chance(12) ? -1 : r.below(w.ranks);
    t.call = r.below(w.calls);
    t.moment = static_cast<Moment>(r.below(k_moments));
    t.time = std::chrono::seconds(t.kind == Trouble::Kind::slow ? 1 + r.below(5000)
                                                                : 601 + r.below(5000));
    w.troubles.push_back(t);
  }
  return w;
}

std::string World::text() const {
  std::string t = fmt::format("seed {}: {} ranks, {} calls, {} candidates, {}{}", seed, ranks,
                              calls, candidates, strategy, budget ? ", budget" : "");
  for (const Trouble& x : troubles)
    t += fmt::format("; trouble {} on rank {} in call {} at moment {}", static_cast<int>(x.kind),
                     x.rank, x.call, static_cast<int>(x.moment));
  return t;
}

namespace {

/// One rank's life in a world.
class Life {
 public:
  Life(const World& world, Ranks& ranks, ProcessGroup& group, History& history, std::mutex& mutex)
      : m_world(world),
        m_ranks(ranks),
        m_group(group),
        m_history(history),
        m_mutex(mutex),
        m_rank(group.rank()) {}

  void run() {
    for (m_call = 0; m_call < m_world.calls; ++m_call) {
      m_end = &m_history.ends[at(m_rank)][at(m_call)];
      try {
        if (troubled(Trouble::Kind::warm)) continue;
        one_call();
        m_end->kind = End::Kind::well;
      } catch (const Died&) {
        m_end->kind = End::Kind::died;
        return;
      } catch (const NoValidConfig& e) {
        note(End::Kind::none_valid, e.what());
      } catch (const Disagreement& e) {
        note(End::Kind::disagreement, e.what());
      } catch (const PeerFailed& e) {
        note(End::Kind::peer_failed, e.what());
      } catch (const GroupTimeout& e) {
        note(End::Kind::timeout, e.what());
      } catch (const RaisedHere& e) {
        note(End::Kind::own, e.what());
      } catch (int) {
        note(End::Kind::own, "interrupt");
      }
    }
  }

 private:
  void note(End::Kind kind, const char* text) {
    m_end->kind = kind;
    m_end->text = text;
  }

  [[nodiscard]] bool troubled(Trouble::Kind kind) const {
    return std::ranges::any_of(m_world.troubles, [&](const Trouble& t) {
      return t.kind == kind && t.call == m_call && (t.rank == m_rank || t.rank == -1);
    });
  }

  void moment(Moment now) {
    for (const Trouble& t : m_world.troubles) {
      if (t.call != m_call || t.moment != now || (t.rank != m_rank && t.rank != -1)) continue;
      switch (t.kind) {
        case Trouble::Kind::raise:
          throw RaisedHere("raised here");
        case Trouble::Kind::interrupt:
          throw 2;
        case Trouble::Kind::slow:
        case Trouble::Kind::silent:
          m_ranks.sleep(m_rank, t.time, t.kind == Trouble::Kind::slow);
          break;
        case Trouble::Kind::vanish:
        case Trouble::Kind::disconnect:
          m_ranks.kill(m_rank, t.kind == Trouble::Kind::disconnect);
          throw Died();
        default:
          break;
      }
    }
  }

  void one_call() {
    try {
      moment(Moment::before_call);
    } catch (const RaisedHere& e) {
      abandon_call(m_group, e.what());
      throw;
    } catch (int) {
      abandon_call(m_group, "interrupted");
      throw;
    }
    Agreement call(&m_group, k_timeout, fmt::format("f {}", m_call));
    m_end->sequence = call.sequence();
    call.run([&] { body(call); });
  }

  void body(Agreement& call) {
    m_end->first_use = !known_shape(m_group);
    call.shape(Value("machine"));
    const std::uint64_t before = call.reductions();
    moment(Moment::before_hello);
    const std::uint64_t store = m_world.store_of[at(m_rank)];
    Hello hello;
    hello.function = "f";
    hello.key = Value(m_call);
    std::vector<Value> candidates;
    for (int c = 0; c < m_world.candidates; ++c) candidates.emplace_back(c);
    if (troubled(Trouble::Kind::differs)) candidates.emplace_back("only here");
    hello.candidates = Value::list(candidates);
    hello.record = stored(store);
    hello.always_tune = m_world.always_tune[at(m_rank)];
    hello.store_id = store;
    const Agreed agreed = call.handshake(hello);
    moment(Moment::after_hello);

    std::optional<std::uint32_t> winner;
    std::string record;
    if (agreed.record_rank) {
      record = call.adopt(agreed, hello.record);
      winner = best_that_is_left(record);
    }
    if (!winner) {
      winner = tune(call);
      if (winner) record = record_of({*winner});
    }
    moment(Moment::before_finish);
    call.finish(winner ? std::to_string(*winner) : "none");
    m_end->reductions = call.reductions() - before;
    m_end->winner = winner;
    moment(Moment::after_finish);
    if (!winner) throw NoValidConfig("nothing works");
    if (agreed.writer) keep(store, record);
  }

  [[nodiscard]] std::optional<std::uint32_t> best_that_is_left(const std::string& record) const {
    for (std::size_t i = 0; i < record.size();) {
      const auto end = record.find(' ', i);
      const int c = std::stoi(record.substr(i, end - i));
      if (c < m_world.candidates) return static_cast<std::uint32_t>(c);
      i = end + 1;
    }
    return std::nullopt;
  }

  std::optional<std::uint32_t> tune(Agreement& call) {
    m_end->tuned = true;
    moment(Moment::preparing);
    std::vector<Status> votes = m_world.prepare[at(m_rank)];
    call.vote(votes);
    std::vector<std::uint32_t> left;
    for (std::uint32_t c = 0; c < votes.size(); ++c)
      if (votes[c] == Status::ok) left.push_back(c);
    if (left.empty()) return std::nullopt;
    Problem problem;
    problem.candidates = left.size();
    problem.untimed = 2;
    problem.timed = 4;
    problem.one_by_one = m_world.budget.has_value();
    session::Tuning tuning(make_selector(m_world.strategy, problem));
    std::int64_t spent = 0;
    while (!tuning.decided()) {
      std::optional<std::uint32_t> failed;
      std::uint32_t last = ~0u;
      int run = 0;
      while (const auto step = tuning.next()) {
        if (step->visit != last) {
          last = step->visit;
          run = 0;
          call.visiting(step->candidate, "candidate");
        }
        const std::uint32_t c = left[step->candidate];
        if (run++ == m_world.fails_at[at(m_rank)][c]) {
          tuning.finish(*step, core::sample_of(Status::launch_failed));
          call.candidate_failed(step->candidate);
          failed = c;
        } else if (step->timed) {
          const std::int64_t ns = sample(c);
          spent += core::is_retry(ns) ? 0 : ns;
          tuning.finish(*step, ns);
        }
      }
      if (m_end->batches == 0) moment(Moment::measuring);
      tuning.elapsed_ns() = spent;
      call.reduce(tuning.block());
      ++m_end->batches;
      tuning.advance(m_world.budget && tuning.elapsed_ns() > m_world.budget->count());
    }
    const auto decision = tuning.decision();
    if (!decision.winner) return std::nullopt;
    return left[*decision.winner];
  }

  /// Noisy, and now and then unusable.
  std::int64_t sample(std::uint32_t candidate) {
    if (m_noise.chance(1)) return core::sample_of(core::Retry::bad_clock);
    return std::int64_t{10000} + 100 * static_cast<int>(candidate % 5) + m_noise.below(300);
  }

  [[nodiscard]] std::string stored(std::uint64_t store) {
    const std::lock_guard lock(m_mutex);
    if (const auto& written = m_history.stored[store]; written.contains(m_call))
      return written.at(m_call);
    const auto found = m_world.found.find(store);
    return m_call == 0 && found != m_world.found.end() ? found->second : "";
  }
  void keep(std::uint64_t store, const std::string& record) {
    const std::lock_guard lock(m_mutex);
    m_history.stored[store][m_call] = record;
  }

  const World& m_world;
  Ranks& m_ranks;
  ProcessGroup& m_group;
  History& m_history;
  std::mutex& m_mutex;
  int m_rank;
  int m_call = 0;
  End* m_end = nullptr;
  Random m_noise{m_world.seed * 64 + at(m_rank)};
};

}  // namespace

History simulate(const World& world) {
  History history;
  history.ends.assign(at(world.ranks), std::vector<End>(at(world.calls)));
  Ranks ranks(world.ranks);
  std::mutex mutex;
  const Deadline begin = ranks.now();
  const auto ends =
      ranks.run([&](ProcessGroup& group) { Life(world, ranks, group, history, mutex).run(); });
  history.took = ranks.now() - begin;
  for (const auto& end : ends)
    if (end) throw std::logic_error("a rank ended with " + testing::what(end));
  return history;
}

namespace {

bool ended_by_itself(const World& world, int rank, int call) {
  return std::ranges::any_of(world.troubles, [&](const Trouble& t) {
    return (t.rank == rank || t.rank == -1) && t.call == call && t.kind != Trouble::Kind::slow &&
           t.kind != Trouble::Kind::differs;
  });
}

bool is_end_of_channel(End::Kind kind) {
  return kind == End::Kind::peer_failed || kind == End::Kind::timeout;
}

/// Ranks that were together in one call, without those that were made to end it otherwise.
std::string broken_together(const World& world,
                            const std::vector<std::pair<int, const End*>>& all) {
  const End& first = *all.front().second;
  for (const auto& [rank, end] : all) {
    const bool well = end->kind == End::Kind::well || end->kind == End::Kind::none_valid;
    const bool first_well = first.kind == End::Kind::well || first.kind == End::Kind::none_valid;
    if (well != first_well)
      return fmt::format("sequence {}: rank {} ended well and rank {} did not ({} | {})",
                         first.sequence, first_well ? all.front().first : rank,
                         first_well ? rank : all.front().first, first.text, end->text);
    if (world.troubles.size() <= 1 && (end->kind != first.kind || end->text != first.text))
      return fmt::format("sequence {}: different errors on ranks {} and {}: {} | {}",
                         first.sequence, all.front().first, rank, first.text, end->text);
    if (!well) continue;
    if (end->winner != first.winner)
      return fmt::format("sequence {}: different winners", first.sequence);
    if (end->reductions != first.reductions || end->batches != first.batches)
      return fmt::format("sequence {}: {} and {} reductions", first.sequence, first.reductions,
                         end->reductions);
    const std::uint64_t most = (end->tuned ? 4 + end->batches : 3) + 2;  // 2: a record sent
    if (end->reductions > most)
      return fmt::format("sequence {}: {} reductions, more than {}", first.sequence,
                         end->reductions, most);
  }
  return {};
}

std::string broken_after_closing(const std::vector<End>& ends, int rank) {
  bool closed = false;
  for (const End& end : ends) {
    if (closed && end.kind != End::Kind::never_began && end.kind != End::Kind::own &&
        end.kind != End::Kind::died && (end.sequence != 0 || !(is_end_of_channel(end.kind))))
      return fmt::format("rank {}: a call after the channel was closed got its turn", rank);
    closed |= is_end_of_channel(end.kind);
  }
  return {};
}

}  // namespace

std::string broken_invariant(const World& world, const History& history) {
  std::map<std::uint64_t, std::vector<std::pair<int, const End*>>> together;
  for (int r = 0; r < world.ranks; ++r) {
    for (int c = 0; c < world.calls; ++c) {
      const End& end = history.ends[at(r)][at(c)];
      if (end.sequence != 0 && !ended_by_itself(world, r, c))
        together[end.sequence].emplace_back(r, &end);
      if (world.troubles.empty() && end.kind != End::Kind::well &&
          end.kind != End::Kind::none_valid)
        return fmt::format("rank {} ended call {} with {}", r, c, end.text);
    }
    if (auto text = broken_after_closing(history.ends[at(r)], r); !text.empty()) return text;
  }
  for (const auto& [sequence, all] : together)
    if (auto text = broken_together(world, all); !text.empty()) return text;

  for (const auto& [store, records] : history.stored)
    for (const auto& [call, record] : records)
      for (int r = 0; r < world.ranks; ++r) {
        const End& end = history.ends[at(r)][at(call)];
        const bool own = end.kind == End::Kind::own || end.kind == End::Kind::died;
        if (end.kind != End::Kind::well && !own)
          return fmt::format("call {} was stored though rank {} ended it with {}", call, r,
                             end.text);
      }
  if (world.troubles.empty())
    for (int r = 0; r < world.ranks; ++r)
      for (int c = 0; c < world.calls; ++c)
        if (history.ends[at(r)][at(c)].kind == End::Kind::well && world.store_of[at(r)] != 0 &&
            !history.stored.at(world.store_of[at(r)]).contains(c))
          return fmt::format("store {} lacks call {}", world.store_of[at(r)], c);

  auto longest = (world.calls + 1) * k_timeout;
  for (const Trouble& t : world.troubles) longest += t.time;
  if (history.took > longest) return "it took longer than all deadlines together";
  return {};
}

}  // namespace disttune::agree::test
