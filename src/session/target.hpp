// What a call is about, before anything is looked up or run.
#pragma once

#include "disttune/detail/attempt.hpp"
#include "disttune/record.hpp"
#include "session/launcher_state.hpp"
#include "session/settings.hpp"
#include "store/journal.hpp"
#include "store/store.hpp"

namespace disttune::session {

/// What a call's key, device and settings come to; shared with `explain` and `result`.
struct Target {
  Target(detail::LauncherState& launcher, const detail::Call& call,
         const Defaults& defaults = k_function_defaults);

  /// The group's shape, where an earlier call exchanged it.
  void fill_in_known_group();
  /// Samples in a journal are resumed only where they would mean the same: equal counts, versions.
  [[nodiscard]] Value journal_policy() const;
  /// What processes that died while they tuned this key have left.
  [[nodiscard]] store::Remains remains() const;

  detail::LauncherState& launcher;
  const detail::Call& call;
  Settings settings;
  Stream stream;  ///< with a device, always
  store::Store store;
  RecordKey key;  ///< its `group` is the agreement's to fill in
  Value deps;
};

}  // namespace disttune::session
