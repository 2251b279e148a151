// A run that has to give the right result.
#pragma once

#include <cstddef>

#include "disttune/detail/attempt.hpp"

namespace disttune::session {

/// An attempt whose run also compares the result with the reference.
class CheckedAttempt final : public detail::Attempt {
 public:
  explicit CheckedAttempt(detail::Attempt& inner) : m_inner(inner) {}
  void begin_visit(std::size_t candidate, std::size_t runs) override {
    m_inner.begin_visit(candidate, runs);
  }
  void before_run() override { m_inner.before_run(); }
  void run(std::size_t candidate) override {
    if (auto why = m_inner.check(candidate))
      throw detail::CandidateFailed(Status::wrong_result, *why);
  }
  void drop_results() noexcept override { m_inner.drop_results(); }
  void decided(std::size_t) override {}

 private:
  detail::Attempt& m_inner;
};

}  // namespace disttune::session
