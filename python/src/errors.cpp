#include "errors.hpp"

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <array>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "disttune/error.hpp"

namespace disttune::python {
namespace {

/// The exception that is set, normalised, with its traceback attached.
Ref take_exception() {
#if PY_VERSION_HEX >= 0x030c0000
  return Ref::steal(PyErr_GetRaisedException());
#else
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value != nullptr && trace != nullptr) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return Ref::steal(value);
#endif
}

void set_exception(PyObject* exception) {
#if PY_VERSION_HEX >= 0x030c0000
  PyErr_SetRaisedException(Py_NewRef(exception));
#else
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception))), Py_NewRef(exception),
                PyException_GetTraceback(exception));
#endif
}

struct Kind {
  std::string_view type;  ///< unqualified name of a class or of one of its bases
  Status status;
};
// Names instead of classes, so that nothing is imported to recognise them. Triton and its forks,
// torch, and Python's own.
constexpr std::array k_kinds{
    Kind{"OutOfResources", Status::out_of_resources},
    Kind{"OutOfMemoryError", Status::out_of_resources},
    Kind{"MemoryError", Status::out_of_resources},
    Kind{"CompilationError", Status::compile_failed},
    Kind{"CompileTimeAssertionFailure", Status::compile_failed},
    Kind{"UnsupportedLanguageConstruct", Status::compile_failed},
    Kind{"MLIRCompilationError", Status::compile_failed},
    Kind{"PTXASError", Status::compile_failed},
};

Status status_of(PyObject* exception) {
  PyObject* mro = Py_TYPE(exception)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    std::string_view name = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i))->tp_name;
    name = name.substr(name.rfind('.') + 1);
    for (const Kind& kind : k_kinds)
      if (kind.type == name) return kind.status;
  }
  return Status::launch_failed;
}

bool is_a(PyObject* exception, PyObject* type) {
  return type != nullptr && PyErr_GivenExceptionMatches(exception, type) != 0;
}

[[noreturn]] void throw_again(const Ref& exception) {
  std::string text = text_of(exception.get());
  set_exception(exception.get());
  throw Raised::take(std::move(text));
}

void set_error(PyObject* type, const std::exception& error) noexcept {
  // Messages may quote bytes of foreign files.
  const std::string_view what = error.what();
  const Ref text = Ref::steal(
      PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "backslashreplace"));
  if (text) PyErr_SetObject(type, text.get());
}

}  // namespace

ErrorClasses& error_classes() noexcept {
  static ErrorClasses classes;
  return classes;
}

void add_error_classes(PyObject* module) {
  ErrorClasses& classes = error_classes();
  const auto add = [&](PyObject*& slot, const char* name, PyObject* base, const char* doc) {
    const std::string full = std::string("disttune.") + name;
    slot = PyErr_NewExceptionWithDoc(full.c_str(), doc, base, nullptr);
    if (slot == nullptr) throw ErrorSet{};
    checked(PyModule_AddObjectRef(module, name, slot));
  };
  add(classes.error, "Error", PyExc_RuntimeError,
      "Root of everything that disttune raises on its own account.");
  PyObject* root = classes.error;
  add(classes.no_valid_config, "NoValidConfig", root,
      "No candidate works for this call; the text lists every candidate with its reason.");
  add(classes.not_tuned, "NotTuned", root, "A miss while MODE is `strict`.");
  add(classes.disagreement, "Disagreement", root,
      "Ranks called differently; the text is the same on all ranks.");
  add(classes.peer_failed, "PeerFailed", root,
      "A peer ended its call with an error; the text names the rank.");
  add(classes.group_timeout, "GroupTimeout", root,
      "A rank neither arrived nor gave a sign of life in time.");
  add(classes.capture_error, "CaptureError", root,
      "A miss while the stream is being captured into a graph; nothing was disturbed.");
  add(classes.nested_context, "NestedContext", root,
      "A contextual call inside, or beside, another one.");
  add(classes.store_error, "StoreError", root, "An explicit store operation failed.");
  add(classes.device_lost, "DeviceLost", root,
      "The device has an error that nothing in this process can heal.");
  add(classes.warning, "DisttuneWarning", PyExc_UserWarning,
      "Something that tuning noticed and went on after.");
}

std::string text_of(PyObject* exception) {
  const std::string message = message_text(exception);
  return type_name(Py_TYPE(exception)) + (message.empty() ? "" : ": " + message);
}

Raised Raised::take(std::string text) {
  return {std::move(text), owned_by_any_thread(take_exception())};
}

void Raised::restore() const {
  if (m_exception) set_exception(m_exception.get());
}

void set_from_current_exception() noexcept {
  const ErrorClasses& classes = error_classes();
  try {
    throw;
  } catch (const abi::__forced_unwind&) {
    stand_still();
  } catch (const ErrorSet&) {
  } catch (const Raised& raised) {
    raised.restore();
  } catch (const RunRaised& failed) {
    failed.restore();
  } catch (nanobind::python_error& error) {
    error.restore();
  } catch (const NoValidConfig& e) {
    set_error(classes.no_valid_config, e);
  } catch (const NotTuned& e) {
    set_error(classes.not_tuned, e);
  } catch (const Disagreement& e) {
    set_error(classes.disagreement, e);
  } catch (const PeerFailed& e) {
    set_error(classes.peer_failed, e);
  } catch (const GroupTimeout& e) {
    set_error(classes.group_timeout, e);
  } catch (const CaptureError& e) {
    set_error(classes.capture_error, e);
  } catch (const NestedContext& e) {
    set_error(classes.nested_context, e);
  } catch (const StoreError& e) {
    set_error(classes.store_error, e);
  } catch (const DeviceLost& e) {
    set_error(classes.device_lost, e);
  } catch (const InvalidValue& e) {
    set_error(PyExc_TypeError, e);
  } catch (const Error& e) {
    set_error(classes.error, e);
  } catch (const std::invalid_argument& e) {
    set_error(PyExc_ValueError, e);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    set_error(PyExc_RuntimeError, e);
  } catch (...) {
    PyErr_SetString(PyExc_SystemError, "disttune: an exception of an unknown kind");
  }
}

void throw_candidate_failure(std::string_view stage) {
  const Ref exception = take_exception();
  if (!exception) throw Error("disttune: a call failed without an exception");
  const ErrorClasses& classes = error_classes();
  if (!is_a(exception.get(), PyExc_Exception)) throw_again(exception);
  // Of a launcher that calls itself: each level would go on with its next candidate.
  if (is_a(exception.get(), PyExc_RecursionError)) throw_again(exception);
  for (PyObject* passes : {classes.disagreement, classes.peer_failed, classes.group_timeout})
    if (is_a(exception.get(), passes)) throw_again(exception);
  if (is_a(exception.get(), classes.device_lost)) throw DeviceLost(message_text(exception.get()));
  Status status = status_of(exception.get());
  if (status == Status::launch_failed && stage == "prepare") status = Status::compile_failed;
  const std::string why = std::string(stage) + ": " + text_of(exception.get());
  set_exception(exception.get());
  throw RunRaised(status, why, Raised::take());
}

void throw_raised() {
  const Ref exception = take_exception();
  if (!exception) throw Error("disttune: a call failed without an exception");
  throw_again(exception);
}

void throw_as_ours() {
  const Ref exception = take_exception();
  if (!exception) throw Error("disttune: a call failed without an exception");
  const ErrorClasses& classes = error_classes();
  if (!is_a(exception.get(), PyExc_Exception)) throw_again(exception);
  const std::string text = message_text(exception.get());
  if (is_a(exception.get(), classes.device_lost)) throw DeviceLost(text);
  if (is_a(exception.get(), classes.group_timeout)) throw GroupTimeout(text);
  if (is_a(exception.get(), classes.peer_failed)) throw PeerFailed(text);
  if (is_a(exception.get(), classes.disagreement)) throw Disagreement(text);
  if (is_a(exception.get(), classes.capture_error)) throw CaptureError(text);
  throw Error(type_name(Py_TYPE(exception.get())) + ": " + text);
}

}  // namespace disttune::python
