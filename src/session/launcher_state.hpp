// What the session keeps of one launcher: its identity once computed, the keys being tuned, and the
// records that no store could take.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/fork.hpp"
#include "disttune/detail/attempt.hpp"
#include "disttune/record.hpp"
#include "session/process.hpp"

namespace disttune::session {

/// One key in the hands of one thread; other callers of the key wait here.
struct Flight {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::optional<detail::Outcome> outcome;  ///< nothing: `error`, or the tuner was interrupted
  std::exception_ptr error;
  RunClock runs;  ///< of the thread that has the key
};

struct Flights {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<Flight>> by_name;
};

}  // namespace disttune::session

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

class LauncherState {
 public:
  explicit LauncherState(LauncherSpec s) : spec(std::move(s)) {}

  /// Computed at the first use. What it throws passes, and the next use tries again.
  const Value& identity() {
    Identity& mine = m_identity.get();
    const std::lock_guard lock(mine.mutex);
    if (!mine.value) mine.value = spec.identity();
    return *mine.value;
  }

  const LauncherSpec spec;
  core::PerProcess<session::Flights> flights;
  std::mutex records_mutex;
  std::unordered_map<Value, Record> unstored;  ///< by full key text
  /// What this rank decided and another one writes; for `result`, which may be asked before.
  std::unordered_map<Value, Record> written_elsewhere;

 private:
  struct Identity {
    std::mutex mutex;
    std::optional<Value> value;
  };
  core::PerProcess<Identity> m_identity;
};

}  // namespace detail
DISTTUNE_NAMESPACE_END
