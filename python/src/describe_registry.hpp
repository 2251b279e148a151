// What is known of other libraries' types: descriptions that were registered, and objects that are
// one each (dtypes, enum members). Holds the interpreter lock.
#pragma once

#include "object.hpp"

#include <string>
#include <string_view>

namespace disttune::python {

enum class Known {
  described_by,    ///< by a registered function
  torch_size,      ///< a tuple of ints
  torch_device,    ///< by its type and index
  constant_by_str  ///< str(object) names it
};
struct TypeEntry {
  Ref type;
  Known known = Known::described_by;
  Ref function;
};

/// How objects of this type are described, by the type itself or the nearest of its bases; null:
/// not registered.
[[nodiscard]] const TypeEntry* registered_type(PyTypeObject* type);

/// Whether objects of this type are described as the tuples that they are: of a tuple, and of
/// torch.Size once one was met. Asked for every tuple of a key.
[[nodiscard]] bool is_tuple(const PyTypeObject* type) noexcept;

/// The compact bytes of a constant object that was met lately; empty: look further.
[[nodiscard]] std::string_view constant_bytes(PyObject* object) noexcept;
/// The same for every constant object that is remembered.
[[nodiscard]] std::string_view recalled_constant(PyObject* object) noexcept;
/// Remembers an object that lives as long as the process. The table owns its objects, so an address
/// is never reused; it is bounded, because a program can make enum classes without end.
void remember_constant(PyObject* object, std::string_view bytes);
/// The constant that these compact bytes describe, borrowed; null: none.
[[nodiscard]] PyObject* constant_of(std::string_view bytes);

/// What describes plain functions in entries; null until set.
[[nodiscard]] PyObject* function_describer() noexcept;

}  // namespace disttune::python
