// The contextual call that is active in this process, if there is one. Launches of Triton's
// autotuned kernels come to it: `run` of Triton's classes is replaced when it begins, and put back
// when it ends. Guarded by the interpreter lock.
#pragma once

#include "object.hpp"

namespace disttune::python {

struct ActiveCall {
  bool active = false;
  bool settled = false;      ///< active, and not tuning anything
  unsigned long thread = 0;  ///< the one that made the call
  Ref outer{};               ///< the outer function's slow part (_contextual.py)
  Ref seat{};                ///< the group that its choices need, or None
  Ref made{};                ///< the front end's object of the call, once a launch has needed it
};
/// Never destroyed: a daemon thread may be in a call when the program ends.
extern ActiveCall& g_call;

/// Makes a call active. Throws ErrorSet: another one is, which `outer.refuse()` says; or the
/// classes could not be found. Then nothing is replaced.
void begin_call(PyObject* outer, PyObject* seat);
/// Puts everything back; the object that `made` was. No exception is set.
Ref end_call() noexcept;

/// Adds the functions that the front end needs. Throws ErrorSet.
void add_active_call(PyObject* module);

}  // namespace disttune::python
