// What this thread is measuring, so that whatever a launcher under measurement calls back into can
// tell, and can say that the sample at hand is worth nothing.
#pragma once

#include "measure/gate.hpp"

namespace disttune::timing {

/// One measurement of this thread, for its scope. Beginning one inside another spoils the outer
/// one's sample at hand.
class Nesting {
 public:
  explicit Nesting(Gate& gate) noexcept;
  ~Nesting();
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

  /// A sample begins.
  void fresh() noexcept { m_spoiled = m_stood_in = false; }
  /// Whether something else ran since `fresh`.
  [[nodiscard]] bool spoiled() const noexcept { return m_spoiled || m_stood_in; }

  /// Also opens the gate: what is coming may wait for the device.
  void spoil() noexcept;
  /// As `spoil`, unless such calls belong to the launcher by now.
  void stand_in() noexcept;
  void accept_stand_ins(bool accept) noexcept { m_accept_stand_ins = accept; }

 private:
  Gate& m_gate;
  Nesting* m_outer;
  bool m_spoiled = false;
  bool m_stood_in = false;
  bool m_accept_stand_ins = false;
};

}  // namespace disttune::timing
