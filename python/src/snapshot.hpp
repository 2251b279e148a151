// What a dict held at a moment.
#pragma once

#include "object.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace disttune::python {

/// By identity: any change to an attribute shows here. Guarded by the interpreter lock.
class Snapshot {
 public:
  /// `except`: names that may change.
  explicit Snapshot(PyObject* dict, std::vector<Ref> except = {}) : m_except(std::move(except)) {
    Py_ssize_t at = 0;
    PyObject *name = nullptr, *value = nullptr;
    while (PyDict_Next(dict, &at, &name, &value) != 0)
      if (!excepted(name)) m_items.emplace_back(Ref::borrow(name), Ref::borrow(value));
  }
  [[nodiscard]] bool matches(PyObject* dict) noexcept {
#if PY_VERSION_HEX < 0x030c0000
    // Another number after every write to any dict: it is the dict that matched, untouched.
    const std::uint64_t now = reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
    if (now == m_version) return true;
    if (!matches_by_item(dict)) return false;
    m_version = now;
    return true;
#else
    return matches_by_item(dict);
#endif
  }

 private:
  [[nodiscard]] bool matches_by_item(PyObject* dict) const noexcept {
    Py_ssize_t at = 0;
    std::size_t item = 0;
    PyObject *name = nullptr, *value = nullptr;
    while (PyDict_Next(dict, &at, &name, &value) != 0) {
      if (excepted(name)) continue;
      if (item == m_items.size() || m_items[item].first.get() != name ||
          m_items[item].second.get() != value)
        return false;
      ++item;
    }
    return item == m_items.size();
  }
  [[nodiscard]] bool excepted(PyObject* name) const noexcept {
    return std::ranges::any_of(m_except, [&](const Ref& e) { return e.get() == name; });
  }

  std::vector<Ref> m_except;
  std::vector<std::pair<Ref, Ref>> m_items;
#if PY_VERSION_HEX < 0x030c0000
  std::uint64_t m_version = 0;  // the first dict's is 1
#endif
};

}  // namespace disttune::python
