// What a process noted while it tuned one key: each candidate before it runs, its samples after. A
// process that dies leaves its journal; the next tuning of the key learns from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "disttune/record.hpp"
#include "disttune/value.hpp"

namespace disttune::store {

/// What earlier, dead processes left about one key.
struct Remains {
  struct Crash {
    Value candidate;   ///< identity
    std::string at;    ///< UTC of its note
    std::string what;  ///< "host h, process p, 2026-11-29T…Z"
  };
  struct Measured {
    Value candidate;
    Status status = Status::ok;
    std::string reason;
    std::vector<std::int64_t> samples_ns;
  };
  std::vector<Crash> crashed;
  std::vector<Measured> measured;
  bool died_preparing = false;  ///< several candidates at once: nobody knows which of them did it
  std::vector<std::filesystem::path> files;  ///< to be removed once the key is decided
};

/// Reads the journals beside `record_file`. A journal whose process still lives (this host: the
/// process with that start time exists; another host, boot or process namespace: written to within
/// ten minutes) is left alone; what this very process has closed with `keep` is not.
/// A crash counts under any policy, what was measured only under an equal one. A candidate that
/// crashed once and ended in a later journal did not crash. Never throws; a damaged line ends that
/// journal.
[[nodiscard]] Remains read_remains(const std::filesystem::path& record_file, const Value& key_text,
                                   const Value& policy) noexcept;

/// The key is decided: what was left is of no more use.
void remove_files(const Remains& left) noexcept;

/// One process's notes on one key, "<digest>.journal-<host>-<pid>-<start time>" beside the record;
/// JSON lines, one write a note. A journal that cannot be written does nothing, and so does one in
/// a forked child: it is its parent's. Used by one thread at a time. Where the process ends in an
/// orderly way (`exit`, a return from main) while another thread tunes, the candidate at hand
/// counts as interrupted; one that calls `exit` itself has crashed.
class Journal {
 public:
  /// No file before the first note. What was measured is resumed only under an equal `policy`, so
  /// that should hold the counts too.
  Journal(const std::filesystem::path& record_file, const Value& key_text,
          const Value& policy) noexcept;
  ~Journal();  ///< leaves the file alone; see `close`
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  void preparing() noexcept;  ///< several candidates at once, until `prepared`
  void prepared() noexcept;
  void begin(const Value& candidate) noexcept;  ///< on disk (written, not fsynced) when it returns
  /// `samples_ns`: all of the candidate's that are worth resuming; a later note on the candidate
  /// replaces an earlier one.
  void end(const Value& candidate, Status status, std::string_view reason,
           std::span<const std::int64_t> samples_ns) noexcept;
  /// The candidate at hand was interrupted (Ctrl-C): not a crash.
  void interrupted() noexcept;
  /// The key is decided, or the tuning ended in an orderly way: removes the file unless `keep`
  /// (measured samples are worth resuming).
  void close(bool keep) noexcept;

 private:
  void note(const std::string& line) noexcept;

  struct Impl;
  struct AtHand;
  std::unique_ptr<Impl> m_impl;
};

}  // namespace disttune::store
