#include "agree/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agree/digest.hpp"
#include "agree/pulse.hpp"
#include "core/group_state.hpp"
#include "core/interrupt.hpp"

namespace disttune::agree {

namespace {

/// How long a stream may take to drain once its candidate has failed on another rank.
constexpr std::chrono::seconds k_drain{10};
/// A broadcast is cut into pieces of this size, so that no single message is huge.
constexpr std::size_t k_chunk_words = std::size_t{1} << 17;
/// No record comes near this: a length beyond it was never a maximum of the ranks' lengths.
constexpr std::int64_t k_most_bytes = std::int64_t{1} << 40;
/// Up to this many ranks medians travel in the last reduction, in slots of a fixed number.
constexpr std::size_t k_median_slots = 64;

std::string inner_failure(std::string_view why) {
  return fmt::format("disttune: a call inside a cold call of this rank ended with an error: {}",
                     why);
}

[[noreturn]] void raise(const detail::GroupState::Closed& closed) {
  const std::string why = closed.why +
                          " (the group is closed since then: cold calls need a new group of these "
                          "ranks; warm calls go on)";
  if (closed.kind == k_closed_by_timeout) throw GroupTimeout(why);
  if (closed.kind == k_closed_by_disagreement) throw Disagreement(why);
  throw PeerFailed(why);
}

}  // namespace

// ── The turn ────────────────────────────────────────────────────────────────────────────────────

Agreement::Agreement(ProcessGroup* group, std::chrono::nanoseconds timeout, std::string what)
    : m_group(group != nullptr && group->size() > 1 ? group : nullptr),
      m_timeout(timeout),
      m_what(std::move(what)) {
  if (alone()) return;
  take_turn();
  try {
    Pulse::of_process().add(*m_group, m_timeout);
  } catch (...) {  // no memory, no thread: the turn must not stay taken
    end(false);
    throw;
  }
}

Agreement::~Agreement() { abandon("the call ended with an exception"); }

void Agreement::take_turn() {
  detail::GroupState& state = m_group->state();
  std::unique_lock lock(state.mutex);
  if (state.closed) raise(*state.closed);
  if (state.owner == std::this_thread::get_id()) {
    m_outer = std::exchange(state.owner_call, m_what);
    m_sequence = state.sequence;
    m_nested = ++state.nested;
    return;
  }
  const std::uint64_t ticket = state.next_ticket++;
  telling(
      [&](std::string_view why) {
        if (!lock.owns_lock()) lock.lock();
        state.leave(ticket);
        lock.unlock();
        abandon_call(*m_group, why);
      },
      [&] { wait_for_turn(lock, ticket); });
  state.owner = std::this_thread::get_id();
  state.owner_call = m_what;
  state.runs.watch_this_thread();
  m_sequence = state.sequence;
}

void Agreement::wait_for_turn(std::unique_lock<std::mutex>& lock, std::uint64_t ticket) const {
  detail::GroupState& state = m_group->state();
  while (state.serving != ticket) {
    if (state.runs.overdue(m_timeout))
      throw Error(fmt::format(
          "disttune: {} is met for the first time while another thread tunes {} on the same group "
          "and seems to wait for this call; ranks cannot tune one thing inside another: call it "
          "once beforehand",
          m_what, state.owner_call));
    state.turn.wait_for(lock, std::chrono::milliseconds(100));
    lock.unlock();
    core::check_for_interrupt();
    lock.lock();
  }
  if (state.closed) raise(*state.closed);
}

void Agreement::leave_thread() noexcept {
  if (!alone() && !m_over && !is_nested()) m_group->state().runs.stop();
}

void Agreement::enter_thread() {
  if (alone() || m_over || is_nested()) return;
  detail::GroupState& state = m_group->state();
  const std::lock_guard lock(state.mutex);
  state.owner = std::this_thread::get_id();
  state.runs.watch_this_thread();
}

void Agreement::goes_on() noexcept {
  if (!alone() && !m_over) m_group->state().runs.goes_on();
}

void Agreement::end(bool next_sequence) noexcept {
  m_over = true;
  Pulse::of_process().remove(*m_group);
  detail::GroupState& state = m_group->state();
  std::unique_lock lock(state.mutex);
  if (is_nested()) {
    state.owner_call = m_outer;
    return;
  }
  if (next_sequence) ++state.sequence;
  // The group's own locks are never taken under ours, so announcements go out in between.
  while (!state.ended_early.empty()) {
    const std::string why = std::move(state.ended_early.front());
    state.ended_early.erase(state.ended_early.begin());
    const std::uint64_t sequence = state.sequence;
    const bool open = !state.closed;
    lock.unlock();
    if (open) m_group->abandon(sequence, why);
    lock.lock();
  }
  state.owner = {};
  state.runs.stop();
  state.leave(state.serving);
}

void Agreement::abandon(std::string_view why) noexcept {
  if (alone() || m_over) return;
  if (is_nested()) {
    detail::GroupState& state = m_group->state();
    const std::lock_guard lock(state.mutex);
    if (!state.closed) state.closed = {k_closed_by_failure, inner_failure(why)};
  }
  m_group->abandon(m_sequence, why);
  // Before the first collective the others need not have been in this call at all: the next one
  // has the same number, and entering it takes the announcement back.
  end(m_reductions > 0);
}

void Agreement::ended_alike() noexcept {
  if (!alone() && !m_over) end(true);
}

void Agreement::close(std::uint64_t kind, const char* why) noexcept {
  if (m_over) return;
  detail::GroupState& state = m_group->state();
  {
    const std::lock_guard lock(state.mutex);
    if (!state.closed) state.closed = {kind, why};
  }
  m_group->abandon(kind, why);
  end(true);
}

void abandon_call(ProcessGroup& group, std::string_view why) noexcept {
  if (group.size() < 2) return;
  detail::GroupState& state = group.state();
  std::unique_lock lock(state.mutex);
  if (state.closed) return;
  if (state.owner == std::this_thread::get_id()) {  // met inside that call: ends it too
    const std::uint64_t sequence = state.sequence;
    state.closed = {k_closed_by_failure, inner_failure(why)};
    lock.unlock();
    group.abandon(sequence, why);
    return;
  }
  if (state.serving != state.next_ticket) {  // busy: this was the next call
    state.ended_early.emplace_back(why);
    return;
  }
  ++state.next_ticket;
  const std::uint64_t sequence = state.sequence;
  lock.unlock();
  group.abandon(sequence, why);
  lock.lock();
  state.leave(state.serving);
}

}  // namespace disttune::agree

DISTTUNE_NAMESPACE_BEGIN

void barrier(ProcessGroup& group, std::chrono::nanoseconds timeout) {
  agree::Agreement call(&group, timeout, "a barrier");
  call.run([&] { call.meet("barrier"); });
  call.ended_alike();
}

DISTTUNE_NAMESPACE_END

namespace disttune::agree {

std::optional<Value> known_shape(ProcessGroup& group) {
  if (group.size() < 2) return Value();
  const std::lock_guard lock(group.state().mutex);
  return group.state().shape;
}

// ── Collectives ─────────────────────────────────────────────────────────────────────────────────

Wait Agreement::wait(std::string_view phase) const {
  const Deadline now = m_group->now();
  const auto longest = Deadline::max() - now;
  const auto patience = std::min<std::chrono::nanoseconds>(m_timeout, longest);
  return {now + patience, patience, m_sequence, phase, m_reductions == 0 && !is_nested()};
}

void Agreement::max(std::span<std::int64_t> words, std::string_view phase) {
  if (m_over) throw Error("disttune: a step of a cold call on a group after that call has ended");
  {
    detail::GroupState& state = m_group->state();
    const std::lock_guard lock(state.mutex);
    if (state.closed) raise(*state.closed);  // by a call inside this one
  }
  if (m_reductions == 0 && !is_nested()) m_group->withdraw(m_sequence);
  try {
    m_group->all_reduce_max(words, wait(phase));
  } catch (const PeerFailed& e) {
    close(k_closed_by_failure, e.what());
    throw;
  } catch (const GroupTimeout& e) {
    close(k_closed_by_timeout, e.what());
    throw;
  } catch (const Disagreement& e) {
    close(k_closed_by_disagreement, e.what());
    throw;
  }
  ++m_reductions;
}

std::vector<std::int64_t> Agreement::gather(std::int64_t word, std::string_view phase) {
  std::vector<std::int64_t> words(static_cast<std::size_t>(size()), k_nothing);
  words[static_cast<std::size_t>(rank())] = word;
  max(words, phase);
  return words;
}

void Agreement::broadcast(std::string& bytes, int root, std::optional<std::size_t> size) {
  if (alone()) return;
  const bool mine = rank() == root;
  if (!size) {
    std::int64_t length = mine ? static_cast<std::int64_t>(bytes.size()) : k_nothing;
    max({&length, 1}, "broadcast length");
    if (length < 0 || length > k_most_bytes)
      throw Error(
          fmt::format("disttune: the group's reduction is broken: {} bytes to broadcast", length));
    size = static_cast<std::size_t>(length);
  }
  if (mine && bytes.size() != *size)
    throw Error(fmt::format("disttune: {} bytes to broadcast where {} were announced", bytes.size(),
                            *size));
  std::vector<std::int64_t> words((*size + 7) / 8, mine ? 0 : k_nothing);
  if (mine) bytes.copy(reinterpret_cast<char*>(words.data()), bytes.size());
  for (std::size_t at = 0; at < words.size(); at += k_chunk_words)
    max(std::span(words).subspan(at, std::min(k_chunk_words, words.size() - at)), "broadcast");
  if (!mine) bytes.assign(reinterpret_cast<const char*>(words.data()), *size);
}

void Agreement::unite(std::span<std::int64_t> marks) {
  if (alone()) return;
  for (std::int64_t& m : marks) m = m != 0 ? 1 : 0;
  max(marks, "crashed");
}

void Agreement::vote(std::span<Status> statuses) {
  if (alone()) return;
  std::vector<std::int64_t> words(statuses.size());
  std::ranges::transform(statuses, words.begin(),
                         [](Status s) { return static_cast<std::int64_t>(s); });
  max(words, "vote");
  std::ranges::transform(words, statuses.begin(), [](std::int64_t w) { return Status(w); });
}

void Agreement::reduce(std::span<std::int64_t> block) { reduce_words(block, "batch"); }

void Agreement::reduce_words(std::span<std::int64_t> words, std::string_view phase) {
  if (!alone()) max(words, phase);
}

void Agreement::same(std::string_view what, const Value& value) {
  if (alone()) return;
  const std::string text(value.text());
  const std::int64_t d = digest(text);
  std::int64_t words[2] = {d, ~d};
  max(words, what);
  if (words[0] != ~words[1]) disagree(what, text);
}

bool Agreement::remembers(const std::string& compared) const {
  if (alone()) return true;
  const std::lock_guard lock(m_group->state().mutex);
  return m_group->state().compared.contains(compared);
}

void Agreement::remember(const std::string& compared) {
  if (alone()) return;
  const std::lock_guard lock(m_group->state().mutex);
  m_group->state().compared.insert(compared);
}

void Agreement::meet(std::string_view why) {
  if (alone()) return;
  std::int64_t word = 0;
  max({&word, 1}, why);
}

// ── The end ─────────────────────────────────────────────────────────────────────────────────────

namespace {

/// All of few, else minimum, median, maximum and the eight slowest; by rank.
std::vector<RankMedian> selected(const std::vector<std::int64_t>& by_rank) {
  std::vector<RankMedian> all;
  for (std::size_t r = 0; r < by_rank.size(); ++r)
    if (by_rank[r] >= 0) all.push_back({static_cast<int>(r), by_rank[r]});
  if (all.size() <= k_median_slots) return all;
  std::ranges::stable_sort(all, {}, &RankMedian::median_ns);
  std::vector<RankMedian> few{all.front(), all[all.size() / 2]};
  few.insert(few.end(), all.end() - 8, all.end());
  std::ranges::sort(few, {}, &RankMedian::rank);
  return few;
}

}  // namespace

std::vector<RankMedian> Agreement::finish(std::string_view decision, std::int64_t median_ns) {
  if (alone()) return median_ns < 0 ? std::vector<RankMedian>{} : selected({median_ns});
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> words(2 + k_median_slots, k_nothing);
  const std::int64_t d = digest(decision);
  words[0] = d;
  words[1] = ~d;
  if (ranks <= k_median_slots) words[2 + static_cast<std::size_t>(rank())] = median_ns;
  max(words, "decision");
  if (words[0] != ~words[1]) disagree("decision", std::string(decision));
  std::vector<std::int64_t> medians(words.begin() + 2, words.end());
  if (ranks > k_median_slots)
    medians = gather(median_ns, "medians");
  else
    medians.resize(ranks);
  end(true);
  return selected(medians);
}

std::vector<RankMedian> Agreement::medians(std::int64_t median_ns) {
  return selected(alone() ? std::vector{median_ns} : gather(median_ns, "medians"));
}

// ── While measuring ─────────────────────────────────────────────────────────────────────────────

void Agreement::visiting(std::uint32_t candidate, std::string_view display) {
  if (alone()) return;
  m_candidate = candidate;
  m_candidate_text = display;
  m_failed_elsewhere.reset();
  m_group->alive();
}

void Agreement::candidate_failed(std::uint32_t candidate) noexcept {
  if (!alone() && !m_over) m_group->note(m_sequence, note_of(candidate));
}

void Agreement::poll() {
  if (alone() || m_over) return;
  try {
    Wait waiting = wait("measuring");
    waiting.first = false;
    m_group->poll(waiting);
    const std::optional<int> peer = m_group->noted(m_sequence, note_of(m_candidate));
    if (!peer) return;
    const Deadline now = m_group->now();
    if (!m_failed_elsewhere) m_failed_elsewhere = now;
    if (now - *m_failed_elsewhere < k_drain) return;
    throw NotDrained(fmt::format(
        "disttune: candidate {} failed on rank {}, and the stream of rank {} still waits "
        "for it {} s later; its work cannot be taken back",
        m_candidate_text, *peer, rank(), k_drain.count()));
  } catch (const PeerFailed& e) {
    close(k_closed_by_failure, e.what());
    throw;
  } catch (const GroupTimeout& e) {
    close(k_closed_by_timeout, e.what());
    throw;
  } catch (const Disagreement& e) {
    close(k_closed_by_disagreement, e.what());
    throw;
  }
}

}  // namespace disttune::agree
