// Exceptions across the border: Python's through the session untouched, ours as Python classes.
#pragma once

#include "object.hpp"

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "disttune/detail/attempt.hpp"

namespace disttune::python {

/// The package's exception classes; made once, when the module is.
struct ErrorClasses {
  PyObject* error = nullptr;
  PyObject* no_valid_config = nullptr;
  PyObject* not_tuned = nullptr;
  PyObject* disagreement = nullptr;
  PyObject* peer_failed = nullptr;
  PyObject* group_timeout = nullptr;
  PyObject* capture_error = nullptr;
  PyObject* nested_context = nullptr;
  PyObject* store_error = nullptr;
  PyObject* device_lost = nullptr;
  PyObject* warning = nullptr;
};
[[nodiscard]] ErrorClasses& error_classes() noexcept;
/// Makes the classes and adds them to the module. Throws ErrorSet.
void add_error_classes(PyObject* module);

/// A Python exception on its way through C++ that knows nothing of Python. May be copied and
/// destroyed without the interpreter lock.
class Raised : public detail::ForeignException {
 public:
  /// Takes the exception that is set; lock held. `text`: for who meets it on its way.
  [[nodiscard]] static Raised take(std::string text = {});
  /// Sets it again, with its traceback; lock held.
  void restore() const;
  [[nodiscard]] PyObject* exception() const noexcept { return m_exception.get(); }  ///< borrowed

 private:
  Raised(std::string text, std::shared_ptr<PyObject> exception)
      : ForeignException(std::move(text)), m_exception(std::move(exception)) {}
  std::shared_ptr<PyObject> m_exception;
};

/// The exception of an ordinary run: a failed candidate for who tries candidates, and the caller's
/// own exception where nobody takes it for that.
class RunRaised final : public detail::CandidateFailed {
 public:
  RunRaised(Status status, const std::string& why, Raised raised)
      : CandidateFailed(status, why), m_raised(std::move(raised)) {}
  void restore() const { m_raised.restore(); }

 private:
  Raised m_raised;
};

/// "type: message" of an exception; "type" where there is no message.
[[nodiscard]] std::string text_of(PyObject* exception);

/// Inside `catch (...)`: sets the Python exception that stands for the C++ one in flight.
void set_from_current_exception() noexcept;
/// Runs `body`, which returns a Ref, for a slot or method: null with an exception set when it
/// throws.
template <class Body>
PyObject* guarded(const Body& body) noexcept {
  try {
    return body().release();
  } catch (...) {
    set_from_current_exception();
    return nullptr;
  }
}

/// A Python exception is set where a candidate ran: throws CandidateFailed for an ordinary one
/// (status, type and message as text; the exception itself lives as long as what is thrown),
/// DeviceLost, or Raised for an interrupt and for errors of the group.
[[noreturn]] void throw_candidate_failure(std::string_view stage);
/// A Python exception is set where the caller's own function ran: throws Raised.
[[noreturn]] void throw_raised();
/// A Python exception is set where a device or a group of Python ran: throws our own kind where it
/// is one of ours, disttune::Error with its text for an ordinary one, Raised for an interrupt.
[[noreturn]] void throw_as_ours();

}  // namespace disttune::python
