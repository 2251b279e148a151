#include "outer_function.hpp"

#include <structmember.h>

#include <cstddef>
#include <optional>

#include "active_call.hpp"
#include "arguments.hpp"
#include "disttune/error.hpp"
#include "errors.hpp"
#include "function_like.hpp"

namespace disttune::python {
namespace {

struct OuterFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weak_references;
  PyObject* fn;
  PyObject* slow;  ///< the slow part
  bool is_dist;
};
OuterFunction& outer_of(PyObject* self) noexcept { return *reinterpret_cast<OuterFunction*>(self); }

struct Names {
  PyObject* name = PyUnicode_InternFromString("name");
  PyObject* seat = PyUnicode_InternFromString("seat");
  PyObject* goes_on_after = PyUnicode_InternFromString("goes_on_after");
  PyObject* complete = PyUnicode_InternFromString("complete");
  PyObject* close = PyUnicode_InternFromString("close");
};
const Names& names() {
  static const Names n;
  return n;
}

/// What follows a first pass that raised (`first` is null, the exception is set) or has met a
/// launch that the front end answered. Throws ErrorSet.
PyObject* after_first_pass(const OuterFunction& outer, const Arguments& arguments, Ref first) {
  if (!first) {
    const Raised raised = Raised::take();
    const Ref goes_on = checked(PyObject_CallMethodObjArgs(
        outer.slow, names().goes_on_after, raised.exception(), g_call.seat.get(), nullptr));
    if (goes_on.get() != Py_True) {
      raised.restore();
      throw ErrorSet{};
    }
    first = Ref::borrow(Py_None);
  }
  if (!g_call.made) return first.release();
  // In a list, so that it can be dropped before the next pass.
  const Ref result = checked(PyList_New(1));
  PyList_SET_ITEM(result.get(), 0, first.release());
  const Ref args = arguments.tuple();
  const Ref kwargs = arguments.dict();
  return checked(PyObject_CallMethodObjArgs(outer.slow, names().complete, result.get(), outer.fn,
                                            args.get(), kwargs.get(), nullptr))
      .release();
}

/// Ends the call, whose result or exception is there.
PyObject* ended(PyObject* result) {
  std::optional<Raised> raised;
  if (result == nullptr) raised = Raised::take();
  Ref out = Ref::steal(result);
  if (const Ref made = end_call(); made)
    checked(PyObject_CallMethodNoArgs(made.get(), names().close));
  if (raised) raised->restore();
  return out.release();
}

PyObject* call_to_the_end(const OuterFunction& outer, const Arguments& arguments, PyObject* first) {
  PyObject* result = nullptr;
  try {
    result = after_first_pass(outer, arguments, Ref::steal(first));
  } catch (...) {
    set_from_current_exception();
  }
  try {
    return ended(result);
  } catch (...) {
    set_from_current_exception();
    return nullptr;
  }
}

PyObject* call_outer(PyObject* self, PyObject* const* args, std::size_t nargsf,
                     PyObject* keywords) {
  const OuterFunction& outer = outer_of(self);
  try {
    if (outer.fn == nullptr) throw Error("disttune: this contextual function is being destroyed");
    if (outer.is_dist) [[unlikely]] {
      begin_call(outer.slow, checked(PyObject_CallMethodNoArgs(outer.slow, names().seat)).get());
    } else {
      begin_call(outer.slow, Py_None);
    }
  } catch (...) {
    set_from_current_exception();
    return nullptr;
  }
  PyObject* const result = call_vector(outer.fn, args, nargsf, keywords);
  if (result == nullptr || g_call.made) [[unlikely]]
    return call_to_the_end(outer, {args, PyVectorcall_NARGS(nargsf), keywords}, result);
  static_cast<void>(end_call());
  return result;
}

/// ContextualAutoTuner(fn, slow, is_dist)
PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *fn = nullptr, *slow = nullptr;
  int is_dist = 0;
  if (PyArg_ParseTuple(args, "OOp:ContextualAutoTuner", &fn, &slow, &is_dist) == 0) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  OuterFunction& outer = outer_of(self);
  outer.vectorcall = call_outer;
  outer.fn = Py_NewRef(fn);
  outer.slow = Py_NewRef(slow);
  outer.is_dist = is_dist != 0;
  return self;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(outer_of(self).dict);
  Py_VISIT(outer_of(self).fn);
  Py_VISIT(outer_of(self).slow);
  return 0;
}
int clear(PyObject* self) {
  Py_CLEAR(outer_of(self).dict);
  Py_CLEAR(outer_of(self).fn);
  Py_CLEAR(outer_of(self).slow);
  return 0;
}
void deallocate(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (outer_of(self).weak_references != nullptr) PyObject_ClearWeakRefs(self);
  clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_name(PyObject* self, void*) {
  return PyObject_GetAttr(outer_of(self).slow, names().name);
}
PyObject* represent(PyObject* self) {
  const Ref name = Ref::steal(get_name(self, nullptr));
  return name ? PyUnicode_FromFormat("<contextual_autotune of %U>", name.get()) : nullptr;
}

PyMethodDef k_methods[] = {k_copy, k_deepcopy, k_reduce, {nullptr, nullptr, 0, nullptr}};
PyGetSetDef k_attributes[] = {
    {"name", get_name, nullptr, "The name in messages.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef k_members[] = {
    {"fn", T_OBJECT, offsetof(OuterFunction, fn), READONLY, "The function that was decorated."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OuterFunction, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(OuterFunction, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(OuterFunction, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot k_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_to)},
    {Py_tp_methods, k_methods},
    {Py_tp_getset, k_attributes},
    {Py_tp_members, k_members},
    {Py_tp_doc, const_cast<char*>("An outer function whose autotuned kernels are tuned during its "
                                  "calls. Made by `disttune.contextual_autotune`.")},
    {0, nullptr}};
PyType_Spec k_spec = {"disttune._core.ContextualAutoTuner", sizeof(OuterFunction), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE,
                      k_slots};

}  // namespace

void add_outer_function(PyObject* module) {
  const Ref type = checked(PyType_FromSpec(&k_spec));
  checked(PyModule_AddObjectRef(module, "ContextualAutoTuner", type.get()));
}

}  // namespace disttune::python
