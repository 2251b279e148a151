// What disttune throws. One root, few kinds; a kind exists only where a caller would act on it.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// Root of everything that disttune throws on its own account.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// No candidate works for this call; the text lists every candidate with its reason.
class NoValidConfig : public Error {
 public:
  using Error::Error;
};

/// A miss while MODE is `strict`.
class NotTuned : public Error {
 public:
  using Error::Error;
};

/// Ranks called differently (key, candidates, policy, versions …): the same text on all ranks.
class Disagreement : public Error {
 public:
  using Error::Error;
};

/// A peer ended its call with an error; the text names the rank.
class PeerFailed : public Error {
 public:
  using Error::Error;
};

/// A rank neither arrived nor gave a sign of life in time; the text names it and the phase.
class GroupTimeout : public Error {
 public:
  using Error::Error;
};

/// A miss while the stream is being captured into a graph; raised before anything is disturbed.
class CaptureError : public Error {
 public:
  using Error::Error;
};

/// A contextual call inside, or beside, another one.
class NestedContext : public Error {
 public:
  using Error::Error;
};

/// An explicit store operation failed. Tuning itself never fails because of the store.
class StoreError : public Error {
 public:
  using Error::Error;
};

/// The device is gone: a sticky error that nothing in this process can heal.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

namespace detail {

/// What another language raised, on its way through: an interrupt, or an exception of the caller's
/// own functions. No std::exception on purpose, so that nothing takes it for a failing candidate.
class ForeignException {
 public:
  explicit ForeignException(std::string text) : m_text(std::move(text)) {}
  /// Type and message, for the other ranks.
  [[nodiscard]] const std::string& text() const noexcept { return m_text; }

 private:
  std::string m_text;
};

/// An exception of a function of the caller's in C++ (a check), on its way to the caller.
class CallersException : public ForeignException {
 public:
  CallersException(std::string text, std::exception_ptr cause)
      : ForeignException(std::move(text)), m_cause(std::move(cause)) {}
  [[nodiscard]] const std::exception_ptr& cause() const noexcept { return m_cause; }

 private:
  std::exception_ptr m_cause;
};

}  // namespace detail

/// A value has no canonical text, a text is not canonical, or a value has another type than asked
/// for (Python: `TypeError` where a key or a candidate cannot be described).
class InvalidValue : public Error {
 public:
  using Error::Error;
};

DISTTUNE_NAMESPACE_END
