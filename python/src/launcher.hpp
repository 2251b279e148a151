// The tuned function as Python sees it: a hand-written vectorcall type.
#pragma once

#include "object.hpp"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "launcher_state.hpp"

namespace disttune::python {

struct LauncherObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weak_references;
  LauncherState* state;
};

[[nodiscard]] inline LauncherState& state_of(PyObject* object) noexcept {
  return *reinterpret_cast<LauncherObject*>(object)->state;
}

/// A call: key → memory table → the function. Null with an exception set on error.
PyObject* call_launcher(PyObject* self, PyObject* const* args, std::size_t nargsf,
                        PyObject* keywords);

/// The arguments of a call with the keywords that are ours taken out.
class StrippedCall {
 public:
  StrippedCall(const LauncherState& state, PyObject* const* args, Py_ssize_t positional,
               PyObject* keywords);
  [[nodiscard]] const Arguments& arguments() const noexcept { return m_arguments; }
  [[nodiscard]] const CallOptions& options() const noexcept { return m_options; }
  /// Reads the switches; `options` holds only the group before. Throws ErrorSet: a switch that is
  /// no bool, a tuned name (ValueError) that was given and must not be.
  void settle(const LauncherState& state);

 private:
  void take_out(PyObject* const* args, Py_ssize_t positional, PyObject* keywords);
  void refuse_collisions(const LauncherState& state) const;
  PyObject* m_tune = Py_True;  // borrowed, as all values of the call
  PyObject* m_verbose = Py_False;
  PyObject* m_allow_overwrite = Py_False;
  std::vector<PyObject*> m_values;
  Ref m_keywords;
  Arguments m_arguments;
  CallOptions m_options;
};

/// A key as the memory table knows it: place, caller's key, overwritten arguments.
struct TableKey {
  Buffer bytes;
  std::size_t key_end = 0;  ///< where the caller's key ends
  std::uint64_t hash = 0;
  [[nodiscard]] std::string_view view() const noexcept { return bytes.view(); }
  [[nodiscard]] std::uint64_t place() const noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }
  [[nodiscard]] Value key() const;
  [[nodiscard]] Value overwritten() const;
};
/// What a key of the memory table begins with (LauncherState::place).
struct Place {
  std::uint32_t device = 0;
  std::uint32_t group = 0;  ///< 0: alone
};
inline constexpr std::size_t k_place_size = 8;
[[nodiscard]] inline Place place_of(std::string_view key) {
  std::uint64_t word = 0;
  std::memcpy(&word, key.data(), k_place_size);
  return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32U)};
}

/// A call whose keywords are settled: looks its key up and runs, or goes the cold way. Throws C++
/// exceptions; null with an exception set on a Python error.
PyObject* call_keyed(PyObject* self, LauncherState& state, const Arguments& arguments,
                     CallShape* shape, const CallOptions& options);
/// Place, key and overwritten arguments of a call. Throws ErrorSet.
void write_table_key(TableKey& key, const LauncherState& state, const Arguments& arguments,
                     CallShape* shape, const CallOptions& options);

/// Inside `catch (...)` of a call that ends before the session hears of it: sets the exception and
/// tells the other ranks, which must not wait for this one. Returns null.
[[gnu::noinline]] PyObject* ended_early(PyObject* autotune_pg);

/// The cold path. Null with an exception set on error.
[[gnu::noinline]] PyObject* call_cold(PyObject* self, const Arguments& arguments, CallShape* shape,
                                      const CallOptions& options, const TableKey& key);

void add_launcher_type(PyObject* module);
[[nodiscard]] Ref new_launcher(std::unique_ptr<LauncherState> state);

/// Methods of the type, cold all of them. Throw ErrorSet or C++ exceptions.
[[nodiscard]] Ref explain_call(PyObject* self, StrippedCall call);
[[nodiscard]] Ref result_of_call(PyObject* self, StrippedCall call);
[[nodiscard]] Ref new_best_configs(PyObject* launcher);
void add_best_configs_type(PyObject* module);

}  // namespace disttune::python
