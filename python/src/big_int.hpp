// Integers of any size as decimal text and back. Python's own conversions refuse more digits than
// sys.get_int_max_str_digits() says, 4300 unless told otherwise.
#pragma once

#include "object.hpp"

#include <string>
#include <string_view>

namespace disttune::python {

/// Throws ErrorSet.
[[nodiscard]] std::string decimal_of(PyObject* integer);
[[nodiscard]] Ref int_of(std::string_view decimal);

}  // namespace disttune::python
