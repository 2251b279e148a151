// What one tuning learned, as plain data: kept in the store, returned by `result`, shown by
// `explain`. Texts and field names are those of the record schema (docs/record.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "disttune/config.hpp"
#include "disttune/value.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// How a candidate ended. The order is the order of severity in which ranks' statuses are combined:
/// across ranks the largest holds.
enum class Status : std::uint8_t {
  ok,
  skipped,  ///< not visited (budget, or not needed)
  pruned,
  wrong_result,
  timed_out,
  out_of_resources,
  compile_failed,
  launch_failed,
  crashed,  ///< a process died while it ran
};
[[nodiscard]] std::string_view to_string(Status status) noexcept;
[[nodiscard]] std::optional<Status> parse_status(std::string_view text) noexcept;

struct CandidateRecord {
  Config config;
  Status status = Status::skipped;
  std::string reason;                    ///< why it is not `ok`; stage, type and message
  std::vector<std::int64_t> samples_ns;  ///< after reduction over ranks, in the order taken
  std::vector<std::int64_t> host_ns;     ///< this rank's host time of the same runs
  std::optional<double> score_ns;        ///< nothing unless `ok`
};

/// The winner's median on one rank (all ranks up to 64).
struct RankMedian {
  int rank = 0;
  std::int64_t median_ns = 0;
};

/// One tuning under one set of software versions.
struct TuningRecord {
  Value deps = Value::dict({});  ///< dict of texts; None: unknown
  std::vector<CandidateRecord> candidates;
  std::optional<Value> winner;             ///< identity of a candidate above
  Value default_config = Value::dict({});  ///< identity of the space's entry 0
  std::string created;                     ///< UTC, "2026-11-29T19:12:12Z"
  std::string strategy = "fixed";
  int warmup = 0;
  int repeat = 0;
  bool checked = false;  ///< results were compared with a reference
  double prepare_seconds = 0;
  double measure_seconds = 0;
  std::string gate = "none";         ///< how the stream was held closed
  std::vector<std::string> quality;  ///< "contended", "throttled", "ungated", "budget"
  std::vector<RankMedian> rank_medians;
  std::string host;
  std::string tool_version;
  std::string extra = "{}";  ///< JSON object: fields of newer versions, kept on rewrite
};

/// What decides which record is meant. Every part is canonical.
struct RecordKey {
  Value identity = Value::dict({});  ///< who the function is: part → text or digest
  Value key;                         ///< the caller's
  Value hardware;                    ///< Device::fingerprint
  Value group;  ///< None for one process; else size, ranks per node, hardware texts
  Value policy = Value::dict({});  ///< clock, cache, launch (eager or graph)
  Value overwritten;               ///< None, or dict of overwritten arguments

  /// The full key text: a dict of the parts above. Its SHA-256 is the file's name.
  [[nodiscard]] Value text() const;
  friend bool operator==(const RecordKey&, const RecordKey&) = default;
};

struct Record {
  std::string name;  ///< the function's name, as people know it
  std::string module;
  RecordKey key;
  std::vector<TuningRecord> tunings;  ///< newest first, at most eight
  std::string extra = "{}";           ///< JSON object: fields of newer versions, kept on rewrite
};

/// Why these arguments get the candidate that they get.
struct Explanation {
  std::string source;            ///< "memory", "store", "layer", "none", "default", …
  std::optional<Config> config;  ///< what would run now
  std::string file;              ///< the record's path, whether or not it is there
  std::string miss_reason;       ///< empty on a hit
  /// For a miss: fields in which the nearest record differs, one "field: theirs → ours" a line.
  std::vector<std::string> differences;
  [[nodiscard]] std::string text() const;  ///< all of it, for people
};

DISTTUNE_NAMESPACE_END
