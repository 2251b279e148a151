#include <stdexcept>

#include "disttune/value.hpp"

DISTTUNE_NAMESPACE_BEGIN

struct TextWriter::Frame {
  Value::Kind kind;
  std::string name = {};                                  ///< of a named value
  std::string field = {};                                 ///< named, its value still to come
  std::vector<std::pair<std::string, Value>> items = {};  ///< field name (or none) and value
};

TextWriter::TextWriter() = default;
TextWriter::~TextWriter() = default;

namespace {
[[noreturn]] void misuse(const char* what) {
  throw std::logic_error(std::string("disttune: TextWriter: ") + what);
}
}  // namespace

void TextWriter::value(const Value& v) {
  if (m_frames.empty()) {
    if (m_result) misuse("a second value outside of a container");
    m_result = v;
    return;
  }
  Frame& frame = m_frames.back();
  frame.items.emplace_back(std::move(frame.field), v);
  frame.field.clear();
}

void TextWriter::begin_tuple() { m_frames.push_back({Value::Kind::tuple}); }
void TextWriter::begin_list() { m_frames.push_back({Value::Kind::list}); }
void TextWriter::begin_dict() { m_frames.push_back({Value::Kind::dict}); }
void TextWriter::begin_set() { m_frames.push_back({Value::Kind::set}); }
void TextWriter::begin_named(std::string_view name) {
  m_frames.push_back({Value::Kind::named, std::string(name)});
}

void TextWriter::field(std::string_view name) {
  if (m_frames.empty() || m_frames.back().kind != Value::Kind::named)
    misuse("a field name outside of a named value");
  if (!m_frames.back().field.empty()) misuse("two field names in a row");
  if (name.empty()) misuse("an empty field name");
  m_frames.back().field = name;
}

void TextWriter::end() {
  if (m_frames.empty()) misuse("end() without a container");
  Frame& frame = m_frames.back();
  if (!frame.field.empty()) misuse("a field name without a value");
  if (frame.kind == Value::Kind::dict && frame.items.size() % 2 != 0)
    misuse("a dict key without a value");
  if (m_frames.size() == 1 && m_result) misuse("a second value outside of a container");

  std::vector<Value> values;
  if (frame.kind != Value::Kind::named)
    for (auto& item : frame.items) values.push_back(std::move(item.second));
  Value made;
  switch (frame.kind) {
    case Value::Kind::tuple:
      made = Value::tuple(values);
      break;
    case Value::Kind::list:
      made = Value::list(values);
      break;
    case Value::Kind::set:
      made = Value::set(std::move(values));
      break;
    case Value::Kind::dict: {
      std::vector<std::pair<Value, Value>> entries;
      for (std::size_t i = 0; i < values.size(); i += 2)
        entries.emplace_back(std::move(values[i]), std::move(values[i + 1]));
      made = Value::dict(std::move(entries));
      break;
    }
    default:
      made = Value::named(frame.name, frame.items);
  }
  m_frames.pop_back();
  value(made);
}

Value TextWriter::take() {
  if (!m_frames.empty()) misuse("take() before the last container is closed");
  if (!m_result) misuse("take() without a value");
  Value out = std::move(*m_result);
  m_result.reset();
  return out;
}

DISTTUNE_NAMESPACE_END
