// Folders of records. A file is never trusted: whatever is wrong with it is a miss with a reason.
// Reading takes no lock; writing is temporary name + rename. A new record takes no lock either; one
// that is there is merged with under an advisory lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "disttune/record.hpp"

namespace disttune::store {

/// Something that people should hear of.
struct Note {
  std::string text;
  std::string cause;  ///< notes of an equal one are said once
};

/// What a look-up found.
struct Lookup {
  std::optional<Record> record;
  std::filesystem::path file;  ///< where it lies, or would lie in the root
  bool from_layer = false;
  std::string reason;       ///< why there is none ("no record", "damaged: …, moved to …")
  std::vector<Note> notes;  ///< what else happened (files moved aside …)
};
struct Saved {
  std::filesystem::path file;  ///< empty: could not be stored
  std::string problem;         ///< why not, or what was odd; empty: nothing
};
/// The first lines of a record: what listing reads.
struct Summary {
  std::filesystem::path file;
  std::string name, module, created;
  Value key;  ///< the full key text (RecordKey::text)
  std::optional<Value> winner;
  std::optional<double> winner_ns, default_ns;
  bool original_format = false;
};

class Store {
 public:
  /// No I/O happens here. `root` empty: memory only (every look-up misses, every save says why).
  Store(std::optional<std::filesystem::path> root, std::vector<std::filesystem::path> layers);

  [[nodiscard]] const std::optional<std::filesystem::path>& root() const noexcept { return m_root; }
  [[nodiscard]] std::filesystem::path folder(std::string_view name) const;
  [[nodiscard]] std::filesystem::path file(std::string_view name, const RecordKey& key) const;

  /// Root first, then the layers in order; a layer adds the tunings under deps that those above do
  /// not have. A damaged file in the root is moved aside, in a layer it is left alone. Never
  /// throws.
  [[nodiscard]] Lookup load(std::string_view name, const RecordKey& key) const noexcept;
  /// Adds the record's newest tuning (replacing one with equal deps), merging with what is there.
  /// What cannot be merged (another process holds the lock for 5 s; the file is another version's
  /// or cannot be read) is saved beside it, where look-ups find it and the next save takes it in.
  /// Never throws.
  Saved save(const Record& record) const noexcept;
  /// The summaries of a function's folder (all functions: empty name), by folder and file name;
  /// what the root has hides an equal file of a layer. What cannot be read is skipped, and goes to
  /// `left_out` as "path: reason".
  [[nodiscard]] std::vector<Summary> list(std::string_view name = {},
                                          std::vector<std::string>* left_out = nullptr) const;
  /// Lines "field: theirs → ours" of the stored key nearest to `key` (fewest fields differ; the 200
  /// newest files are compared); empty if nothing is stored.
  [[nodiscard]] std::vector<std::string> nearest_differences(std::string_view name,
                                                             const RecordKey& key) const;
  /// A random number that tells roots apart, kept in a file in the root; 0 when it cannot be
  /// written.
  [[nodiscard]] std::uint64_t id() const noexcept;

 private:
  std::optional<std::filesystem::path> m_root;
  std::vector<std::filesystem::path> m_layers;
};

/// Record ↔ JSON text (docs/record.md). Both throw StoreError: `read` with the offset of what is
/// wrong; it accepts unknown fields and keeps them in `extra`; `write` for a record that could not
/// be read again (no tuning, a winner that is not among the candidates that are ok, a negative
/// sample, an `extra` that is no JSON object).
[[nodiscard]] std::string write_record(const Record& record);
[[nodiscard]] Record read_record(std::string_view json);

/// Fields of two deps dicts that differ, "field: stored → now", dicts inside them field by field;
/// what is None or missing on either side is no difference.
[[nodiscard]] std::vector<std::string> deps_differences(const Value& stored, const Value& now);

}  // namespace disttune::store
