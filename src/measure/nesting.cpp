#include "measure/nesting.hpp"

#include "measure/stopwatch.hpp"

namespace disttune::timing {
namespace {
thread_local Nesting* t_innermost = nullptr;
}  // namespace

Nesting::Nesting(Gate& gate) noexcept : m_gate(gate), m_outer(t_innermost) {
  spoil_sample();
  t_innermost = this;
}
Nesting::~Nesting() { t_innermost = m_outer; }

void Nesting::spoil() noexcept {
  m_spoiled = true;
  m_gate.open();
}

void Nesting::stand_in() noexcept {
  if (m_accept_stand_ins) return;
  m_stood_in = true;
  m_gate.open();
}

bool inside_visit() noexcept { return t_innermost != nullptr; }

void spoil_sample() noexcept {
  if (t_innermost != nullptr) t_innermost->spoil();
}

void stand_in_sample() noexcept {
  if (t_innermost != nullptr) t_innermost->stand_in();
}

}  // namespace disttune::timing
