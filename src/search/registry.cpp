#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "disttune/selector.hpp"
#include "search/checked.hpp"
#include "search/choice.hpp"
#include "search/fixed.hpp"
#include "search/race.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, SelectorFactory, std::less<>> factories;
};

/// Made at the first use and never destroyed: launchers at namespace scope may still search then.
Registry& registry() {
  static auto* const made =
      new Registry{{}, {{"fixed", search::make_fixed}, {"race", search::make_race}}};
  return *made;
}

/// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string joined(const std::vector<std::string>& names, std::string_view between) {
  std::string out;
  for (const std::string& name : names) {
    if (!out.empty()) out += between;
    out += name;
  }
  return out;
}

[[noreturn]] void unknown(std::string_view strategy) {
  const std::vector<std::string> known = strategies();
  std::vector<std::string> close;
  for (const std::string& name : known)
    if (distance(strategy, name) <= std::max<std::size_t>(1, name.size() / 3))
      close.push_back("'" + name + "'");
  // A hostile or mistaken text of any length must not fill the message.
  std::string message =
      "disttune: there is no search strategy '" + std::string(strategy.substr(0, 80)) + "'";
  if (!close.empty()) message += " (did you mean " + joined(close, " or ") + "?)";
  throw std::invalid_argument(message + "; known: " + joined(known, ", "));
}

}  // namespace

void register_strategy(std::string name, SelectorFactory factory) {
  if (name.empty()) throw std::invalid_argument("disttune: a search strategy needs a name");
  if (!factory)
    throw std::invalid_argument("disttune: the search strategy '" + name + "' has no factory");
  SelectorFactory checked =
      [name, made = std::move(factory)](const Problem& problem) -> std::unique_ptr<Selector> {
    std::unique_ptr<Selector> selector = made(problem);
    if (!selector) return nullptr;
    return std::make_unique<search::CheckedSelector>(name, problem, std::move(selector));
  };
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto [at, added] = r.factories.try_emplace(std::move(name), std::move(checked));
  if (!added)
    throw std::invalid_argument("disttune: there is a search strategy '" + at->first + "' already");
}

std::vector<std::string> strategies() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<std::string> out;
  for (const auto& [name, factory] : r.factories) out.push_back(name);
  return out;
}

std::unique_ptr<Selector> make_selector(std::string_view strategy, const Problem& problem) {
  search::check_problem(problem);
  SelectorFactory factory;
  {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    if (const auto it = r.factories.find(strategy); it != r.factories.end()) factory = it->second;
  }
  if (!factory) unknown(strategy);
  std::unique_ptr<Selector> selector = factory(problem);
  if (!selector)
    throw std::logic_error("disttune: the factory of the search strategy '" +
                           std::string(strategy) + "' made nothing");
  return selector;
}

DISTTUNE_NAMESPACE_END
