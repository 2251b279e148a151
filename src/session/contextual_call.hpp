// The state of one contextual call. Its launches are answered in contextual_launch.cpp, its passes
// run in contextual.cpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "agree/agreement.hpp"
#include "disttune/contextual.hpp"
#include "observe/context_log.hpp"
#include "session/between_passes.hpp"
#include "session/context.hpp"
#include "session/found_context.hpp"
#include "session/kept_choice.hpp"
#include "session/settings.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

using session::Context;
using session::FoundContext;
using session::Settings;

struct ContextualCall::Impl final : Pass {
  Impl(std::string called, ContextualOptions with, ContextDecided tell)
      : Pass(with.group == nullptr ? 0 : with.group->place()),
        name(std::move(called)),
        options(std::move(with)),
        decided(std::move(tell)) {}

  /// Made at the first launch that is not decided.
  struct Tools {
    Tools(const std::string& name, const ContextualOptions& options);
    Settings settings;
    agree::Agreement agreement;
    observe::ContextLog log;
  };

  // ---- one launch
  void answer(const Launcher& kernel, const Call& launch, Attempt& attempt) override;
  [[nodiscard]] bool answered_untuned(const Launcher& kernel, const Call& call, Attempt& attempt);
  static void run_first_working(const Launcher& kernel, Attempt& attempt,
                                session::KeptChoice* kept);
  [[nodiscard]] std::unique_ptr<session::KeptChoice> kept_choice(const Launcher& kernel,
                                                                 const Call& call) const;
  [[nodiscard]] std::string untuned_note(const Launcher& kernel, const Value& key) const;
  Context& context_of(const Launcher& kernel, const Call& call, Attempt& attempt);
  Tools& made_tools();

  // ---- passes
  void run_pass(const std::function<void(Pass&)>& outer);
  [[nodiscard]] std::string stuck();
  [[nodiscard]] bool settled_between_passes();
  [[nodiscard]] bool settled_between_passes(const std::exception& error);
  void complete(const std::function<void(Pass&)>& outer);
  void tune(const std::function<void(Pass&)>& outer);
  void announce_failure(std::string_view why) noexcept;

  // ---- between passes
  [[nodiscard]] Stream first_stream();
  void meet();
  void take_stock();
  void compare_untuned();
  [[nodiscard]] bool another_pass();
  [[nodiscard]] bool between_passes();
  void agree_on_decisions();
  void shake_hands();
  void compare_pass();
  void save_decided(bool contended);
  void publish(bool contended);
  [[nodiscard]] std::string decision_text() const;
  void warn_starved(const Context& context) const;
  void give_up_what_is_open();

  const std::string name;
  const ContextualOptions options;
  const ContextDecided decided;
  /// Of all that follows, since launches come from any thread and between passes too; a kernel may
  /// launch another one. Not held while a pass runs.
  std::recursive_mutex mutex;
  std::unique_ptr<Tools> tools;
  Stream stream;               ///< of a launch
  session::Contexts contexts;  ///< in an order that all ranks share
  std::size_t ordered = 0;     ///< how many of them are in it
  std::map<std::tuple<const Launcher*, Value, std::string, int>, FoundContext*> index;
  std::vector<Context*> launching;  ///< whose launch this thread is in, innermost last
  int idle_passes = -1;  ///< in a row, in which nothing but new keys came; the first is not one
  /// With MODE=off on ranks: what was launched, and among which candidates.
  std::map<std::string, Value> untuned;
  std::string broken;  ///< why the outer function left the last pass, on ranks
  bool final_pass = false;
  agree::Agreed agreed;  ///< on ranks
};

}  // namespace detail
DISTTUNE_NAMESPACE_END
