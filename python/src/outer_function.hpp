// The outer function of contextual calls as Python sees it: a hand-written vectorcall type. A call
// whose kernels are all decided is made here; what is longer than one pass is the slow part's
// (_contextual.py).
#pragma once

#include "object.hpp"

namespace disttune::python {

/// Adds ContextualAutoTuner. Throws ErrorSet.
void add_outer_function(PyObject* module);

}  // namespace disttune::python
