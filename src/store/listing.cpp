// What a store holds, from the beginnings of its files; and which stored key is nearest to one that
// was not found.
#include <fmt/format.h>
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

std::string not_read(const fs::path& path, std::string_view why) {
  return fmt::format("{}: {}", path.string(), why);
}

/// Nothing, with the reason in `why`, for what is no record of ours or cannot be read.
std::optional<Summary> summary_of_whole(const fs::path& file, std::string& why) {
  const FileContent content = read_file(file, k_largest_record);
  if (content.state != FileState::read) {
    why = content.reason;
    return std::nullopt;
  }
  try {
    const Record record = read_record(content.text);
    return summary_of(record, record.tunings.front());
  } catch (const OriginalFormat&) {
    return summary_of_original(read_original(content.text));
  }
}

std::optional<Summary> summarize(const fs::path& file, std::string& why) {
  std::optional<Summary> out;
  try {
    const FileContent head = read_file(file, k_head_bytes, true);
    if (head.state != FileState::read) {
      why = head.reason;
      return std::nullopt;
    }
    out = read_head(head.text);
    if (!out) out = summary_of_whole(file, why);
  } catch (const Error& e) {  // damaged, or another version's
    why = e.what();
    return std::nullopt;
  }
  if (out) out->file = file;
  return out;
}

/// Calls `visit(path)` for the entries of a folder until it returns false. A folder that cannot be
/// read has none: the error says why, and is empty for one that is not there.
template <class F>
std::error_code each_entry(const fs::path& folder, F&& visit) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (!visit(it->path())) return {};
  return error == std::errc::no_such_file_or_directory ? std::error_code{} : error;
}

bool is_record_name(const fs::path& path) {
  return path.extension() == ".json" && is_digest(path.stem().native());
}

/// The records of a function's folder.
std::vector<fs::path> record_files(const fs::path& folder, std::size_t most,
                                   std::error_code* problem = nullptr) {
  std::vector<fs::path> out;
  const std::error_code error = each_entry(folder, [&](const fs::path& path) {
    if (is_record_name(path)) out.push_back(path);
    return out.size() < most;
  });
  if (problem != nullptr) *problem = error;
  return out;
}

/// What was saved beside records of the folder, other than beside those in `readable`.
std::vector<fs::path> files_beside(const fs::path& folder, const std::set<fs::path>& readable,
                                   std::size_t most) {
  std::vector<fs::path> out;
  static_cast<void>(each_entry(folder / ".beside", [&](const fs::path& inner) {
    fs::path record = folder / inner.filename();
    record += ".json";
    if (is_digest(inner.filename().native()) && !readable.contains(record))
      static_cast<void>(each_entry(inner, [&](const fs::path& path) {
        if (path.extension() == ".json") out.push_back(path);
        return out.size() < most;
      }));
    return out.size() < most;
  }));
  return out;
}

std::vector<fs::path> function_folders(const fs::path& root, std::error_code& problem) {
  std::vector<fs::path> out;
  problem = each_entry(root, [&](const fs::path& path) {
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

std::vector<Summary> Store::list(std::string_view name, std::vector<std::string>* left_out) const {
  std::vector<Summary> out;
  std::set<fs::path> met;  // folder / file: what an upper layer has hides what lies below
  const auto leave_out = [&](const fs::path& path, std::string_view why) {
    if (left_out != nullptr) left_out->push_back(not_read(path, why));
  };
  for (const fs::path& root : all_roots(m_root, m_layers)) {
    std::vector<fs::path> folders;
    std::error_code problem;
    if (name.empty()) {
      folders = function_folders(root, problem);
    } else {
      folders.push_back(root / core::safe_name(name));
    }
    if (problem) leave_out(root, problem.message());
    std::ranges::sort(folders);
    for (const fs::path& folder : folders) {
      std::set<fs::path> readable;
      const auto add = [&](std::vector<fs::path> files) {
        std::ranges::sort(files);
        for (const fs::path& file : files) {
          std::string why;
          std::optional<Summary> summary = summarize(file, why);
          if (!summary) {
            leave_out(file, why);
            continue;
          }
          readable.insert(file);
          if (met.insert(file.lexically_relative(root)).second) out.push_back(std::move(*summary));
        }
      };
      add(record_files(folder, static_cast<std::size_t>(-1), &problem));
      if (problem) leave_out(folder, problem.message());
      add(files_beside(folder, readable, static_cast<std::size_t>(-1)));
    }
  }
  return out;
}

std::vector<std::string> Store::nearest_differences(std::string_view name,
                                                    const RecordKey& key) const {
  std::vector<fs::path> files;
  for (const fs::path& root : all_roots(m_root, m_layers)) {
    const fs::path folder = root / core::safe_name(name);
    std::vector<fs::path> more = record_files(folder, k_most_looked_at);
    std::ranges::move(files_beside(folder, {more.begin(), more.end()}, k_most_looked_at),
                      std::back_inserter(more));
    std::ranges::move(more, std::back_inserter(files));
  }
  const Value now = key.text();
  std::vector<std::string> nearest;
  for (const fs::path& file : newest(std::move(files))) {
    std::string why;
    const std::optional<Summary> summary = summarize(file, why);
    if (!summary || summary->original_format) continue;
    std::vector<std::string> lines = key_differences(summary->key, now);
    // Nothing differs: a record of this key that was refused for another reason.
    if (lines.empty()) continue;
    if (nearest.empty() || lines.size() < nearest.size()) nearest = std::move(lines);
  }
  return nearest;
}

}  // namespace disttune::store
