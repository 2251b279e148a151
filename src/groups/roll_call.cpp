#include "groups/roll_call.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/rank_list.hpp"

namespace disttune::groups {

namespace {

constexpr std::size_t k_notes_kept = 4096;

double in_seconds(std::chrono::nanoseconds ns) { return std::chrono::duration<double>(ns).count(); }

[[noreturn]] void raise_closed(std::uint64_t kind, const std::string& why) {
  if (kind == k_closed_by_timeout) throw GroupTimeout(why);
  if (kind == k_closed_by_disagreement) throw Disagreement(why);
  throw PeerFailed(why);
}

}  // namespace

void RollCall::announce(int rank, std::uint64_t sequence, std::string_view why, Deadline now) {
  Peer& peer = at(rank);
  if (sequence >= k_closed_by_disagreement) {
    if (peer.closed.sequence == 0) peer.closed = {sequence, std::string(why), now};
    return;
  }
  peer.count = peer.counted == sequence ? peer.count + 1 : 1;
  peer.counted = sequence;
  peer.ended = {sequence, std::string(why), now};
}

void RollCall::withdraw(int rank, std::uint64_t sequence) {
  if (Peer& peer = at(rank); peer.ended.sequence == sequence) peer.ended = {};
}

void RollCall::note(int rank, std::uint64_t sequence, std::uint64_t what) {
  auto& notes = at(rank).notes;
  // Notes of earlier calls are never asked for again.
  while (!notes.empty() && (notes.front().first < sequence || notes.size() == k_notes_kept))
    notes.pop_front();
  notes.emplace_back(sequence, what);
}

std::optional<int> RollCall::noted(int self, std::uint64_t sequence, std::uint64_t what) const {
  for (int r = 0; r < static_cast<int>(m_peers.size()); ++r)
    if (r != self && std::ranges::find(at(r).notes, std::pair(sequence, what)) != at(r).notes.end())
      return r;
  return std::nullopt;
}

Deadline RollCall::check(int self, const Wait& wait, const std::vector<bool>& arrived,
                         Deadline entered, Deadline now) const {
  return std::min(check_announcements(self, wait, entered, now),
                  check_silence(self, wait, arrived, now));
}

Deadline RollCall::check_announcements(int self, const Wait& wait, Deadline entered,
                                       Deadline now) const {
  const Peer& own = at(self);
  Deadline again = Deadline::max();
  const Announcement* closed = nullptr;
  for (int r = 0; r < static_cast<int>(m_peers.size()); ++r) {
    if (r == self) continue;
    const Peer& peer = at(r);
    if (peer.closed.sequence != 0 && closed == nullptr) closed = &peer.closed;
    if (peer.ended.sequence < std::max<std::uint64_t>(wait.sequence, 1)) continue;
    // As many announcements as this rank made itself: both failed in the same calls, and meet in
    // this one. After the first collective all ranks are known to be in the call.
    if (wait.first && own.counted == peer.counted && peer.count <= own.count) continue;
    if (wait.first && peer.ended.since <= entered && now < entered + k_withdrawal) {
      again = std::min(again, entered + k_withdrawal);
      continue;
    }
    throw PeerFailed(fmt::format("disttune: rank {} ended cold call {} with an error: {}", r,
                                 peer.ended.sequence, peer.ended.why));
  }
  // A closed channel repeats somebody's reason, so whoever failed first is asked before.
  if (closed != nullptr && again == Deadline::max()) raise_closed(closed->sequence, closed->why);
  return again;
}

Deadline RollCall::check_silence(int self, const Wait& wait, const std::vector<bool>& arrived,
                                 Deadline now) const {
  Deadline again = Deadline::max();
  std::vector<int> silent;
  for (int r = 0; r < static_cast<int>(m_peers.size()); ++r) {
    if (r == self || arrived[static_cast<std::size_t>(r)]) continue;
    const Peer& peer = at(r);
    if (peer.lost)
      throw GroupTimeout(
          fmt::format("disttune: rank {} is gone ({}); {} of cold call {} cannot end", r,
                      *peer.lost, wait.phase, wait.sequence));
    const Deadline due = std::max(wait.deadline, peer.last_sign + wait.patience);
    if (now >= due)
      silent.push_back(r);
    else
      again = std::min(again, due);
  }
  if (silent.empty()) return again;
  throw GroupTimeout(fmt::format(
      "disttune: no arrival and no sign of life from {} within {:g} s, in {} of cold call {}{}",
      core::name_ranks(silent), in_seconds(wait.patience), wait.phase, wait.sequence,
      wait.first ? "; a rank that does not make this call, or that still remembers a choice which "
                   "this rank has lost (a restart, a cleared table), looks the same"
                 : ""));
}

std::string out_of_step(std::vector<std::pair<Header, std::vector<int>>> sides) {
  std::ranges::sort(sides, {}, [](const auto& side) { return side.second.front(); });
  std::string text = "disttune: ranks are out of step:";
  for (const auto& [header, ranks] : sides)
    text += fmt::format("{} {} in {} of cold call {} with {} words",
                        &header == &sides[0].first ? "" : ",", core::name_ranks(ranks),
                        header.phase, header.sequence, header.words);
  return text +
         "; a rank made a collective that the others did not make: make the same "
         "cold calls, barriers and unify in the same order on all ranks";
}

}  // namespace disttune::groups
