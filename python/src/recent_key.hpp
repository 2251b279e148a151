// The key of the call before: most calls come with the same one again, and comparing two keys costs
// less than writing, hashing and finding one.
#pragma once

#include "object.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "choice_table.hpp"

namespace disttune::python {

/// The objects that a call's key is made of: what a key function returned, or the values of the
/// key's fields. Owned.
class KeyObjects {
 public:
  explicit KeyObjects(std::size_t capacity)
      : m_objects(capacity <= k_inline ? m_inline.data() : new PyObject*[capacity]) {}
  ~KeyObjects() {
    clear();
    if (m_objects != m_inline.data()) delete[] m_objects;
  }
  KeyObjects(const KeyObjects&) = delete;
  KeyObjects& operator=(const KeyObjects&) = delete;

  void push(Ref object) noexcept { m_objects[m_size++] = object.release(); }
  void clear() noexcept {
    while (m_size > 0) Py_DECREF(m_objects[--m_size]);
  }
  [[nodiscard]] std::size_t size() const noexcept { return m_size; }
  [[nodiscard]] PyObject* operator[](std::size_t i) const noexcept { return m_objects[i]; }

  bool are_items = false;  ///< the key is a tuple of the objects, or else the one object

 private:
  static constexpr std::size_t k_inline = 8;
  std::array<PyObject*, k_inline> m_inline;
  PyObject** m_objects;
  std::size_t m_size = 0;
};

/// Remembers the objects of one key and what the table gave for it. Only keys that are made of
/// ints, floats, strings, constants and tuples of these are remembered, so that no argument is kept
/// alive and nobody can change the key. Guarded by the interpreter lock.
class RecentKey {
 public:
  /// The choice for an equal key in the same place; null: look into the table.
  [[nodiscard]] Choice* find(const KeyObjects& key, std::uint64_t place,
                             const ChoiceTable& table) const noexcept {
    return m_generation == table.generation() && m_place == place && equals(key) ? m_choice
                                                                                 : nullptr;
  }
  void remember(const KeyObjects& key, std::uint64_t place, const ChoiceTable& table,
                Choice* choice);

 private:
  [[nodiscard]] bool equals(const KeyObjects& key) const noexcept;

  std::vector<Ref> m_objects;
  bool m_are_items = false;
  std::uint64_t m_place = 0;
  std::uint64_t m_generation = 0;  ///< tables begin with 1
  Choice* m_choice = nullptr;      ///< the table's, as long as its generation is the same
};

}  // namespace disttune::python
