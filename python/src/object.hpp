// Owning references to Python objects, and the interpreter lock as a scope. Everything here but
// `Gil` is called with the lock held.
#pragma once

#include <Python.h>
#include <cxxabi.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace disttune::python {

/// For a daemon thread that comes back to the interpreter after the end of the program. Until
/// Python 3.13 the interpreter would unwind its stack there and then, through frames whose objects
/// belong to an interpreter that is no more; from 3.14 on it stands still, and so does this.
[[noreturn]] void stand_still() noexcept;

/// Runs what may run Python code, and with it end this thread, below a frame that cannot be
/// unwound: one that is noexcept, or catches everything.
template <class Body>
decltype(auto) or_stand_still(const Body& body) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    stand_still();
  }
}

/// Whether the interpreter is gone altogether; while it ends, threads still have their state.
[[nodiscard]] inline bool interpreter_is_gone() noexcept {
  return Py_IsInitialized() == 0 && PyGILState_GetThisThreadState() == nullptr;
}

/// One owned reference; null is allowed.
class Ref {
 public:
  Ref() noexcept = default;
  Ref(const Ref& other) noexcept : m_object(Py_XNewRef(other.m_object)) {}
  Ref(Ref&& other) noexcept : m_object(std::exchange(other.m_object, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(m_object, other.m_object);
    return *this;
  }
  ~Ref() {
    if (m_object == nullptr) return;
    if (Py_REFCNT(m_object) == 1)
      drop_last(m_object);
    else
      Py_DECREF(m_object);
  }

  /// Takes over a reference that the caller owns.
  [[nodiscard]] static Ref steal(PyObject* object) noexcept {
    Ref out;
    out.m_object = object;
    return out;
  }
  [[nodiscard]] static Ref borrow(PyObject* object) noexcept { return steal(Py_XNewRef(object)); }

  [[nodiscard]] PyObject* get() const noexcept { return m_object; }
  [[nodiscard]] PyObject* release() noexcept { return std::exchange(m_object, nullptr); }
  explicit operator bool() const noexcept { return m_object != nullptr; }

 private:
  /// What dies may run Python code; and where the frame is unwound because this thread has been
  /// ended, nothing may die, since the lock is another's.
  static void drop_last(PyObject* object) noexcept;

  PyObject* m_object = nullptr;
};

/// Holds the interpreter lock; for code that C++ threads reach.
class Gil {
 public:
  Gil() noexcept {
    if (interpreter_is_gone()) stand_still();
    m_state = or_stand_still([] { return PyGILState_Ensure(); });
  }
  ~Gil() {
    // Lost inside the scope, while it was unwound.
    if (interpreter_is_gone() || PyGILState_Check() == 0) stand_still();
    PyGILState_Release(m_state);
  }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE m_state{};
};

/// Gives the interpreter lock up for a scope.
class NoGil {
 public:
  NoGil() noexcept : m_thread(PyEval_SaveThread()) {}
  ~NoGil() {
    if (interpreter_is_gone()) stand_still();
    or_stand_still([&] { PyEval_RestoreThread(m_thread); });
  }
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  PyThreadState* m_thread;
};

/// A reference for code that knows nothing of Python: it may be copied and destroyed without the
/// interpreter lock, and after the end of the interpreter.
[[nodiscard]] std::shared_ptr<PyObject> owned_by_any_thread(Ref object);

/// Thrown where a Python exception is set: the C++ frames unwind, the exception stays in place.
/// Only between frames that hold the lock; what crosses the session is a `Raised` (errors.hpp).
struct ErrorSet {};

/// The result of an API call that returns null on error.
inline Ref checked(PyObject* object) {
  if (object == nullptr) throw ErrorSet{};
  return Ref::steal(object);
}
inline void checked(int status) {
  if (status < 0) throw ErrorSet{};
}

/// Whether two str are equal; names are mostly interned.
[[nodiscard]] inline bool same_name(PyObject* a, PyObject* b) noexcept {
  return a == b || PyUnicode_Compare(a, b) == 0;
}

/// Another number after each change of a type or of a base of it, never used again; 0: unknown.
[[nodiscard]] inline unsigned int version_of(PyTypeObject* type) noexcept {
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) != 0 ? type->tp_version_tag : 0;
}

/// UTF-8 of a str, borrowed from it. Throws ErrorSet for lone surrogates.
[[nodiscard]] inline std::string_view utf8(PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw ErrorSet{};
  return {data, static_cast<std::size_t>(size)};
}
[[nodiscard]] inline Ref new_str(std::string_view text) {
  return checked(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}
/// A path, as os.fsdecode gives it.
[[nodiscard]] inline Ref file_name(std::string_view path) {
  return checked(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}
/// str(object) for a message; never throws, never leaves an exception set. Lone surrogates, which
/// have no UTF-8, and NUL, which would end the text where it travels as a C string, become U+FFFD.
[[nodiscard]] std::string message_text(PyObject* object) noexcept;
/// `module.qualname` of a type, without `builtins.`.
[[nodiscard]] std::string type_name(PyTypeObject* type) noexcept;
[[nodiscard]] Ref imported(const char* module, const char* attribute);

/// PyObject_Vectorcall without a detour through the library: a warm call makes two of them.
[[nodiscard]] inline PyObject* call_vector(PyObject* callable, PyObject* const* arguments,
                                           std::size_t nargsf, PyObject* names) {
  const PyTypeObject* type = Py_TYPE(callable);
  if ((type->tp_flags & Py_TPFLAGS_HAVE_VECTORCALL) != 0) [[likely]] {
    vectorcallfunc direct = nullptr;
    std::memcpy(&direct, reinterpret_cast<const char*>(callable) + type->tp_vectorcall_offset,
                sizeof direct);
    if (direct != nullptr) return direct(callable, arguments, nargsf, names);
  }
  return PyObject_Vectorcall(callable, arguments, nargsf, names);
}

/// An attribute that may be missing: null without an exception for AttributeError, ErrorSet for
/// anything else.
[[nodiscard]] Ref optional_attribute(PyObject* object, const char* name);

}  // namespace disttune::python
