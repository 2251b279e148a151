// disttune::unify: one rank's store as a shelf of records that others may take from and add to.
#include "agree/unify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/environment.hpp"
#include "disttune/error.hpp"
#include "disttune/unify.hpp"
#include "observe/observe.hpp"
#include "session/settings.hpp"
#include "store/store.hpp"

namespace disttune::session {
namespace {

/// The parts of a full key text as a listing shows it; what is none becomes a key of no record.
RecordKey key_of(const Value& text) {
  RecordKey out;
  if (text.kind() != Value::Kind::dict) return out;
  const std::map<Value, Value*> parts{
      {"identity", &out.identity}, {"key", &out.key},       {"hardware", &out.hardware},
      {"group", &out.group},       {"policy", &out.policy}, {"overwritten", &out.overwritten}};
  for (const auto& [name, part] : text.entries())
    if (const auto at = parts.find(name); at != parts.end()) *at->second = part;
  return out;
}

class Shelf {
 public:
  explicit Shelf(const store::Store& store) : m_store(store) {}

  /// What the ranks compare and send: a record under its function's name. Folders may be named by
  /// hand, so that one key may lie in two of them.
  [[nodiscard]] agree::Shelf shelf(const std::string& name) {
    agree::Shelf out;
    for (const store::Summary& summary : m_store.list(name)) {
      const RecordKey key = key_of(summary.key);
      if (summary.original_format || !m_store.load(summary.name, key).record) continue;
      const auto [at, is_new] = m_keys.emplace(
          fmt::format("{}\n{}", summary.name, summary.key.text()), std::pair(summary.name, key));
      if (is_new) out.keys.push_back(at->first);
    }
    out.read = [this](const std::string& key) {
      const auto& [function, record_key] = m_keys.at(key);
      const store::Lookup found = m_store.load(function, record_key);
      if (!found.record)
        throw StoreError(fmt::format("disttune: {}: {}", found.file.string(), found.reason));
      return store::write_record(*found.record);
    };
    out.adopt = [this](const std::string& record) { adopt(store::read_record(record)); };
    return out;
  }

  [[nodiscard]] std::vector<std::string> changed() const {
    return {m_changed.begin(), m_changed.end()};
  }

 private:
  void adopt(const Record& theirs) {
    const auto held = m_store.load(theirs.name, theirs.key).record;
    // Oldest first: what is saved last is the newest.
    for (auto tuning = theirs.tunings.rbegin(); tuning != theirs.tunings.rend(); ++tuning) {
      Record one = theirs;
      one.tunings = {*tuning};
      const store::Saved saved = m_store.save(one);
      if (!saved.problem.empty())
        observe::message(Level::warning, fmt::format("disttune: unify: {}", saved.problem),
                         saved.problem);
      if (saved.file.empty()) return;
    }
    const auto now = m_store.load(theirs.name, theirs.key).record;
    if (!held || (now && store::write_record(*held) != store::write_record(*now)))
      m_changed.insert(theirs.name);
  }

  const store::Store& m_store;
  std::map<std::string, std::pair<std::string, RecordKey>> m_keys;
  std::set<std::string> m_changed;
};

}  // namespace
}  // namespace disttune::session

DISTTUNE_NAMESPACE_BEGIN

std::vector<std::string> unify(ProcessGroup& group, const UnifyOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds::zero())
    throw std::invalid_argument("disttune: unify: a timeout above 0 is wanted");
  agree::Agreement call(&group, options.timeout, "unify");
  return call.run([&]() -> std::vector<std::string> {
    if (call.alone()) return {};
    call.same("name that unify was asked for", Value(options.name));
    const auto environment = core::Environment::read();
    const store::Store store(options.store ? core::resolved_once(*options.store) : environment.home,
                             environment.layers);
    session::Shelf records(store);
    agree::unify(call, records.shelf(options.name));
    return records.changed();
  });
}

DISTTUNE_NAMESPACE_END
