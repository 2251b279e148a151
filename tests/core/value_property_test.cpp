// Properties of canonical text over random values. Seeded: the same values in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "disttune/value.hpp"

using disttune::InvalidValue;
using disttune::Value;
using Kind = disttune::Value::Kind;

namespace {

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : m_random(seed) {}

  std::uint64_t below(std::uint64_t n) { return m_random() % n; }
  std::mt19937_64& random() { return m_random; }

  std::string unicode() {
    std::string out;
    for (std::uint64_t n = below(6); n > 0; --n) {
      static const std::vector<std::string> k_pieces = {"a",
                                                        "\"",
                                                        "\\",
                                                        "\n",
                                                        "\t",
                                                        std::string(1, '\0'),
                                                        "\x7f",
                                                        "é",
                                                        "中",
                                                        "😀",
                                                        ", ",
                                                        ": ",
                                                        "(",
                                                        "]",
                                                        "}",
                                                        "b\"",
                                                        "\xc2\x80",
                                                        "\xef\xbf\xbf",
                                                        "\xf4\x8f\xbf\xbf",
                                                        "'"};
      out += k_pieces[below(k_pieces.size())];
    }
    return out;
  }
  std::string raw() {
    std::string out;
    for (std::uint64_t n = below(6); n > 0; --n) out += static_cast<char>(below(256));
    return out;
  }
  std::string name() {
    static const std::vector<std::string> k_names = {"f", "torch.float16", "b", "nan", "None",
                                                     "1", "a.<b>",         "é"};
    return k_names[below(k_names.size())];
  }
  Value scalar() {
    switch (below(8)) {
      case 0:
        return {};
      case 1:
        return below(2) == 0;
      case 2:
        return static_cast<std::int64_t>(m_random()) >> below(64);
      case 3:
        return Value::big_integer((below(2) == 0 ? "-" : "") + std::to_string(m_random()) +
                                  std::to_string(m_random()));
      case 4:
        return std::bit_cast<double>(m_random());
      case 5:
        return static_cast<double>(static_cast<std::int64_t>(below(200)) - 100) / 4;
      case 6:
        return unicode();
      default:
        return Value::bytes(raw());
    }
  }
  std::vector<Value> many(int depth) {
    std::vector<Value> out;
    for (std::uint64_t n = below(4); n > 0; --n) out.push_back(value(depth - 1));
    return out;
  }
  Value value(int depth) {
    if (depth == 0) return scalar();
    switch (below(6)) {
      case 0:
        return Value::tuple(many(depth));
      case 1:
        return Value::list(many(depth));
      case 2:
        return Value::set(many(depth));
      case 3: {
        std::vector<std::pair<Value, Value>> items;
        for (const Value& key : Value::set(many(depth)).items())
          items.emplace_back(key, value(depth - 1));
        return Value::dict(std::move(items));
      }
      case 4: {
        std::vector<std::pair<std::string, Value>> fields;
        for (const Value& v : many(depth))
          fields.emplace_back(below(2) == 0 ? "" : "f" + std::to_string(fields.size()), v);
        return Value::named(name(), fields);
      }
      default:
        return scalar();
    }
  }

 private:
  std::mt19937_64 m_random;
};

/// The value built anew from its parts: only what the accessors give.
Value rebuilt(const Value& v) {
  std::vector<Value> items;
  switch (v.kind()) {
    case Kind::none:
      return {};
    case Kind::boolean:
      return v.as<bool>();
    case Kind::integer:
      return Value::big_integer(v.text());
    case Kind::floating:
      return v.as<double>();
    case Kind::string:
      return v.as<std::string>();
    case Kind::bytes:
      return Value::bytes(v.as<std::string>());
    case Kind::dict: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, value] : v.entries())
        entries.emplace_back(rebuilt(key), rebuilt(value));
      return Value::dict(std::move(entries));
    }
    case Kind::named: {
      std::vector<std::pair<std::string, Value>> fields;
      for (const auto& [name, value] : v.fields()) fields.emplace_back(name, rebuilt(value));
      return Value::named(v.name(), fields);
    }
    default:
      for (const Value& item : v.items()) items.push_back(rebuilt(item));
  }
  if (v.kind() == Kind::tuple) return Value::tuple(items);
  return v.kind() == Kind::list ? Value::list(items) : Value::set(items);
}

TEST(ValueProperty, TextToValueToTextIsTheIdentity) {
  Maker make(1);
  for (int i = 0; i < 20000; ++i) {
    const Value v = make.value(4);
    ASSERT_EQ(Value::parse(v.text()).text(), v.text());
  }
}

TEST(ValueProperty, PartsRebuildTheValue) {
  Maker make(2);
  for (int i = 0; i < 20000; ++i) {
    const Value v = make.value(4);
    ASSERT_EQ(rebuilt(v).text(), v.text());
  }
}

TEST(ValueProperty, DoublesReadBackBitForBit) {
  Maker make(3);
  for (int i = 0; i < 100000; ++i) {
    const auto v = std::bit_cast<double>(make.random()());
    const Value text(v);
    ASSERT_EQ(text.kind(), Kind::floating);
    if (std::isnan(v))
      ASSERT_EQ(text.text(), "nan");
    else
      ASSERT_EQ(std::bit_cast<std::uint64_t>(text.as<double>()), std::bit_cast<std::uint64_t>(v));
  }
}

TEST(ValueProperty, OrderOfDictAndSetDoesNotCount) {
  Maker make(4);
  for (int i = 0; i < 2000; ++i) {
    std::vector<Value> items;
    for (int n = 0; n < 8; ++n) items.push_back(make.value(2));
    const Value set = Value::set(items);
    items = set.items();
    std::vector<std::pair<Value, Value>> entries;
    for (const Value& item : items) entries.emplace_back(item, make.scalar());
    const Value dict = Value::dict(entries);
    std::shuffle(items.begin(), items.end(), make.random());
    std::shuffle(entries.begin(), entries.end(), make.random());
    ASSERT_EQ(Value::set(items), set);
    ASSERT_EQ(Value::dict(entries), dict);
  }
}

TEST(ValueProperty, DamagedTextIsRefusedOrCanonical) {
  Maker make(5);
  for (int i = 0; i < 50000; ++i) {
    std::string text(make.value(3).text());
    switch (make.below(3)) {
      case 0:
        text.resize(make.below(text.size() + 1));
        break;
      case 1:
        text[make.below(text.size())] = static_cast<char>(make.below(256));
        break;
      default:
        text.insert(make.below(text.size() + 1), 1, static_cast<char>(make.below(256)));
    }
    try {
      const Value v = Value::parse(text);
      ASSERT_EQ(rebuilt(v).text(), text);
    } catch (const InvalidValue&) {
      continue;  // the usual end
    }
  }
}

}  // namespace
