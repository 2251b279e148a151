// How objects are described of which nobody has registered a description: what their type says.
// Holds the interpreter lock.
#pragma once

#include "object.hpp"

#include <memory>
#include <string>
#include <vector>

namespace disttune::python {

enum class Sort { enum_member, dataclass, numpy_scalar, builtin_subclass, callable, other };

struct TypeFacts {
  Sort sort = Sort::other;
  std::string name;              ///< qualified, as it is written into keys
  std::vector<Ref> fields;       ///< of a dataclass: names of those that count
  bool are_fields_known = true;  ///< false: a dataclass of another's making
};

/// Kept for the types that were met lately, until they are changed. Throws ErrorSet.
[[nodiscard]] std::shared_ptr<const TypeFacts> facts_of(PyTypeObject* type);

}  // namespace disttune::python
