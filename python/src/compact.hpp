// The compact form of a value: bytes that are equal exactly when the canonical texts are. A warm
// call writes its key in this form, hashes it and compares it; text is made on a miss only.
//
//   N T F              none, bools
//   i <8>              int that fits 64 bits          I <n> decimal      any other int
//   f <8>              bits of a double, one NaN
//   s <n> b <n>        UTF-8 text, bytes
//   ( <n> [ <n>        tuple, list: n values
//   { <n> < <n>        dict: n pairs, set: n values; both in order of their compact bytes
//   n <n> name <m>     named: m fields, each <k> field name, value
// <n> is a 32-bit count; numbers are in host order, since compact bytes never leave the process.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>

#include "disttune/value.hpp"

namespace disttune::python {

/// Bytes that grow; small ones need no allocation.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (m_data != m_inline) ::operator delete(m_data);
  }

  [[nodiscard]] const unsigned char* data() const noexcept { return m_data; }
  [[nodiscard]] std::size_t size() const noexcept { return m_size; }
  [[nodiscard]] std::string_view view(std::size_t from = 0) const noexcept {
    return {reinterpret_cast<const char*>(m_data) + from, m_size - from};
  }
  void truncate(std::size_t size) noexcept { m_size = size; }

  void put(char tag) {
    need(1);
    m_data[m_size++] = static_cast<unsigned char>(tag);
  }
  /// A tag and eight bytes.
  template <class T>
  void put_word(char tag, T word) {
    static_assert(sizeof(T) == 8);
    need(9);
    m_data[m_size] = static_cast<unsigned char>(tag);
    std::memcpy(m_data + m_size + 1, &word, 8);
    m_size += 9;
  }
  /// A tag and a count.
  void put_count(char tag, std::size_t count) {
    need(5);
    m_data[m_size] = static_cast<unsigned char>(tag);
    const auto narrow = static_cast<std::uint32_t>(count);
    std::memcpy(m_data + m_size + 1, &narrow, 4);
    m_size += 5;
  }
  void put_raw(std::string_view bytes) {
    need(bytes.size());
    std::memcpy(m_data + m_size, bytes.data(), bytes.size());
    m_size += bytes.size();
  }
  void put_text(char tag, std::string_view bytes) {
    put_count(tag, bytes.size());
    put_raw(bytes);
  }
  /// Eight bytes without a tag.
  void put_place(std::uint64_t word) {
    need(8);
    std::memcpy(m_data + m_size, &word, 8);
    m_size += 8;
  }

 private:
  void need(std::size_t more) {
    if (m_size + more > m_capacity) [[unlikely]]
      grow(more);
  }
  void grow(std::size_t more) {
    std::size_t capacity = m_capacity * 2;
    while (capacity < m_size + more) capacity *= 2;
    auto* data = static_cast<unsigned char*>(::operator new(capacity));
    std::memcpy(data, m_data, m_size);
    if (m_data != m_inline) ::operator delete(m_data);
    m_data = data;
    m_capacity = capacity;
  }

  static constexpr std::size_t k_inline = 256;
  unsigned char m_inline[k_inline];
  unsigned char* m_data = m_inline;
  std::size_t m_size = 0;
  std::size_t m_capacity = k_inline;
};

/// The bits of a double, the same for every NaN.
[[nodiscard]] inline std::uint64_t float_bits(double number) noexcept {
  if (number != number) number = std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<std::uint64_t>(number);
}

/// A value's compact bytes, appended.
void append_compact(Buffer& out, const Value& value);
/// The value that compact bytes stand for. Throws InvalidValue where no canonical text exists (a
/// dict whose keys share one text, a name with forbidden characters).
[[nodiscard]] Value value_of(std::string_view compact);

/// How many bytes the first value of `compact` takes.
[[nodiscard]] std::size_t compact_size(std::string_view compact) noexcept;

/// A hash of compact bytes; differs between processes, so nobody can prepare colliding keys.
[[nodiscard]] std::uint64_t hash_of(std::string_view bytes) noexcept;

/// Sorts the `count` items that follow `start`, each one value (a dict: two), by their bytes.
void sort_items(Buffer& buffer, std::size_t start, const std::size_t* begins, std::size_t count);

/// Reads compact bytes from front to back.
class CompactCursor {
 public:
  explicit CompactCursor(std::string_view bytes) noexcept : m_bytes(bytes) {}
  [[nodiscard]] char tag() noexcept { return m_bytes[m_at++]; }
  [[nodiscard]] char peek() const noexcept { return m_bytes[m_at]; }
  [[nodiscard]] std::size_t offset() const noexcept { return m_at; }
  template <class T>
  [[nodiscard]] T word() noexcept {
    T out;
    std::memcpy(&out, m_bytes.data() + m_at, sizeof(T));
    m_at += sizeof(T);
    return out;
  }
  [[nodiscard]] std::uint32_t count() noexcept { return word<std::uint32_t>(); }
  /// Passes over one value.
  void skip() noexcept;
  [[nodiscard]] std::string_view text() noexcept {
    const std::uint32_t size = count();
    const std::string_view out = m_bytes.substr(m_at, size);
    m_at += size;
    return out;
  }

 private:
  std::string_view m_bytes;
  std::size_t m_at = 0;
};

}  // namespace disttune::python
