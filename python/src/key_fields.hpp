// What compiled code reads a key from: the fields of a declared key, or of a key function that does
// nothing but read its arguments (_key_function.py).
#pragma once

#include "object.hpp"

#include <variant>
#include <vector>

#include "arguments.hpp"
#include "attribute.hpp"

namespace disttune::python {

/// `value[index]`
struct ItemStep {
  Ref index;
};
/// `function(value)`, by the name that the key function calls it by.
struct FunctionStep {
  Ref name;
  bool is_last = false;  ///< what it gives is the field's value
};
using KeyStep = std::variant<Attribute, ItemStep, FunctionStep>;

/// A parameter, and the steps from its argument to the value that counts.
struct KeyField {
  Ref parameter;             ///< str
  Py_ssize_t position = -1;  ///< among the positional parameters; -1: keyword only
  Ref fallback;              ///< the parameter's default; null: none
  std::vector<KeyStep> steps;

  /// The value for this argument. `key_fn`: who names functions. Throws ErrorSet.
  [[nodiscard]] Ref read(PyObject* argument, PyObject* key_fn) const;
};

/// The function whose fields are read instead of calling it, as it was then, and its calls.
struct ReadFunction {
  Ref code;
  Ref defaults;                 ///< tuple; null: none
  std::vector<Ref> parameters;  ///< str
  Py_ssize_t required = 0;      ///< parameters without a default
  bool more_positional = false;
  bool more_keywords = false;
  bool gives_tuple = false;  ///< of the fields; or else the one field

  /// Whether reading gives what calling would give: not after a change of the function, nor while
  /// this thread has a sys.settrace or sys.setprofile, which then sees the function called.
  [[nodiscard]] bool stands_for(PyObject* key_fn) const noexcept {
    if (!Py_IS_TYPE(key_fn, &PyFunction_Type)) return false;
    const PyThreadState* thread = PyThreadState_Get();
    return PyFunction_GET_CODE(key_fn) == code.get() &&
           PyFunction_GET_DEFAULTS(key_fn) == defaults.get() && thread->c_tracefunc == nullptr &&
           thread->c_profilefunc == nullptr;
  }
  /// Whether the function can be called with so many arguments.
  [[nodiscard]] bool takes(Py_ssize_t positional) const noexcept {
    return positional >= required &&
           (more_positional || positional <= static_cast<Py_ssize_t>(parameters.size()));
  }
  /// And with these keywords besides.
  [[nodiscard]] bool takes(Py_ssize_t positional, PyObject* keywords) const noexcept;
};

}  // namespace disttune::python
