// What a store holds, from the beginnings of its files; and which stored key is nearest to one that
// was not found.
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/text.hpp"
#include "store/atomic_file.hpp"
#include "store/differences.hpp"
#include "store/original_format.hpp"
#include "store/place.hpp"
#include "store/record_json.hpp"
#include "store/store.hpp"

namespace disttune::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_digest_length = 64;
/// A miss is explained from at most this many keys, the newest ones …
constexpr std::size_t k_most_compared = 200;
/// … of at most this many files looked at.
constexpr std::size_t k_most_looked_at = 20'000;

bool is_digest(std::string_view stem) noexcept {
  return stem.size() == k_digest_length &&
         stem.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Summary summary_of_original(const OriginalForm& original) {
  Summary out;
  out.name = original.func;
  out.created = original.timestamp;
  out.key = original.key;
  out.winner = original.config.front().second.identity();
  if (const double ms = original.config.front().first; ms <= 1e300) out.winner_ns = ms * 1e6;
  out.original_format = true;
  return out;
}

std::optional<Summary> summary_of_whole(const fs::path& file) {
  const FileContent content = read_file(file, k_largest_record);
  if (content.state != FileState::read) return std::nullopt;
  try {
    const Record record = read_record(content.text);
    return summary_of(record, record.tunings.front());
  } catch (const OriginalFormat&) {
    return summary_of_original(read_original(content.text));
  }
}

std::optional<Summary> summarize(const fs::path& file) {
  std::optional<Summary> out;
  try {
    const FileContent head = read_file(file, k_head_bytes, true);
    if (head.state != FileState::read) return std::nullopt;
    out = read_head(head.text);
    if (!out) out = summary_of_whole(file);
  } catch (const Error&) {
    return std::nullopt;  // damaged, or another version's
  }
  if (out) out->file = file;
  return out;
}

/// Calls `visit(path)` for the entries of a folder until it returns false; a folder that cannot be
/// read has none.
template <class F>
void each_entry(const fs::path& folder, F&& visit) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (!visit(it->path())) return;
}

bool is_record_name(const fs::path& path) {
  return path.extension() == ".json" && is_digest(path.stem().native());
}

/// The record files of a function's folder, and those that lie beside a record that is not there.
std::vector<fs::path> record_files(const fs::path& folder, std::size_t most) {
  std::vector<fs::path> out;
  each_entry(folder, [&](const fs::path& path) {
    if (is_record_name(path)) out.push_back(path);
    return out.size() < most;
  });
  each_entry(folder / ".beside", [&](const fs::path& inner) {
    std::error_code error;
    fs::path record = folder / inner.filename();
    record += ".json";
    if (is_digest(inner.filename().native()) && !fs::exists(record, error))
      each_entry(inner, [&](const fs::path& path) {
        if (path.extension() == ".json") out.push_back(path);
        return out.size() < most;
      });
    return out.size() < most;
  });
  return out;
}

std::vector<fs::path> function_folders(const fs::path& root) {
  std::vector<fs::path> out;
  each_entry(root, [&](const fs::path& path) {
    std::error_code error;
    if (!path.filename().native().starts_with('.') && fs::is_directory(path, error))
      out.push_back(path);
    return true;
  });
  return out;
}

std::vector<fs::path> all_roots(const std::optional<fs::path>& root,
                                const std::vector<fs::path>& layers) {
  std::vector<fs::path> out;
  if (root) out.push_back(*root);
  out.insert(out.end(), layers.begin(), layers.end());
  return out;
}

/// The newest `k_most_compared` files, newest first.
std::vector<fs::path> newest(std::vector<fs::path> files) {
  using Dated = std::tuple<std::int64_t, std::int64_t, fs::path>;
  std::vector<Dated> dated;
  for (fs::path& file : files) {
    struct ::stat about {};
    if (file_calls().stat(file.c_str(), &about) == 0)
      dated.emplace_back(about.st_mtim.tv_sec, about.st_mtim.tv_nsec, std::move(file));
  }
  const std::size_t keep = std::min(dated.size(), k_most_compared);
  std::partial_sort(dated.begin(), dated.begin() + static_cast<std::ptrdiff_t>(keep), dated.end(),
                    std::greater<>());
  std::vector<fs::path> out;
  for (std::size_t i = 0; i < keep; ++i) out.push_back(std::move(std::get<2>(dated[i])));
  return out;
}

}  // namespace

std::vector<Summary> Store::list(std::string_view name) const {
  std::vector<Summary> out;
  std::set<fs::path> met;  // folder / file: what an upper layer has hides what lies below
  for (const fs::path& root : all_roots(m_root, m_layers)) {
    std::vector<fs::path> folders;
    if (name.empty()) {
      folders = function_folders(root);
    } else {
      folders.push_back(root / core::safe_name(name));
    }
    std::ranges::sort(folders);
    for (const fs::path& folder : folders) {
      std::vector<fs::path> files = record_files(folder, static_cast<std::size_t>(-1));
      std::ranges::sort(files);
      for (const fs::path& file : files) {
        std::optional<Summary> summary = summarize(file);
        if (summary && met.insert(file.lexically_relative(root)).second)
          out.push_back(std::move(*summary));
      }
    }
  }
  return out;
}

std::vector<std::string> Store::nearest_differences(std::string_view name,
                                                    const RecordKey& key) const {
  std::vector<fs::path> files;
  for (const fs::path& root : all_roots(m_root, m_layers)) {
    std::vector<fs::path> more = record_files(root / core::safe_name(name), k_most_looked_at);
    std::ranges::move(more, std::back_inserter(files));
  }
  const Value now = key.text();
  std::vector<std::string> nearest;
  for (const fs::path& file : newest(std::move(files))) {
    const std::optional<Summary> summary = summarize(file);
    if (!summary || summary->original_format) continue;
    std::vector<std::string> lines = key_differences(summary->key, now);
    // Nothing differs: a record of this key that was refused for another reason.
    if (lines.empty()) continue;
    if (nearest.empty() || lines.size() < nearest.size()) nearest = std::move(lines);
  }
  return nearest;
}

}  // namespace disttune::store
