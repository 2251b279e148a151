#include "choice_table.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace disttune::python {

int Choice::traverse(visitproc visit, void* arg) const {
  Py_VISIT(m_names.get());
  Py_VISIT(m_entry.get());
  for (const Ref& value : m_values) Py_VISIT(value.get());
  return 0;
}

void ChoiceTable::insert(std::string_view key, std::uint64_t hash, ChoiceRef choice) {
  ++m_generation;
  ChoiceRef old = erase(key, hash);  // dies at the end, when the table is whole again
  if ((m_size + 1) * 2 > m_slots.size()) grow();
  void* memory = ::operator new(sizeof(Node) + key.size());
  auto* node = new (memory)
      Node{hash, choice.release(), m_next_order++, static_cast<std::uint32_t>(key.size())};
  std::memcpy(reinterpret_cast<char*>(node + 1), key.data(), key.size());
  place(node);
  ++m_size;
}

ChoiceRef ChoiceTable::erase(std::string_view key, std::uint64_t hash) noexcept {
  if (m_slots.empty()) return nullptr;
  std::size_t at = hash & m_mask;
  while (m_slots[at] != nullptr && !(m_slots[at]->hash == hash && m_slots[at]->key() == key))
    at = (at + 1) & m_mask;
  Node* node = m_slots[at];
  if (node == nullptr) return nullptr;
  ++m_generation;
  m_slots[at] = nullptr;
  --m_size;
  // Those behind move up, so that no probe ends early.
  for (std::size_t next = (at + 1) & m_mask; m_slots[next] != nullptr; next = (next + 1) & m_mask) {
    Node* moved = m_slots[next];
    m_slots[next] = nullptr;
    place(moved);
  }
  ChoiceRef choice(node->choice);
  ::operator delete(node);
  return choice;
}

void ChoiceTable::clear() noexcept {
  // Dying values may run Python code that comes back here: it finds an empty table.
  std::vector<Node*> slots;
  slots.swap(m_slots);
  ++m_generation;
  m_mask = 0;
  m_size = 0;
  for (Node* node : slots) {
    if (node == nullptr) continue;
    node->choice->release();
    ::operator delete(node);
  }
}

std::vector<std::string_view> ChoiceTable::keys() const {
  std::vector<const Node*> nodes;
  nodes.reserve(m_size);
  for (const Node* node : m_slots)
    if (node != nullptr) nodes.push_back(node);
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->order < b->order; });
  std::vector<std::string_view> out;
  out.reserve(nodes.size());
  for (const Node* node : nodes) out.push_back(node->key());
  return out;
}

int ChoiceTable::traverse(visitproc visit, void* arg) const {
  for (const Node* node : m_slots) {
    if (node == nullptr) continue;
    if (const int stop = node->choice->traverse(visit, arg); stop != 0) return stop;
  }
  return 0;
}

void ChoiceTable::grow() {
  std::vector<Node*> slots(m_slots.empty() ? 8 : m_slots.size() * 2);
  slots.swap(m_slots);
  m_mask = m_slots.size() - 1;
  for (Node* node : slots)
    if (node != nullptr) place(node);
}

void ChoiceTable::place(Node* node) noexcept {
  std::size_t at = node->hash & m_mask;
  while (m_slots[at] != nullptr) at = (at + 1) & m_mask;
  m_slots[at] = node;
}

}  // namespace disttune::python
