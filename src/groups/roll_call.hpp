// What a rank knows of the others from the side channel, and which error is due because of it. One
// place for the rules about announcements and silence, whatever carries them: groups in Python ask
// it too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "disttune/group.hpp"

namespace disttune::groups {

/// How long an announcement that may be an old one is given to be taken back.
inline constexpr std::chrono::nanoseconds k_withdrawal = std::chrono::seconds(1);

/// Not thread-safe: whoever owns it locks.
class RollCall {
 public:
  explicit RollCall(int size) : m_peers(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int size() const noexcept { return static_cast<int>(m_peers.size()); }

  void announce(int rank, std::uint64_t sequence, std::string_view why, Deadline now);
  void withdraw(int rank, std::uint64_t sequence);
  void sign(int rank, Deadline now) { at(rank).last_sign = now; }
  /// The connection to `rank` is broken.
  void lose(int rank, std::string why) { at(rank).lost = std::move(why); }
  void note(int rank, std::uint64_t sequence, std::uint64_t what);
  [[nodiscard]] std::optional<int> noted(int self, std::uint64_t sequence,
                                         std::uint64_t what) const;

  /// The call that `rank` ended with an error last, if that still stands; else 0.
  [[nodiscard]] std::uint64_t ended(int rank) const { return at(rank).ended.sequence; }

  /// Throws the error that is due for `self`, who has waited since `entered` in a collective that
  /// the ranks with `arrived[r]` have reached. Otherwise returns when to look again.
  Deadline check(int self, const Wait& wait, const std::vector<bool>& arrived, Deadline entered,
                 Deadline now) const;

 private:
  struct Announcement {
    std::uint64_t sequence = 0;  ///< 0: none
    std::string why;
    Deadline since;
  };
  struct Peer {
    Announcement ended;         ///< a call that this rank ended with an error
    Announcement closed;        ///< one of k_closed_by_…
    std::uint64_t counted = 0;  ///< the sequence that `count` is about
    std::uint64_t count = 0;    ///< announcements for it, those taken back too
    Deadline last_sign;
    std::optional<std::string> lost;
    std::deque<std::pair<std::uint64_t, std::uint64_t>> notes;  ///< sequence, what
  };
  [[nodiscard]] Peer& at(int rank) { return m_peers[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Peer& at(int rank) const { return m_peers[static_cast<std::size_t>(rank)]; }
  Deadline check_announcements(int self, const Wait& wait, Deadline entered, Deadline now) const;
  Deadline check_silence(int self, const Wait& wait, const std::vector<bool>& arrived,
                         Deadline now) const;

  std::vector<Peer> m_peers;
};

/// What ranks must have in common to be paired in one collective.
struct Header {
  std::uint64_t sequence = 0;
  std::string phase;
  std::size_t words = 0;
  friend bool operator==(const Header&, const Header&) = default;
};
/// The text of the Disagreement between ranks that are not in the same collective.
[[nodiscard]] std::string out_of_step(std::vector<std::pair<Header, std::vector<int>>> sides);

}  // namespace disttune::groups
