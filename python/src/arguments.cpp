#include "arguments.hpp"

namespace disttune::python {

Ref Arguments::tuple() const {
  Ref out = checked(PyTuple_New(positional));
  for (Py_ssize_t i = 0; i < positional; ++i) PyTuple_SET_ITEM(out.get(), i, Py_NewRef(values[i]));
  return out;
}

Ref Arguments::dict() const {
  Ref out = checked(PyDict_New());
  for (Py_ssize_t i = 0; i < keyword_count(); ++i)
    checked(PyDict_SetItem(out.get(), PyTuple_GET_ITEM(keywords, i), values[positional + i]));
  return out;
}

}  // namespace disttune::python
