#include "compact.hpp"

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <vector>

namespace disttune::python {
namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

std::uint64_t load(const char* from, std::size_t size = 8) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, from, size);
  return word;
}

std::uint64_t seed() noexcept {
  static const std::uint64_t s = [] {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32U) ^ device();
  }();
  return s;
}
const std::uint64_t k_seed = seed();

template <class Append>
void append_sorted(Buffer& out, std::size_t count, const Append& append) {
  std::vector<std::size_t> begins(count);
  const std::size_t start = out.size();
  for (std::size_t i = 0; i < count; ++i) {
    begins[i] = out.size();
    append(i);
  }
  sort_items(out, start, begins.data(), count);
}

Value read(CompactCursor& cursor);

std::vector<Value> read_items(CompactCursor& cursor) {
  const std::uint32_t count = cursor.count();
  std::vector<Value> items;
  items.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) items.push_back(read(cursor));
  return items;
}

Value read_dict(CompactCursor& cursor) {
  const std::uint32_t count = cursor.count();
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    Value key = read(cursor);
    entries.emplace_back(std::move(key), read(cursor));
  }
  return Value::dict(std::move(entries));
}

Value read_named(CompactCursor& cursor) {
  const std::string_view name = cursor.text();
  const std::uint32_t count = cursor.count();
  std::vector<std::pair<std::string, Value>> fields;
  fields.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string field(cursor.text());
    fields.emplace_back(std::move(field), read(cursor));
  }
  return Value::named(name, fields);
}

Value read(CompactCursor& cursor) {
  switch (cursor.tag()) {
    case 'T':
      return true;
    case 'F':
      return false;
    case 'i':
      return cursor.word<std::int64_t>();
    case 'I':
      return Value::big_integer(cursor.text());
    case 'f':
      return std::bit_cast<double>(cursor.word<std::uint64_t>());
    case 's':
      return cursor.text();
    case 'b':
      return Value::bytes(cursor.text());
    case '(':
      return Value::tuple(read_items(cursor));
    case '[':
      return Value::list(read_items(cursor));
    case '<':
      return Value::set(read_items(cursor));
    case '{':
      return read_dict(cursor);
    case 'n':
      return read_named(cursor);
    default:
      return {};
  }
}

void append_integer(Buffer& out, const Value& value) {
  try {
    out.put_word('i', value.as<std::int64_t>());
  } catch (const InvalidValue&) {  // larger than 64 bits: its digits
    out.put_text('I', value.text());
  }
}

}  // namespace

void append_compact(Buffer& out, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::none:
      return out.put('N');
    case Value::Kind::boolean:
      return out.put(value.as<bool>() ? 'T' : 'F');
    case Value::Kind::integer:
      return append_integer(out, value);
    case Value::Kind::floating:
      return out.put_word('f', float_bits(value.as<double>()));
    case Value::Kind::string:
      return out.put_text('s', value.as<std::string>());
    case Value::Kind::bytes:
      return out.put_text('b', value.as<std::string>());
    case Value::Kind::tuple:
    case Value::Kind::list: {
      const std::vector<Value> items = value.items();
      out.put_count(value.kind() == Value::Kind::tuple ? '(' : '[', items.size());
      for (const Value& item : items) append_compact(out, item);
      return;
    }
    case Value::Kind::set: {
      const std::vector<Value> items = value.items();
      out.put_count('<', items.size());
      return append_sorted(out, items.size(),
                           [&](std::size_t i) { append_compact(out, items[i]); });
    }
    case Value::Kind::dict: {
      const auto entries = value.entries();
      out.put_count('{', entries.size());
      return append_sorted(out, entries.size(), [&](std::size_t i) {
        append_compact(out, entries[i].first);
        append_compact(out, entries[i].second);
      });
    }
    case Value::Kind::named: {
      const auto fields = value.fields();
      out.put_text('n', value.name());
      // The tag of a count is not needed here; the count alone keeps the bytes unambiguous.
      const auto count = static_cast<std::uint32_t>(fields.size());
      out.put_raw({reinterpret_cast<const char*>(&count), sizeof count});
      for (const auto& [name, field] : fields) {
        const auto size = static_cast<std::uint32_t>(name.size());
        out.put_raw({reinterpret_cast<const char*>(&size), sizeof size});
        out.put_raw(name);
        append_compact(out, field);
      }
      return;
    }
  }
}

Value value_of(std::string_view compact) {
  CompactCursor cursor(compact);
  return read(cursor);
}

void CompactCursor::skip() noexcept {
  switch (tag()) {
    case 'i':
    case 'f':
      m_at += 8;
      return;
    case 'I':
    case 's':
    case 'b':
      static_cast<void>(text());
      return;
    case '(':
    case '[':
    case '<':
      for (std::uint32_t left = count(); left > 0; --left) skip();
      return;
    case '{':
      for (std::uint32_t left = 2 * count(); left > 0; --left) skip();
      return;
    case 'n':
      static_cast<void>(text());
      for (std::uint32_t left = count(); left > 0; --left) {
        static_cast<void>(text());
        skip();
      }
      return;
    default:
      return;
  }
}

std::size_t compact_size(std::string_view compact) noexcept {
  CompactCursor cursor(compact);
  cursor.skip();
  return cursor.offset();
}

std::uint64_t hash_of(std::string_view bytes) noexcept {
  constexpr std::uint64_t k_a = 0x9e3779b97f4a7c15ULL;
  constexpr std::uint64_t k_b = 0xd6e8feb86659fd93ULL;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t hash = k_seed ^ (left * k_b);
  for (; left >= 16; at += 16, left -= 16) hash = mix(hash ^ load(at), load(at + 8) ^ k_a);
  if (left > 8) {
    hash = mix(hash ^ load(at), load(at + 8, left - 8) ^ k_a);
  } else if (left > 0) {
    hash = mix(hash ^ load(at, left), k_b);
  }
  return mix(hash, k_a);
}

void sort_items(Buffer& buffer, std::size_t start, const std::size_t* begins, std::size_t count) {
  if (count < 2) return;
  const std::string bytes(buffer.view(start));
  std::vector<std::string_view> items(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = i + 1 < count ? begins[i + 1] - start : bytes.size();
    items[i] = std::string_view(bytes).substr(begins[i] - start, end - (begins[i] - start));
  }
  std::sort(items.begin(), items.end());
  buffer.truncate(start);
  for (const std::string_view item : items) buffer.put_raw(item);
}

}  // namespace disttune::python
