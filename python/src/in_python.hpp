// Calling Python from C++ that holds no interpreter lock, with errors as ours.
#pragma once

#include "object.hpp"

#include <nanobind/nanobind.h>

#include <cmath>
#include <cstdint>

#include "disttune/error.hpp"
#include "errors.hpp"

namespace disttune::python {

/// Runs `body` with the lock; what Python raises comes out as `throw_as_ours` makes it.
template <class Body>
auto in_python(const Body& body) {
  const Gil gil;
  try {
    return or_stand_still(body);
  } catch (nanobind::python_error& error) {
    error.restore();
  } catch (const ErrorSet&) {
  } catch (const nanobind::cast_error&) {
    throw Error("disttune: a method written in Python returned a value of another type");
  }
  throw_as_ours();
}

/// The same where nothing may be thrown: an error is reported as unraisable.
template <class Body>
void in_python_quietly(const Body& body) noexcept {
  if (Py_IsInitialized() == 0) return;
  const Gil gil;
  try {
    or_stand_still(body);
    return;
  } catch (nanobind::python_error& error) {
    error.restore();
  } catch (const ErrorSet&) {
  } catch (...) {
    return;
  }
  PyErr_WriteUnraisable(nullptr);
}

/// Nanoseconds now, by a clock of the caller's: a whole number, or a float, which is rounded.
/// Callable without the lock. Throws Raised.
inline std::int64_t read_clock(PyObject* clock) {
  const Gil gil;
  try {
    const Ref now = checked(PyObject_CallNoArgs(clock));
    const Ref whole = PyFloat_Check(now.get())
                          ? checked(PyLong_FromDouble(std::round(PyFloat_AS_DOUBLE(now.get()))))
                          : checked(PyNumber_Index(now.get()));
    const long long nanoseconds = PyLong_AsLongLong(whole.get());
    if (nanoseconds == -1 && PyErr_Occurred() != nullptr) throw ErrorSet{};
    return nanoseconds;
  } catch (const ErrorSet&) {
    throw_raised();
  }
}

/// A method or a plain attribute of that name; nothing where the object has none.
inline nanobind::object ask(nanobind::handle self, const char* name) {
  const Ref found = optional_attribute(self.ptr(), name);
  if (!found) return {};
  nanobind::object out = nanobind::borrow(found.get());
  return PyCallable_Check(out.ptr()) != 0 ? or_stand_still([&] { return out(); }) : out;
}

}  // namespace disttune::python
