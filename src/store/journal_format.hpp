// The lines of a journal. Schema: docs/record.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "disttune/record.hpp"
#include "disttune/value.hpp"
#include "store/journal.hpp"
#include "store/process_id.hpp"

namespace disttune::store {

/// "<digest>.journal-<host>-<pid>-<start time>", with "-<n>" behind it for n > 1.
[[nodiscard]] std::filesystem::path journal_file(const std::filesystem::path& record_file,
                                                 const ProcessId& process, int n);
/// What the names of a record's journals begin with.
[[nodiscard]] std::string journal_prefix(const std::filesystem::path& record_file);

[[nodiscard]] std::string journal_header(const Value& key_text, const Value& policy,
                                         const ProcessId& process);
[[nodiscard]] std::string begin_line(const Value& candidate);
[[nodiscard]] std::string end_line(const Value& candidate, Status status, std::string_view reason,
                                   std::span<const std::int64_t> samples_ns);
[[nodiscard]] std::string interrupted_line(const Value& candidate);
/// `what`: "begin" or "end".
[[nodiscard]] std::string prepare_line(std::string_view what);

/// A journal as far as it can be read.
struct JournalContent {
  struct InFlight {
    Value candidate;
    std::string at;  ///< UTC
  };
  ProcessId process;
  std::string at;                           ///< UTC of its first line
  std::string key;                          ///< canonical text, unchecked
  std::optional<InFlight> begun;            ///< begun and neither ended nor interrupted
  bool preparing = false;                   ///< begun and not ended
  std::vector<Remains::Measured> measured;  ///< under the policy asked for
  std::vector<Value> ended;                 ///< under any policy
};
/// Nothing when the first line is damaged or another version's.
[[nodiscard]] std::optional<JournalContent> read_journal(std::string_view text,
                                                         const Value& policy);

}  // namespace disttune::store
