// Where the choice of a contextual call is kept for other processes: a record like that of a
// function-level launcher, whose policy names the outer function besides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "session/cold_call.hpp"

namespace disttune::session {

class KeptChoice {
 public:
  KeptChoice(const detail::Launcher& kernel, const detail::Call& call, const Settings& settings,
             const std::string& outer);
  KeptChoice(const KeptChoice&) = delete;  // the target refers to the call
  KeptChoice& operator=(const KeptChoice&) = delete;

  /// The place in the kernel's space of what is stored for it; `group`: the shape of the ranks that
  /// decide, None for one.
  [[nodiscard]] std::optional<std::size_t> load(const Value& group);
  void save(const TuningRecord& tuning);
  [[nodiscard]] Value hardware() const { return m_target.key.hardware; }
  [[nodiscard]] std::uint64_t store_id() { return m_target.store.id(); }

 private:
  detail::Call m_call;
  Target m_target;
};

}  // namespace disttune::session
