// The key of the call before: most calls come with the same one again, and comparing two keys costs
// less than writing, hashing and finding one.
#pragma once

#include "object.hpp"

#include <cstdint>

#include "choice_table.hpp"

namespace disttune::python {

/// Remembers one key object and what the table gave for it. Only keys that are made of ints,
/// floats, strings, constants and tuples of these are remembered, so that no argument is kept alive
/// and nobody can change the key. Guarded by the interpreter lock.
class RecentKey {
 public:
  /// The choice for an equal key in the same place; null: look into the table.
  [[nodiscard]] Choice* find(PyObject* key, std::uint64_t place, const ChoiceTable& table) const {
    return m_key && m_place == place && m_generation == table.generation() &&
                   equal(m_key.get(), key)
               ? m_choice
               : nullptr;
  }
  void remember(PyObject* key, std::uint64_t place, const ChoiceTable& table, Choice* choice);

 private:
  [[nodiscard]] static bool equal(PyObject* known, PyObject* key) noexcept;
  [[nodiscard]] static bool can_be_kept(PyObject* key) noexcept;

  Ref m_key;
  std::uint64_t m_place = 0;
  std::uint64_t m_generation = 0;
  Choice* m_choice = nullptr;  ///< the table's, as long as its generation is the same
};

}  // namespace disttune::python
