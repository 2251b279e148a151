// Python object → compact form (and from there canonical text), and back. Other libraries' objects
// are described by functions that Python code registers.
#pragma once

#include "object.hpp"

#include <string>
#include <vector>

#include "compact.hpp"
#include "disttune/value.hpp"

namespace disttune::python {

struct TypeFacts;

/// What happens to functions and lambdas: a key refuses them, an entry describes them by who they
/// are (a config's `pre_hook`).
enum class Callables { refuse, describe };

/// Writes objects in compact form. Holds the interpreter lock. One use each.
class Describer {
 public:
  explicit Describer(Buffer& out, Callables callables = Callables::refuse) noexcept
      : m_out(out), m_callables(callables) {}

  /// False: the object cannot be described; `raise` says why. The buffer then holds a torso.
  [[nodiscard]] bool describe(PyObject* object);
  /// Sets the Python exception: what a registered function raised, or a TypeError that names the
  /// type and where it sits below `root`, such as key[2]['x'].
  void raise(std::string_view root);

 private:
  bool enter(PyObject* object);
  bool describe_int(PyObject* object);
  bool describe_tuple(PyObject* object);
  bool describe_str(PyObject* object);
  bool describe_items(char tag, PyObject* const* items, Py_ssize_t count);
  bool describe_dict(PyObject* object);
  bool describe_set(PyObject* object);
  bool describe_other(PyObject* object);
  bool describe_foreign(PyObject* object);
  bool describe_callable(PyObject* object);
  bool describe_result(PyObject* object, PyObject* described);
  bool describe_torch_device(PyObject* object);
  bool describe_enum(PyObject* object, const TypeFacts& facts);
  bool describe_dataclass(PyObject* object, const TypeFacts& facts);
  bool describe_numpy_scalar(PyObject* object, const TypeFacts& facts);
  bool describe_builtin_subclass(PyObject* object, const TypeFacts& facts);
  bool describe_named_tuple(PyObject* object, PyObject* fields, const TypeFacts& facts);
  bool described_field(std::string_view name, PyObject* value);
  void put_named(std::string_view name, std::size_t fields);
  bool refuse(PyObject* object, std::string_view why);

  Buffer& m_out;
  Callables m_callables;
  int m_depth = 0;
  std::string m_problem;
  std::vector<std::string> m_path;  ///< innermost first
};

/// The canonical value of an object. Throws ErrorSet with a TypeError set.
[[nodiscard]] Value describe(PyObject* object, std::string_view root,
                             Callables callables = Callables::refuse);

/// The Python object that compact bytes stand for: plain kinds as themselves, dtypes and other
/// constants as the objects that were described, the rest as `disttune.Value`.
[[nodiscard]] Ref object_of(std::string_view compact);
[[nodiscard]] Ref object_of(const Value& value);

/// `function(object)` returns something describable. `type` is a type, or "module.qualname" of one
/// that need not be imported yet. Throws ErrorSet for bad arguments.
void register_description(PyObject* type, PyObject* function);
/// How functions in entries are described: `function(callable)` returns something describable.
void set_function_describer(PyObject* function);

/// Wraps a Value for Python, and unwraps one; the bindings provide both (bind_values.cpp).
[[nodiscard]] Ref wrap_value(const Value& value);
[[nodiscard]] const Value* unwrap_value(PyObject* object) noexcept;

}  // namespace disttune::python
