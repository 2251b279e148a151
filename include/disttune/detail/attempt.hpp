// Where the typed front (function.hpp, contextual.hpp, the Python package) meets the untyped
// session (src/session). Not for users: nothing here is stable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "disttune/config.hpp"
#include "disttune/device.hpp"
#include "disttune/error.hpp"
#include "disttune/group.hpp"
#include "disttune/record.hpp"
#include "disttune/value.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

/// Thrown by an Attempt where it knows more than "the launch failed".
class CandidateFailed : public Error {
 public:
  CandidateFailed(Status status, const std::string& why) : Error(why), m_status(status) {}
  [[nodiscard]] Status status() const noexcept { return m_status; }

 private:
  Status m_status;
};

/// What a launcher's options say; an empty one leaves the choice to the environment, then to the
/// default (core/environment.hpp).
struct LauncherOptions {
  std::optional<std::string> strategy;
  std::optional<int> warmup;
  std::optional<int> repeat;
  std::optional<std::string> timer;  ///< auto, device, host, graph
  std::optional<std::string> cache;  ///< hot, cold
  std::optional<std::string> store;  ///< a folder
  /// A clock of the caller's: nanoseconds now; a sample is the difference of two readings.
  std::function<std::int64_t()> clock;
  std::string clock_name;  ///< what messages call it; the policy says "custom"
  bool checked = false;    ///< Attempt::check compares results
};

/// One tuned function for its whole life. Making it does no I/O and reads no environment.
struct LauncherSpec {
  std::string name;  ///< folder in the store; what messages call it
  std::string module;
  std::vector<Config> candidates;   ///< entry 0 is the default; equal ones are timed once
  std::function<Value()> identity;  ///< dict part → text; called once, at the first miss
  LauncherOptions options;
};

/// One call, as the session sees it. Its methods may throw: CandidateFailed, or any std::exception
/// (then the candidate is `launch_failed`); anything that is not a std::exception (an interrupt)
/// passes through everything, at once.
class Attempt {
 public:
  /// prune_fn. What it throws goes to the caller.
  [[nodiscard]] virtual bool admits(std::size_t candidate) {
    static_cast<void>(candidate);
    return true;
  }
  /// Compile or load one candidate without launching it. Called from several threads.
  [[nodiscard]] virtual bool can_prepare() const { return false; }
  virtual void prepare(std::size_t candidate) { static_cast<void>(candidate); }
  /// A visit begins: a private copy of the candidate's values, storage for `runs` results.
  virtual void begin_visit(std::size_t candidate, std::size_t runs) {
    static_cast<void>(candidate);
    static_cast<void>(runs);
  }
  /// Before every run of a tuning, its final run too, outside the sample (restore, reset).
  virtual void before_run() {}
  /// Launches the candidate; its result is kept until `drop_results`.
  virtual void run(std::size_t candidate) = 0;
  /// Once a tuning, ahead of all checks and of what the journal says to run: asks the reference.
  /// What it throws goes to the caller.
  virtual void expect() {}
  /// One more run whose result is compared with the reference; a text says what is wrong.
  [[nodiscard]] virtual std::optional<std::string> check(std::size_t candidate) {
    static_cast<void>(candidate);
    return std::nullopt;
  }
  /// In a contextual call: names of the caller's data that `before_final_run` puts back.
  [[nodiscard]] virtual std::vector<std::uintptr_t> data() { return {}; }
  /// In a contextual call: ahead of the winner's first run in the last pass, and of the first one
  /// on other data that runs of the tuning were given.
  virtual void before_final_run(std::size_t candidate) { static_cast<void>(candidate); }
  virtual void drop_results() noexcept = 0;
  /// Publishes the choice to the front's memory table; called before other callers of the key wake.
  virtual void decided(std::size_t candidate) = 0;
  /// In a contextual call: the candidate that the kernel itself has chosen for this key already.
  /// Where all ranks have the same one, nothing is tuned.
  [[nodiscard]] virtual std::optional<std::size_t> held() { return std::nullopt; }

 protected:
  ~Attempt() = default;
};

class LauncherState;  // session/launcher_state.hpp

/// A launcher's handle; cheap to make, safe to share between threads.
class Launcher {
 public:
  explicit Launcher(LauncherSpec spec);
  ~Launcher();
  Launcher(Launcher&&) noexcept;
  Launcher& operator=(Launcher&&) noexcept;
  [[nodiscard]] const LauncherSpec& spec() const noexcept;
  [[nodiscard]] LauncherState& state() const noexcept { return *m_state; }

 private:
  std::unique_ptr<LauncherState> m_state;
};

/// What one call brings along.
struct Call {
  Value key;                      ///< the caller's, in canonical text
  Value overwritten;              ///< None, or a dict of overwritten arguments
  Stream stream;                  ///< no device: the host
  ProcessGroup* group = nullptr;  ///< null or one rank: alone
  bool verbose = false;
};

/// What a cold call ends in. The caller runs `candidate` once more: that is the call's result.
struct Outcome {
  std::size_t candidate = 0;
  bool decided = false;  ///< false: a stand-in for this call only, not to be remembered
  /// "tuned", "stored", "adopted", "waited" (another thread tuned it), "default" (MODE cached),
  /// "off", "first", "busy" (met inside a visit).
  std::string_view source;
  bool restore = false;  ///< this final run belongs to a tuning: before_run first
};

/// The cold path of a function-level call: store, agreement, measuring. See design 3 and
/// ARCHITECTURE.md "A cold call". Thread-safe.
[[nodiscard]] Outcome decide(const Launcher& launcher, const Call& call, Attempt& attempt);
/// Where the choice for this call comes from, or why there is none. Reads the store, changes
/// nothing. `admits` is the attempt's.
[[nodiscard]] Explanation explain(const Launcher& launcher, const Call& call,
                                  const std::function<bool(std::size_t)>& admits);
/// The record for this call, if memory or store has one.
[[nodiscard]] std::optional<Record> result(const Launcher& launcher, const Call& call);
/// The folder of the launcher's records (with the store and environment of now).
[[nodiscard]] std::string folder(const Launcher& launcher);
/// A call on `group` ended before it reached `decide` (a key function raised): tells the others.
void abandon_call(ProcessGroup& group, std::string_view why) noexcept;

/// Versions of the libraries above the device (Python: torch, triton …), a dict value; merged into
/// a record's deps. Called at the first miss of a key.
void set_software_provider(std::function<Value()> provider);
/// Called now and then, in the waiting thread, while a thread waits for another one's tuning or for
/// the device; may throw (Python: pending signals).
void set_interrupt_hook(std::function<void()> hook);

/// A contextual call in progress, as a tuned kernel's miss sees it.
class Pass {
 public:
  explicit Pass(std::uint64_t ranks) noexcept : place(ranks) {}
  /// ProcessGroup::place of those who decide together, 0: this rank alone. What a kernel has chosen
  /// otherwise does not count in the call.
  const std::uint64_t place;
  virtual void answer(const Launcher& kernel, const Call& call, Attempt& attempt) = 0;

 protected:
  ~Pass() = default;
};
/// The running pass of this thread.
inline thread_local Pass* current_pass = nullptr;

}  // namespace detail
DISTTUNE_NAMESPACE_END
