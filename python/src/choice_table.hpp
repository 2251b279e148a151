// What a launcher remembers: place and key → the values that the launcher is called with. Keys are
// in compact form, so no argument is kept alive. Guarded by the interpreter lock.
#pragma once

#include "object.hpp"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace disttune::python {

/// The tuned keywords of one decided key: a private copy of a candidate's values. Calls in flight
/// share it, so that a cleared table takes nothing from under them.
class Choice {
 public:
  Choice(Ref names, std::vector<Ref> values, Py_ssize_t candidate, Ref entry)
      : m_names(std::move(names)),
        m_values(std::move(values)),
        m_candidate(candidate),
        m_entry(std::move(entry)) {}
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

  void retain() noexcept { ++m_references; }
  void release() noexcept {
    if (--m_references == 0) delete this;
  }

  [[nodiscard]] PyObject* names() const noexcept { return m_names.get(); }  ///< tuple of str
  [[nodiscard]] const std::vector<Ref>& values() const noexcept { return m_values; }
  /// Index in the space, or -1: an entry that the caller put into `best_configs`.
  [[nodiscard]] Py_ssize_t candidate() const noexcept { return m_candidate; }
  [[nodiscard]] PyObject* entry() const noexcept { return m_entry.get(); }  ///< null: the space's
  int traverse(visitproc visit, void* arg) const;

 private:
  ~Choice() = default;

  std::uint32_t m_references = 1;
  Ref m_names;
  std::vector<Ref> m_values;
  Py_ssize_t m_candidate;
  Ref m_entry;
};

struct ReleaseChoice {
  void operator()(Choice* choice) const noexcept { choice->release(); }
};
/// One owned reference to a Choice.
using ChoiceRef = std::unique_ptr<Choice, ReleaseChoice>;
[[nodiscard]] inline ChoiceRef share(Choice* choice) noexcept {
  if (choice != nullptr) choice->retain();
  return ChoiceRef(choice);
}

/// Open addressing over nodes that hold their key's bytes in place.
class ChoiceTable {
 public:
  ChoiceTable() noexcept = default;
  ChoiceTable(const ChoiceTable&) = delete;
  ChoiceTable& operator=(const ChoiceTable&) = delete;
  ~ChoiceTable() { clear(); }

  /// The remembered choice, borrowed; null: a miss. Runs no Python code.
  [[nodiscard]] Choice* find(std::string_view key, std::uint64_t hash) const noexcept {
    if (m_slots.empty()) return nullptr;
    for (std::size_t at = hash & m_mask;; at = (at + 1) & m_mask) {
      const Node* node = m_slots[at];
      if (node == nullptr) return nullptr;
      if (node->hash == hash && node->key() == key) return node->choice;
    }
  }
  /// Remembers; an older choice for the key is dropped.
  void insert(std::string_view key, std::uint64_t hash, ChoiceRef choice);
  /// Forgets; the forgotten choice, or null.
  ChoiceRef erase(std::string_view key, std::uint64_t hash) noexcept;
  void clear() noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return m_size; }
  /// Another number after every change: what `find` gave before may be gone.
  [[nodiscard]] std::uint64_t generation() const noexcept { return m_generation; }

  /// All keys at this moment, oldest first.
  [[nodiscard]] std::vector<std::string_view> keys() const;
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Node {
    std::uint64_t hash;
    Choice* choice;
    std::uint32_t order;  ///< age, for iteration
    std::uint32_t size;
    [[nodiscard]] std::string_view key() const noexcept {
      return {reinterpret_cast<const char*>(this + 1), size};
    }
  };
  void grow();
  void place(Node* node) noexcept;

  std::vector<Node*> m_slots;
  std::size_t m_mask = 0;
  std::size_t m_size = 0;
  std::uint64_t m_generation = 1;
  std::uint32_t m_next_order = 0;
};

}  // namespace disttune::python
