// A context of one contextual call, with what the call keeps beside it.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agree/agreement.hpp"
#include "observe/context_log.hpp"
#include "session/context.hpp"
#include "session/kept_choice.hpp"
#include "session/settings.hpp"

namespace disttune::session {

struct FoundContext {
  FoundContext(const detail::Launcher& kernel, const detail::Call& call, detail::Attempt& attempt,
               const Settings& settings, agree::Agreement& agreement, observe::ContextLog& log,
               std::unique_ptr<KeptChoice> store)
      : stream(call.stream),
        kept(std::move(store)),
        context(kernel, call, attempt, settings, agreement, log,
                agreement.alone() ? kept.get() : nullptr) {}
  Stream stream;
  std::unique_ptr<KeptChoice> kept;  ///< null: choices are not kept
  Context context;
  std::optional<TuningRecord> adopted;  ///< of another rank, to be stored here too
  bool saved = false;
};

using Contexts = std::vector<std::unique_ptr<FoundContext>>;

}  // namespace disttune::session
