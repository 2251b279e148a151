// Listening in. Every event has an empty body, so that a new event breaks nobody; an observer can
// neither fail a tuning nor change it. Called in the thread that tunes, by one thread at a time,
// never inside a timed run; other tunings that have something to tell wait for it to return.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "disttune/config.hpp"
#include "disttune/record.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

enum class Level { debug, info, warning, error };

/// A cold call starts.
struct Miss {
  std::string_view function;
  const RecordKey& key;
  std::string_view reason;                      ///< why the store did not serve
  std::size_t candidates;                       ///< that will be visited
  int rank;                                     ///< < 0: no group
  std::string_view deps = {};                   ///< software versions, in canonical text
  std::span<const CandidateRecord> space = {};  ///< all candidates, with what is known of them
};
/// One candidate was visited (or refused without a visit) on this rank.
struct VisitDone {
  std::string_view function;
  std::size_t index;  ///< in the launcher's space
  const Config& config;
  Status status;
  std::string_view reason;
  std::span<const std::int64_t> samples_ns;  ///< this rank's
  std::size_t done;                          ///< visits finished in this batch, and how many it has
  std::size_t total;
  int rank;
};
struct Decided {
  std::string_view function;
  const RecordKey& key;
  const TuningRecord& tuning;
  std::string_view file;  ///< where the record lies; empty if it could not be stored
  int rank;
};
struct Message {
  Level level;
  std::string_view text;
  std::string_view cause;  ///< equal causes are one warning; empty: never merged
};

class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;
  virtual void miss(const Miss&) noexcept {}
  virtual void visit_done(const VisitDone&) noexcept {}
  virtual void decided(const Decided&) noexcept {}
  virtual void message(const Message&) noexcept {}
};

/// Adds an observer for the whole process; returns a token for `remove_observer`. Thread-safe.
std::uint64_t add_observer(std::shared_ptr<Observer> observer);
void remove_observer(std::uint64_t token);

DISTTUNE_NAMESPACE_END
