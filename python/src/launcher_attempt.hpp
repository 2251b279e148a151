// One cold call of a tuned function, as the session sees it.
#pragma once

#include "object.hpp"

#include <optional>
#include <string>
#include <vector>

#include "launcher.hpp"

namespace disttune::python {

/// The session calls without the interpreter lock; every method takes it.
class LauncherAttempt final : public detail::Attempt {
 public:
  LauncherAttempt(LauncherState& state, const Arguments& arguments, CallShape* shape,
                  const CallOptions& options, const TableKey& key);
  LauncherAttempt(const LauncherAttempt&) = delete;
  LauncherAttempt& operator=(const LauncherAttempt&) = delete;
  ~LauncherAttempt();  ///< with the lock held

  [[nodiscard]] bool admits(std::size_t candidate) override;
  [[nodiscard]] bool can_prepare() const override { return m_can_prepare; }
  void prepare(std::size_t candidate) override;
  void begin_visit(std::size_t candidate, std::size_t runs) override;
  void before_run() override;
  void run(std::size_t candidate) override;
  void expect() override;
  [[nodiscard]] std::optional<std::string> check(std::size_t candidate) override;
  void drop_results() noexcept override;
  void decided(std::size_t candidate) override;

  /// Puts arguments back ahead of the caller's own run; lock held. Throws ErrorSet.
  void restore();
  /// Puts arguments back after a tuning that ended with an exception; lock held.
  void give_back() noexcept;

 private:
  [[nodiscard]] PyObject* guard();
  [[nodiscard]] Ref call_with_entry(PyObject* function, std::size_t candidate, bool copy) const;
  void take_copy(std::size_t candidate);

  LauncherState& m_state;
  const Arguments& m_arguments;
  CallShape* m_shape;
  const CallOptions& m_options;
  const TableKey& m_key;
  bool m_can_prepare;
  bool m_guarded;  ///< restore, reset or check were asked for
  Ref m_guard;     ///< the package's object that does them for this call
  ChoiceRef m_copy;
  std::vector<Ref> m_results;
};

}  // namespace disttune::python
