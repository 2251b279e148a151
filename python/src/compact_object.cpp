// Compact bytes → Python objects, for those who look into a memory table.
#include <bit>
#include <string>

#include "big_int.hpp"
#include "describe.hpp"
#include "describe_registry.hpp"

namespace disttune::python {
namespace {

Ref read_object(CompactCursor& cursor, std::string_view all);

Ref read_named_object(CompactCursor& cursor, std::string_view all, std::size_t begin) {
  cursor.skip();
  const std::string_view bytes = all.substr(begin, cursor.offset() - begin);
  if (PyObject* known = constant_of(bytes); known != nullptr) return Ref::borrow(known);
  return wrap_value(value_of(bytes));
}

Ref read_sequence(CompactCursor& cursor, std::string_view all, bool tuple) {
  const std::uint32_t count = cursor.count();
  Ref out = checked(tuple ? PyTuple_New(count) : PyList_New(count));
  for (std::uint32_t i = 0; i < count; ++i) {
    Ref item = read_object(cursor, all);
    if (tuple) {
      PyTuple_SET_ITEM(out.get(), i, item.release());
    } else {
      PyList_SET_ITEM(out.get(), i, item.release());
    }
  }
  return out;
}

Ref read_dict_object(CompactCursor& cursor, std::string_view all) {
  const std::uint32_t count = cursor.count();
  const Ref out = checked(PyDict_New());
  for (std::uint32_t i = 0; i < count; ++i) {
    const Ref key = read_object(cursor, all);
    const Ref value = read_object(cursor, all);
    checked(PyDict_SetItem(out.get(), key.get(), value.get()));
  }
  return out;
}

Ref read_object(CompactCursor& cursor, std::string_view all) {
  const std::size_t begin = cursor.offset();
  if (cursor.peek() == 'n') return read_named_object(cursor, all, begin);
  switch (cursor.tag()) {
    case 'T':
      return Ref::borrow(Py_True);
    case 'F':
      return Ref::borrow(Py_False);
    case 'i':
      return checked(PyLong_FromLongLong(cursor.word<std::int64_t>()));
    case 'I':
      return int_of(cursor.text());
    case 'f':
      return checked(PyFloat_FromDouble(std::bit_cast<double>(cursor.word<std::uint64_t>())));
    case 's':
      return new_str(cursor.text());
    case 'b': {
      const std::string_view bytes = cursor.text();
      return checked(
          PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
    }
    case '(':
      return read_sequence(cursor, all, true);
    case '[':
      return read_sequence(cursor, all, false);
    case '<': {
      const Ref items = read_sequence(cursor, all, false);
      return checked(PyFrozenSet_New(items.get()));
    }
    case '{':
      return read_dict_object(cursor, all);
    default:
      return Ref::borrow(Py_None);
  }
}

}  // namespace

Ref object_of(std::string_view compact) {
  CompactCursor cursor(compact);
  return read_object(cursor, compact);
}

Ref object_of(const Value& value) {
  Buffer buffer;
  append_compact(buffer, value);
  return object_of(buffer.view());
}

}  // namespace disttune::python
