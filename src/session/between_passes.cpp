#include "session/between_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "agree/digest.hpp"

namespace disttune::session {
namespace {

/// What ranks must have in common after a pass, each with its name; what comes later in the list
/// can be told apart only where all before it is equal.
std::vector<std::pair<std::string, Value>> launched(const std::string& call,
                                                    const Contexts& contexts) {
  std::vector<Value> names;
  std::vector<Value> keys;
  std::vector<std::pair<Value, Value>> launches;
  std::vector<std::pair<Value, Value>> checks;
  std::vector<Value> candidates;
  std::map<std::string, int> met;
  for (const auto& f : contexts) {
    const std::string& kernel = f->context.kernel().spec().name;
    std::string place = fmt::format("{} {}", kernel, f->context.key().text());
    if (const int n = ++met[place]; n > 1) place += fmt::format(" #{}", n);  // of one name, or key
    if (std::ranges::find(names, Value(kernel)) == names.end()) names.emplace_back(kernel);
    keys.emplace_back(place);
    checks.emplace_back(Value(place), Value(f->context.checked()));
    // Below another one the number depends on whether candidates of that one failed on this rank.
    launches.emplace_back(Value(place), f->context.is_below_another()
                                            ? Value("inside another kernel")
                                            : Value(f->context.launches()));
    candidates.push_back(f->context.candidates());
  }
  return {
      {fmt::format("tuned kernels launched in a pass of '{}'", call), Value::list(names)},
      {fmt::format("keys of tuned kernels launched in a pass of '{}'", call), Value::list(keys)},
      {fmt::format("number of launches of each tuned kernel and key in a pass of '{}'", call),
       Value::dict(std::move(launches))},
      {fmt::format("checks of tuned kernels launched in a pass of '{}'", call),
       Value::dict(std::move(checks))},
      {"candidates", Value::list(candidates)}};
}

void name_what_differs(agree::Agreement& agreement, const Contexts& contexts,
                       const std::vector<std::pair<std::string, Value>>& parts, std::size_t part) {
  if (part + 1 < parts.size()) return agreement.same(parts[part].first, parts[part].second);
  for (const auto& f : contexts)
    if (f->context.just_found())
      agreement.same(fmt::format("candidates of kernel '{}' with key {}",
                                 f->context.kernel().spec().name, f->context.key().text()),
                     f->context.candidates());
}

void adopt_stored(agree::Agreement& a, const Contexts& contexts, const agree::Agreed& agreed) {
  // The lowest holder and whether its versions are others, whether a rank has none, what all hold.
  constexpr std::size_t k_words = 4;
  std::vector<std::pair<FoundContext*, std::string>> offers;
  std::vector<std::int64_t> words;
  for (const auto& f : contexts) {
    if (!f->context.just_found()) continue;
    f->kept->follow(agreed);
    auto [text, other_versions] = f->kept->offer(a.shape(f->kept->hardware()));
    const bool holds = !text.empty();
    const std::int64_t digest = agree::digest(text);
    words.insert(words.end(),
                 {holds ? 2 * (a.size() - a.rank()) + (other_versions ? 1 : 0) : 0, holds ? 0 : 1,
                  holds ? digest : agree::k_nothing, holds ? ~digest : agree::k_nothing});
    offers.emplace_back(f.get(), std::move(text));
  }
  if (offers.empty()) return;
  a.reduce_words(words, "stored choices");
  for (std::size_t k = 0; k < offers.size(); ++k) {
    const auto said = std::span(words).subspan(k * k_words, k_words);
    if (said[0] <= 0) continue;
    auto& [found, text] = offers[k];
    const bool mine = !text.empty();
    const bool everywhere = said[1] == 0 && said[2] == ~said[3];
    if (!everywhere) a.broadcast(text, a.size() - static_cast<int>(said[0] / 2));
    const auto stored = found->kept->read(text);
    if (!stored) continue;
    found->context.adopt(*stored, said[0] % 2 != 0);
    if (!(everywhere && mine)) found->adopted = stored->tuning;
  }
}

}  // namespace

void compare_progress(agree::Agreement& agreement, const Contexts& contexts) {
  const auto below = [](const auto& f) { return f->context.is_below_another(); };
  if (std::ranges::none_of(contexts, below)) return;
  std::vector<Context*> open;
  std::vector<std::int64_t> words;
  for (const auto& f : contexts) {
    if (!f->context.open()) continue;
    const Context::Progress mine = f->context.progress();
    open.push_back(&f->context);
    words.insert(words.end(), {mine.ready ? 0 : 1, mine.progress ? 1 : 0, mine.moved ? 1 : 0});
  }
  if (open.empty()) return;
  agreement.reduce_words(words, "progress");
  for (std::size_t k = 0; k < open.size(); ++k)
    open[k]->agreed_on({words[3 * k] == 0, words[3 * k + 1] != 0, words[3 * k + 2] != 0});
}

agree::Agreed shake_hands(agree::Agreement& agreement, const std::string& call,
                          const Settings& settings, bool persist, std::uint64_t store_id) {
  const core::Environment& environment = settings.environment;
  agree::Hello hello;
  hello.function = call;
  hello.mode = std::string(mode_text(environment.mode));
  const auto& budget = environment.budget_seconds;
  hello.policy = Value::dict({{Value("budget"), budget ? Value(*budget) : Value()},
                              {Value("cold"), Value(settings.cold)},
                              {Value("clock"), Value(settings.clock        ? "custom"
                                                     : settings.host_clock ? "host"
                                                                           : "device")},
                              {Value("n_repeat"), Value(settings.repeat)},
                              {Value("n_warmup"), Value(settings.warmup)},
                              {Value("persist"), Value(persist)},
                              {Value("strategy"), Value(settings.strategy)}});
  hello.store_id = store_id;
  hello.always_tune = environment.always_tune;
  hello.version_check = environment.version_check;
  hello.retry_crashed = environment.retry_crashed;
  return agreement.handshake(hello);
}

void compare_pass(agree::Agreement& agreement, const std::string& call, const Contexts& contexts,
                  std::string stuck) {
  std::vector<std::int64_t> words{stuck.empty() ? 0 : agreement.size() - agreement.rank()};
  const auto parts = launched(call, contexts);
  for (const auto& [what, value] : parts) {
    words.push_back(agree::digest(value.text()));
    words.push_back(~words.back());
  }
  agreement.reduce_words(words, "pass");
  if (words[0] > 0) {
    agreement.broadcast(stuck, agreement.size() - static_cast<int>(words[0]));
    agreement.ended_alike();
    throw NoValidConfig(stuck);
  }
  for (std::size_t k = 0; k < parts.size(); ++k)
    if (words[1 + 2 * k] != ~words[2 + 2 * k]) name_what_differs(agreement, contexts, parts, k);
}

void settle_what_all_hold(agree::Agreement& agreement, const Contexts& contexts,
                          const agree::Agreed& agreed, bool persist) {
  std::vector<Context*> found;
  std::vector<std::int64_t> words;  // one MAX of words and complements
  for (const auto& f : contexts)
    if (f->context.just_found()) {
      found.push_back(&f->context);
      words.push_back(f->context.held_word());
      words.push_back(~f->context.held_word());
    }
  if (found.empty()) return;
  agreement.reduce(words);
  for (std::size_t k = 0; k < found.size(); ++k)
    if (words[2 * k] > 0 && words[2 * k] == ~words[2 * k + 1]) found[k]->settle_held();
  if (persist) adopt_stored(agreement, contexts, agreed);
}

}  // namespace disttune::session
