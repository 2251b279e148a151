// What a tuned function holds: the function, its space, its memory table and its session. Guarded
// by the interpreter lock.
#pragma once

#include "object.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "choice_table.hpp"
#include "compact.hpp"
#include "disttune/detail/attempt.hpp"
#include "key_fields.hpp"
#include "recent_key.hpp"

namespace disttune::python {

/// One entry of the space as the caller wrote it.
struct Entry {
  Ref mapping;              ///< dict, ours
  Ref names;                ///< tuple of str; entries with equal names share it
  std::vector<Ref> values;  ///< the caller's objects; launchers get copies
};

/// How the arguments of a call are spelled: found by the call site's own tuple of keyword names, so
/// that names are looked at once.
struct CallShape {
  Ref keywords;  ///< tuple of str
  Py_ssize_t positional = 0;
  bool plain = false;               ///< no keyword of ours, no collision
  bool readable = false;            ///< by what is read of the key function (ReadFunction)
  std::vector<Py_ssize_t> sources;  ///< key fields: place of each one's argument, -1: default
  Py_ssize_t tensor = -1;           ///< where the first tensor was
  /// A choice's names → those of the call with it, so that no tuple is made on a warm call.
  std::vector<std::pair<Ref, Ref>> merged;

  [[nodiscard]] bool fits(PyObject* names, Py_ssize_t count) const noexcept;
};

/// What the call's own keywords ask for.
struct CallOptions {
  bool tune = true;
  bool verbose = false;
  bool allow_overwrite = false;
  PyObject* group = nullptr;  ///< autotune_pg, borrowed; null or None: the default group
  bool overwrites = false;    ///< the caller gives tuned names
};

class LauncherState {
 public:
  LauncherState() = default;
  LauncherState(const LauncherState&) = delete;
  LauncherState& operator=(const LauncherState&) = delete;

  Ref fn;
  Ref key_fn;    ///< None, a callable, or the declared key object
  Ref prune_fn;  ///< None or a callable
  Ref hooks;     ///< the package's cold parts (_function.py)
  Ref clock;     ///< None or a callable
  std::string name;
  std::vector<Entry> entries;
  std::vector<Ref> tuned_names;       ///< of all entries, interned
  std::vector<Ref> positional_names;  ///< parameters that can be given by position
  std::vector<std::pair<Py_ssize_t, Ref>> tuned_positions;
  Py_ssize_t first_tuned_position = PY_SSIZE_T_MAX;
  std::vector<KeyField> key_fields;  ///< of a declared key, or of the key function
  bool declared = false;
  std::optional<ReadFunction> read_function;  ///< where fields of the key function are known
  ChoiceTable table;
  RecentKey recent;
  std::unique_ptr<detail::Launcher> session;

  /// Calls `fn` with the caller's arguments and the choice's. Null with an exception set on error.
  [[nodiscard]] PyObject* run(const Choice& choice, const Arguments& arguments, CallShape* shape,
                              bool overwrites) const;
  /// What a key of the table begins with: group and device. Throws ErrorSet.
  [[nodiscard]] std::uint64_t place(const Arguments& arguments, CallShape* shape,
                                    std::uint32_t group) const;
  /// The most objects that a key is made of.
  [[nodiscard]] std::size_t key_size() const noexcept {
    return std::max<std::size_t>(key_fields.size(), 1);
  }
  /// Reads the key's fields, or calls the key function. Throws ErrorSet.
  void take_key(KeyObjects& out, const Arguments& arguments, const CallShape* shape) const;
  /// Appends the key in compact form. Throws ErrorSet.
  void write_key(Buffer& out, const KeyObjects& key) const;
  /// Appends the tuned names that the caller gives. Throws ErrorSet.
  void write_overwritten(Buffer& out, const Arguments& arguments) const;
  /// Tuned names that the caller gives, with their values (borrowed).
  [[nodiscard]] std::vector<std::pair<PyObject*, PyObject*>> overwritten(
      const Arguments& arguments) const;

  /// The shape of such a call, made when it is new; borrowed, or owned by `spare` when too many
  /// call sites have one already.
  [[nodiscard]] CallShape* shape_of(PyObject* keywords, Py_ssize_t positional,
                                    std::unique_ptr<CallShape>& spare) const;
  [[nodiscard]] bool is_tuned(PyObject* name) const noexcept;

  /// A private copy of a candidate's values. Throws ErrorSet.
  [[nodiscard]] ChoiceRef copy_of(std::size_t candidate) const;
  /// A choice from a mapping that the caller made. Throws ErrorSet.
  [[nodiscard]] ChoiceRef choice_of(PyObject* mapping) const;
  /// What `best_configs` shows: a new dict.
  [[nodiscard]] Ref shown(const Choice& choice) const;
  /// Entry 0 for calls that are not tuned; made once.
  [[nodiscard]] ChoiceRef default_choice();

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  // Out of line is what most warm calls have no part in.
  [[nodiscard]] PyObject* merged_names(const Choice& choice, const Arguments& arguments,
                                       CallShape* shape, Ref& spare) const;
  /// Whether the choice's values can be given by position, which a function of Python's cannot tell
  /// from keywords and takes faster.
  [[nodiscard]] bool go_by_position(const Choice& choice, const Arguments& arguments) const;
  [[nodiscard, gnu::noinline]] PyObject* run_overwriting(const Choice& choice,
                                                         const Arguments& arguments) const;
  void take_fields(KeyObjects& out, const Arguments& arguments, const CallShape* shape) const;
  /// What the key function would return; false: call it.
  [[nodiscard]] bool read_key(KeyObjects& out, const Arguments& arguments,
                              const CallShape* shape) const;
  [[nodiscard, gnu::noinline]] CallShape* add_shape(PyObject* keywords, Py_ssize_t positional,
                                                    std::unique_ptr<CallShape>& spare) const;

  mutable std::vector<std::unique_ptr<CallShape>> m_shapes;
  mutable Py_ssize_t m_tensor = -1;
  /// What `go_by_position` found last, and for what.
  struct ByPosition {
    Ref code;
    Ref names;
    Py_ssize_t positional = 0;
    bool fit = false;
  };
  mutable ByPosition m_by_position;
  ChoiceRef m_default;
};

/// The names of our call keywords, interned.
struct OwnKeywords {
  PyObject* autotune;
  PyObject* verbose;
  PyObject* allow_overwrite;
  PyObject* group;
};
[[nodiscard]] const OwnKeywords& own_keywords();
/// `copy(value)` returns a private copy of a value that is not plainly immutable.
void set_copier(PyObject* copy);

}  // namespace disttune::python
