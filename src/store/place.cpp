#include "store/place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "store/atomic_file.hpp"
#include "store/extra_fields.hpp"
#include "store/record_json.hpp"

namespace disttune::store {

namespace fs = std::filesystem;

Reading read_record_file(const fs::path& file, const RecordKey& key, const Value* but) {
  FileContent content = read_file(file, k_largest_record);
  Reading out;
  out.inode = content.inode;
  out.reason = std::move(content.reason);
  switch (content.state) {
    case FileState::read:
      break;
    case FileState::missing:
      return out;
    case FileState::unreadable:
      out.condition = Condition::unreadable;
      return out;
    case FileState::not_a_file:
    case FileState::too_large:
      out.condition = Condition::damaged;
      return out;
  }
  try {
    Record record = read_record_but(content.text, but);
    if (record.key == key) {
      out.condition = Condition::good;
      out.record = std::move(record);
    } else {
      out.condition = Condition::damaged;
      out.reason = "it holds the record of another key";
    }
  } catch (const OtherFormat& e) {
    out.condition = Condition::foreign;
    out.reason = e.what();
  } catch (const Error& e) {
    out.condition = Condition::damaged;
    out.reason = e.what();
  }
  return out;
}

fs::path beside_folder(const fs::path& file) {
  return file.parent_path() / ".beside" / file.stem();
}

void remove_beside_folder(const fs::path& file) {
  // Either fails, as it should, when somebody has saved something there meanwhile.
  const fs::path folder = beside_folder(file);
  if (file_calls().rmdir(folder.c_str()) == 0)
    (void)file_calls().rmdir(folder.parent_path().c_str());
}

std::vector<Beside> read_beside(const fs::path& file, const RecordKey& key,
                                std::vector<std::string>& notes) {
  std::vector<Beside> out;
  std::error_code error;
  for (fs::directory_iterator it(beside_folder(file), error), end; !error && it != end;
       it.increment(error)) {
    const fs::path& path = it->path();
    if (path.extension() != ".json") continue;
    Reading reading = read_record_file(path, key);
    if (reading.condition == Condition::good) {
      out.push_back({path, std::move(*reading.record)});
    } else if (reading.condition != Condition::missing) {
      notes.push_back(fmt::format("{}: {}", path.string(), reading.reason));
    }
  }
  std::ranges::sort(out, [](const Beside& a, const Beside& b) {
    const std::string& a_created = a.record.tunings.front().created;
    const std::string& b_created = b.record.tunings.front().created;
    return a_created != b_created ? a_created > b_created : a.file < b.file;
  });
  return out;
}

void merge_tunings(std::vector<TuningRecord>& into, std::vector<TuningRecord> more) {
  if (more.empty()) return;
  for (TuningRecord& tuning : more) {
    const auto same = std::ranges::find(into, tuning.deps, &TuningRecord::deps);
    if (same == into.end()) {
      into.push_back(std::move(tuning));
    } else if (tuning.created >= same->created) {  // saved later, within a second
      *same = std::move(tuning);
    }
  }
  std::ranges::stable_sort(into, std::ranges::greater(), &TuningRecord::created);
  if (into.size() > k_most_tunings) into.resize(k_most_tunings);
}

void merge_extra(std::string& into, const std::string& more) {
  if (more == "{}" || into == more) return;
  ExtraFields all = ExtraFields::parse(more);
  const ExtraFields stronger = ExtraFields::parse(into);
  for (const auto& [name, value] : stronger.all()) all.set(name, value);
  into = all.json();
}

}  // namespace disttune::store
