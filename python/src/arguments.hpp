// The arguments of one call.
#pragma once

#include "object.hpp"

namespace disttune::python {

/// In the vectorcall form, borrowed.
struct Arguments {
  PyObject* const* values = nullptr;
  Py_ssize_t positional = 0;
  PyObject* keywords = nullptr;  ///< tuple of str, or null
  [[nodiscard]] Py_ssize_t keyword_count() const noexcept {
    return keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  }
  [[nodiscard]] Py_ssize_t count() const noexcept { return positional + keyword_count(); }
  [[nodiscard]] Ref tuple() const;  ///< *args
  [[nodiscard]] Ref dict() const;   ///< **kwargs
};

}  // namespace disttune::python
