// One cold call on a group, from its turn to its last reduction. The rules are those of
// docs/rank_protocol.md; this class is the only place that knows their order:
//
//   Agreement call(group, timeout, "gemm (8, 'float16')");   // waits for its turn on this rank
//   return call.run([&] {                      // an exception that leaves is told to the others
//     key.group = call.shape(fingerprint);     // collectives only at the group's first cold call
//     const Agreed agreed = call.handshake(hello);
//     if (agreed.record_rank) record = call.adopt(agreed, record);      // and no tuning, or …
//     if (agreed.crashed) call.unite(crashed);
//     if (agreed.resume_rank) call.broadcast(samples, *agreed.resume_rank, agreed.resume_bytes);
//     call.vote(statuses);                     // after prepare
//     while (!tuning.decided()) { …; call.reduce(tuning.block()); tuning.advance(); }
//     medians = call.finish(decision, median_ns);                       // only then store
//     if (agreed.writer) store.save(record);
//   });
//
// With no group, or one of a single rank, every step is local and costs nothing. Used by the thread
// that made it, except where said. Everything that is compared or branched on is agreed data, so
// the number and length of collectives is the same on all ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "disttune/error.hpp"
#include "disttune/group.hpp"
#include "disttune/record.hpp"
#include "disttune/value.hpp"

namespace disttune::agree {

/// What a rank that has nothing to say brings to a reduction: it never is the largest.
inline constexpr std::int64_t k_nothing = std::numeric_limits<std::int64_t>::min();

/// Goes up when the meaning or order of collectives changes; part of every handshake.
inline constexpr int k_protocol_version = 1;

/// What one rank brings to a cold call.
struct Hello {
  // These must be equal on all ranks; the first that differs is the one that Disagreement names.
  std::string function;                ///< as people know it
  Value identity = Value::dict({});    ///< who the function is: part → text or digest
  std::string mode = "tune";           ///< MODE
  Value key;                           ///< the caller's
  Value overwritten;                   ///< None, or a dict of overwritten arguments
  Value policy = Value::dict({});      ///< all that steers measuring: strategy, counts, timer …
  Value candidates = Value::list({});  ///< identities after pruning, in order

  // One rank's wish holds for all.
  bool always_tune = false;
  bool version_check = false;
  bool retry_crashed = false;

  // What this rank has; may differ.
  std::string record;                ///< its valid record as text (any text will do); empty: none
  bool record_fits_versions = true;  ///< the record would be valid under VERSION_CHECK too
  bool crashed = false;              ///< it knows of candidates that ended a process
  std::size_t resumable = 0;         ///< bytes of reduced samples it could hand on, below 2^40
  std::uint64_t store_id = 0;        ///< of the store it would write to; 0: it can write nowhere
};

/// What all ranks know after the handshake; `writer` alone differs between ranks.
struct Agreed {
  bool always_tune = false;
  bool version_check = false;
  bool retry_crashed = false;
  std::optional<int> record_rank;  ///< whose record all adopt; nothing: all tune
  bool record_everywhere = false;  ///< all ranks hold that record already
  bool crashed = false;            ///< some rank knows of crashed candidates: call `unite`
  std::optional<int> resume_rank;  ///< who hands on samples (not when a record is adopted)
  std::size_t resume_bytes = 0;
  bool writer = true;  ///< this rank writes to its store
};

/// The candidate at hand failed on another rank, and this rank's stream never got past it.
class NotDrained : public PeerFailed {
 public:
  using PeerFailed::PeerFailed;
};

class Agreement {
 public:
  /// Waits until no other thread of this rank has a cold call on `group` (which may be null); one
  /// inside a cold call of this thread is part of it, on all ranks. `what` names the call in
  /// messages. Throws PeerFailed, GroupTimeout or Disagreement with the original reason when the
  /// group's channel is closed; Error when a run of the thread whose turn it is takes longer than
  /// `timeout`: it may be waiting for this one.
  Agreement(ProcessGroup* group, std::chrono::nanoseconds timeout, std::string what);
  /// A call that neither finished nor ended alike is abandoned.
  ~Agreement();
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  /// This thread goes on without it, and another one with it. Those who wait for the group's turn
  /// take what it is about in between for one run.
  void leave_thread() noexcept;
  void enter_thread();
  /// The run at hand is getting on, in whichever thread: it is not one that hangs.
  void goes_on() noexcept;

  [[nodiscard]] bool alone() const noexcept { return m_group == nullptr; }
  [[nodiscard]] int rank() const noexcept { return m_group ? m_group->rank() : 0; }
  [[nodiscard]] int size() const noexcept { return m_group ? m_group->size() : 1; }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return m_sequence; }
  /// Collectives of this call so far.
  [[nodiscard]] std::uint64_t reductions() const noexcept { return m_reductions; }

  /// Runs the call's body; what it throws is announced with its text, then passed on.
  template <class F>
  decltype(auto) run(F&& body) {
    return telling([this](std::string_view why) { abandon(why); }, std::forward<F>(body));
  }

  /// Size, sorted ranks per node and sorted distinct hardware texts: the `group` of a record key;
  /// None when alone. Exchanged at the group's first cold call, remembered afterwards.
  Value shape(const Value& hardware);
  /// One fixed-length MAX. Throws Disagreement, the same on all ranks, when a field differs; then
  /// the call is over and the group can be used again.
  [[nodiscard]] Agreed handshake(const Hello& mine);
  /// The record of `agreed.record_rank`, on all ranks.
  [[nodiscard]] std::string adopt(const Agreed& agreed, std::string mine);
  /// Elementwise "any rank": nonzero is true.
  void unite(std::span<std::int64_t> marks);
  /// By candidate the worst status of any rank.
  void vote(std::span<Status> statuses);
  /// The batch's block, in place.
  void reduce(std::span<std::int64_t> block);
  /// Elementwise maximum of any words, for steps that are built on it; `phase` is part of what has
  /// to be equal.
  void reduce_words(std::span<std::int64_t> words, std::string_view phase);
  /// `bytes` of rank `root`, on all ranks. Where all know its size beforehand one reduction less.
  void broadcast(std::string& bytes, int root, std::optional<std::size_t> size = std::nullopt);
  /// Must be equal on all ranks: Disagreement otherwise, naming `what`. One reduction. For dicts
  /// and lists the message names the entries that differ.
  void same(std::string_view what, const Value& value);
  /// Whether `remember` was called with this on the group. No collective.
  [[nodiscard]] bool remembers(const std::string& compared) const;
  void remember(const std::string& compared);
  /// All ranks are here. One reduction; `why` is part of what has to be equal.
  void meet(std::string_view why = "meeting");
  /// The last reduction. Throws Disagreement when ranks decided differently: then nothing may be
  /// stored. Returns the ranks' medians: all up to 64 ranks, else minimum, median, maximum and the
  /// eight slowest (one reduction more), by rank. A median below 0 is none.
  std::vector<RankMedian> finish(std::string_view decision, std::int64_t median_ns = -1);
  /// The ranks' medians as `finish` gives them, where a call has more than one. One reduction.
  std::vector<RankMedian> medians(std::int64_t median_ns);
  /// The call ends with an error that agreed data alone brought about, so that all ranks raise it.
  void ended_alike() noexcept;
  /// Tells the others that this rank ends the call with an error. Once; later calls do nothing.
  void abandon(std::string_view why) noexcept;

  /// While measuring: this rank runs `candidate` now; `display` is for messages.
  void visiting(std::uint32_t candidate, std::string_view display);
  /// Tells the others that the candidate at hand failed here, so that they do not wait for it.
  void candidate_failed(std::uint32_t candidate) noexcept;
  /// To be called now and then while this rank waits for its own device. Throws what is due:
  /// PeerFailed, GroupTimeout; PeerFailed also when the candidate at hand failed on another rank
  /// ten seconds ago and this rank is still waiting.
  void poll();

 private:
  struct Field;
  template <class Tell, class F>
  static decltype(auto) telling(const Tell& tell, F&& body) {
    try {
      return std::forward<F>(body)();
    } catch (const std::exception& e) {
      tell(e.what());
      throw;
    } catch (const detail::ForeignException& e) {
      tell(e.text());
      throw;
    } catch (...) {
      tell("interrupted");
      throw;
    }
  }
  [[nodiscard]] Wait wait(std::string_view phase) const;
  void max(std::span<std::int64_t> words, std::string_view phase);
  [[nodiscard]] std::vector<std::int64_t> gather(std::int64_t word, std::string_view phase);
  void exchange_hardware(const Value& hardware);
  [[noreturn]] void disagree(std::string_view what, const std::string& text);
  [[nodiscard]] bool is_writer(std::int64_t store, bool changed);
  void close(std::uint64_t kind, const char* why) noexcept;
  [[nodiscard]] bool is_nested() const noexcept { return m_nested > 0; }
  [[nodiscard]] std::uint64_t note_of(std::uint32_t candidate) const noexcept {
    return m_nested << 32U | candidate;
  }
  void take_turn();
  void wait_for_turn(std::unique_lock<std::mutex>& lock, std::uint64_t ticket) const;
  void end(bool next_sequence) noexcept;

  ProcessGroup* m_group;  ///< null when alone
  std::chrono::nanoseconds m_timeout;
  std::string m_what;
  std::string m_announced_call;  ///< function and key, once known
  std::uint64_t m_sequence = 0;
  std::uint64_t m_reductions = 0;
  bool m_over = false;
  std::string m_outer;         ///< the call of this thread inside which this one was met
  std::uint64_t m_nested = 0;  ///< tells its notes from the outer call's

  std::uint32_t m_candidate = 0;
  std::string m_candidate_text;
  std::optional<Deadline> m_failed_elsewhere;  ///< when a peer's note on it was first seen
};

/// A call on `group` ended before it reached an Agreement (a key function raised): tells the
/// others. Never waits.
void abandon_call(ProcessGroup& group, std::string_view why) noexcept;
/// The group's shape if it was exchanged already; no collective.
[[nodiscard]] std::optional<Value> known_shape(ProcessGroup& group);

}  // namespace disttune::agree
