// What was found out lately about objects, by their address: one slot each, overwritten by whoever
// comes later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace disttune::python {

template <class Entry, std::size_t Count>
class RecentSlots {
 public:
  /// The slot of an address; whose it is now the entry itself says.
  [[nodiscard]] Entry& operator[](const void* object) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(object);
    return m_slots[(address >> 4U ^ address >> 12U) % Count];
  }

 private:
  std::array<Entry, Count> m_slots{};
};

}  // namespace disttune::python
