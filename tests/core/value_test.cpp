#include "disttune/value.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "disttune/config.hpp"

using disttune::describe;
using disttune::InvalidValue;
using disttune::TextWriter;
using disttune::Value;
using Kind = disttune::Value::Kind;

namespace {

/// What the parser says about a text that it refuses.
std::string refusal(std::string_view text) {
  try {
    static_cast<void>(Value::parse(text));
  } catch (const InvalidValue& error) {
    return error.what();
  }
  return "accepted";
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Value, ScalarsHaveOneSpelling) {
  EXPECT_EQ(Value().text(), "None");
  EXPECT_EQ(Value(nullptr).text(), "None");
  EXPECT_EQ(Value(true).text(), "True");
  EXPECT_EQ(Value(false).text(), "False");
  EXPECT_EQ(Value(0).text(), "0");
  EXPECT_EQ(Value(-17).text(), "-17");
  EXPECT_EQ(Value(std::numeric_limits<std::int64_t>::min()).text(), "-9223372036854775808");
  EXPECT_EQ(Value(std::numeric_limits<std::uint64_t>::max()).text(), "18446744073709551615");
}

TEST(Value, FloatsNeverLookLikeIntegers) {
  EXPECT_EQ(Value(1.0).text(), "1.0");
  EXPECT_EQ(Value(-0.0).text(), "-0.0");
  EXPECT_EQ(Value(0.0).text(), "0.0");
  EXPECT_EQ(Value(0.1).text(), "0.1");
  EXPECT_EQ(Value(1e16).text(), "1e+16");
  EXPECT_EQ(Value(2.5e-7).text(), "2.5e-07");
  EXPECT_EQ(Value(5e-324).text(), "5e-324");
  EXPECT_EQ(Value(std::numeric_limits<double>::infinity()).text(), "inf");
  EXPECT_EQ(Value(-std::numeric_limits<double>::infinity()).text(), "-inf");
}

TEST(Value, EveryNanIsOne) {
  const double quiet = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Value(quiet).text(), "nan");
  EXPECT_EQ(Value(quiet), Value(-quiet));
}

TEST(Value, TypesAreTold) {
  const std::unordered_set<Value> ones{Value(1),        Value(true),       Value(1.0),
                                       Value("1"),      Value::bytes("1"), Value::tuple({1}),
                                       Value::list({1})};
  EXPECT_EQ(ones.size(), 7U);
  EXPECT_NE(Value(0.0), Value(-0.0));
  EXPECT_NE(Value::tuple({1, 2}), Value::list({1, 2}));
  EXPECT_NE(Value::dict({}), Value::set({}));
  EXPECT_NE(Value("None"), Value());
  EXPECT_NE(Value("float16"), Value::named("float16"));
}

TEST(Value, StringsEscapeOnlyWhatTheyMust) {
  EXPECT_EQ(Value("a\"b\\c").text(), R"("a\"b\\c")");
  EXPECT_EQ(Value("\n\r\t").text(), R"("\n\r\t")");
  EXPECT_EQ(Value(std::string_view("\0\x01\x1f\x7f", 4)).text(), R"("\u0000\u0001\u001f\u007f")");
  EXPECT_EQ(Value("é中😀").text(), "\"é中😀\"");
  EXPECT_EQ(Value("'").text(), "\"'\"");
}

TEST(Value, BytesArePrintableAscii) {
  EXPECT_EQ(Value::bytes("a\"\\\n\xff").text(), R"(b"a\"\\\x0a\xff")");
  EXPECT_EQ(Value::bytes(std::string_view("\0", 1)).text(), R"(b"\x00")");
}

TEST(Value, StringsThatAreNotUtf8AreRefused) {
  for (const std::string_view bad : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                     "ab\xc3", "\x80", "\xf0\x80\x80\x80", "\xe0\x9f\xbf"})
    EXPECT_THROW(Value{bad}, InvalidValue);
}

TEST(Value, BigIntegersOfAnySize) {
  const std::string digits(300, '7');
  EXPECT_EQ(Value::big_integer(digits).text(), digits);
  EXPECT_EQ(Value::big_integer("-" + digits).text(), "-" + digits);
  EXPECT_EQ(Value::big_integer("0007"), Value(7));
  EXPECT_EQ(Value::big_integer("-0"), Value(0));
  EXPECT_EQ(Value::big_integer("-000"), Value(0));
  for (const std::string_view bad : {"", "-", "+1", "1.0", " 1", "1 ", "0x1", "--1"})
    EXPECT_THROW(static_cast<void>(Value::big_integer(bad)), InvalidValue) << bad;
}

TEST(Value, Containers) {
  EXPECT_EQ(Value::tuple({}).text(), "()");
  EXPECT_EQ(Value::tuple({1}).text(), "(1,)");
  EXPECT_EQ(Value::tuple({1, "a"}).text(), "(1, \"a\")");
  EXPECT_EQ(Value::list({}).text(), "[]");
  EXPECT_EQ(Value::list({1, 2}).text(), "[1, 2]");
  EXPECT_EQ(Value::dict({}).text(), "{}");
  EXPECT_EQ(Value::dict({{"b", 1}, {"a", 2}}).text(), R"({"a": 2, "b": 1})");
  EXPECT_EQ(Value::set({}).text(), "set()");
  EXPECT_EQ(Value::set({3, 1, 3, 2}).text(), "{1, 2, 3}");
  EXPECT_EQ(Value::named("torch.float16").text(), "torch.float16()");
  EXPECT_EQ(Value::named("Config", {{"", 1}, {"num_warps", 4}}).text(), "Config(1, num_warps=4)");
}

TEST(Value, DictAndSetOrderIsBytewise) {
  EXPECT_EQ(Value::set({10, 9, "é", "z", -1}).text(), "{\"z\", \"é\", -1, 10, 9}");
}

TEST(Value, RepeatedDictKeysAreRefused) {
  EXPECT_THROW(static_cast<void>(Value::dict({{"a", 1}, {"a", 2}})), InvalidValue);
  EXPECT_NO_THROW(static_cast<void>(Value::dict({{1, 1}, {true, 2}, {1.0, 3}})));
}

TEST(Value, NamesThatCouldNotBeReadBackAreRefused) {
  for (const std::string_view bad :
       {"", "a b", "a(", "a=b", "a,b", "a\nb", "a\"", "{", "a:b", "\xff", "a'b", "a\x7f"})
    EXPECT_THROW(static_cast<void>(Value::named(bad)), InvalidValue) << bad;
  EXPECT_THROW(static_cast<void>(Value::named("set")), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value::named("n", {{"a b", 1}})), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value::named("n", {{"a", 1}, {"a", 2}})), InvalidValue);
  EXPECT_EQ(Value::named("f.<locals>.g").name(), "f.<locals>.g");
  EXPECT_EQ(Value::named("set", {{"", 1}}).kind(), Kind::named);
}

TEST(Value, Kinds) {
  EXPECT_EQ(Value().kind(), Kind::none);
  EXPECT_EQ(Value(true).kind(), Kind::boolean);
  EXPECT_EQ(Value(-5).kind(), Kind::integer);
  EXPECT_EQ(Value(-5.0).kind(), Kind::floating);
  EXPECT_EQ(Value(std::numeric_limits<double>::quiet_NaN()).kind(), Kind::floating);
  EXPECT_EQ(Value(-std::numeric_limits<double>::infinity()).kind(), Kind::floating);
  EXPECT_EQ(Value("x").kind(), Kind::string);
  EXPECT_EQ(Value::bytes("x").kind(), Kind::bytes);
  EXPECT_EQ(Value::tuple({}).kind(), Kind::tuple);
  EXPECT_EQ(Value::list({}).kind(), Kind::list);
  EXPECT_EQ(Value::dict({}).kind(), Kind::dict);
  EXPECT_EQ(Value::dict({{"a: b", 1}}).kind(), Kind::dict);
  EXPECT_EQ(Value::set({}).kind(), Kind::set);
  EXPECT_EQ(Value::set({"a: b"}).kind(), Kind::set);
  EXPECT_EQ(Value::set({Value::named("n", {{"f", 1}})}).kind(), Kind::set);
  EXPECT_EQ(Value::set({Value::dict({{1, 2}})}).kind(), Kind::set);
  EXPECT_EQ(Value::named("True").kind(), Kind::named);
  EXPECT_EQ(Value::named("b").kind(), Kind::named);
}

TEST(Value, ReadsBackWhatItHolds) {
  EXPECT_EQ(Value(42).as<int>(), 42);
  EXPECT_EQ(Value(-42).as<std::int8_t>(), -42);
  EXPECT_EQ(Value(std::numeric_limits<std::uint64_t>::max()).as<std::uint64_t>(),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(Value(true).as<bool>(), true);
  EXPECT_EQ(Value(0.25).as<float>(), 0.25F);
  EXPECT_EQ(Value(5e-324).as<double>(), 5e-324);
  EXPECT_EQ(Value("a\"\\\n\x01é").as<std::string>(), "a\"\\\n\x01é");
  EXPECT_EQ(Value::bytes("\xff\"\\\n").as<std::string>(), "\xff\"\\\n");
}

TEST(Value, ConvertsNothing) {
  EXPECT_THROW(static_cast<void>(Value(1).as<bool>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value(true).as<int>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value(1).as<double>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value(1.0).as<int>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value("1").as<int>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value(1).as<std::string>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value(300).as<std::int8_t>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value(-1).as<unsigned>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value(1e300).as<float>()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value::big_integer("99999999999999999999").as<std::int64_t>()),
               InvalidValue);
}

TEST(Value, RefusalsNameTheText) {
  try {
    static_cast<void>(Value("seven").as<int>());
    FAIL() << "a str was read as an int";
  } catch (const InvalidValue& error) {
    EXPECT_NE(std::string_view(error.what()).find("\"seven\" is a str, not an int"),
              std::string_view::npos)
        << error.what();
  }
}

TEST(Value, ContainersAreWalked) {
  const Value tuple = Value::tuple({"a, b", Value::list({1, "]"}), Value::dict({{"k: v", "}"}})});
  const auto items = tuple.items();
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0], Value("a, b"));
  EXPECT_EQ(items[1].items()[1], Value("]"));
  const auto entries = items[2].entries();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].first, Value("k: v"));
  EXPECT_EQ(entries[0].second, Value("}"));
  EXPECT_EQ(Value::tuple({7}).items().size(), 1U);
  EXPECT_TRUE(Value::set({}).items().empty());
  EXPECT_TRUE(Value::tuple({}).items().empty());
  EXPECT_TRUE(Value::dict({}).entries().empty());
}

TEST(Value, NamedFieldsAreWalked) {
  const Value v = Value::named("m.C", {{"", Value("x=1")}, {"y", Value::named("z", {{"w", 2}})}});
  EXPECT_EQ(v.name(), "m.C");
  const auto fields = v.fields();
  ASSERT_EQ(fields.size(), 2U);
  EXPECT_EQ(fields[0].first, "");
  EXPECT_EQ(fields[0].second, Value("x=1"));
  EXPECT_EQ(fields[1].first, "y");
  EXPECT_EQ(fields[1].second.fields()[0].second, Value(2));
  EXPECT_TRUE(Value::named("e").fields().empty());
}

TEST(Value, WalkingTheWrongKindIsRefused) {
  EXPECT_THROW(static_cast<void>(Value(1).items()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value::dict({}).items()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value::set({1}).entries()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value::set({}).name()), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value("a()").fields()), InvalidValue);
}

TEST(ValueParse, AcceptsCanonicalText) {
  for (const std::string_view text : {"None",
                                      "True",
                                      "False",
                                      "0",
                                      "-1",
                                      "123456789012345678901234567890",
                                      "1.0",
                                      "-0.0",
                                      "1e+16",
                                      "nan",
                                      "inf",
                                      "-inf",
                                      "\"\"",
                                      R"("\u0000\n\"\\")",
                                      "\"é\"",
                                      "b\"\"",
                                      R"(b"\x00~\"")",
                                      "()",
                                      "(1,)",
                                      "(1, 2)",
                                      "[]",
                                      "[1]",
                                      "[1, [2]]",
                                      "{}",
                                      "{1: 2, 3: 4}",
                                      "set()",
                                      "{1}",
                                      "{1, 2}",
                                      "f()",
                                      "a.b(1, x=2)",
                                      "b()",
                                      "None()",
                                      "f(set())",
                                      "é(1)"})
    EXPECT_EQ(Value::parse(text).text(), text);
}

TEST(ValueParse, RefusesOtherSpellings) {
  for (const std::string_view text : {"",
                                      " ",
                                      " 1",
                                      "1 ",
                                      "01",
                                      "-0",
                                      "+1",
                                      "1.",
                                      ".5",
                                      "1.00",
                                      "1e16",
                                      "1E+16",
                                      "100000.0",
                                      "0x10",
                                      "1_000",
                                      "NaN",
                                      "-nan",
                                      "Inf",
                                      "infinity",
                                      "true",
                                      "none",
                                      "'a'",
                                      "\"a",
                                      "a\"",
                                      R"("\x41")",
                                      R"("\u0041")",
                                      R"("\u000a")",
                                      R"("\u00e9")",
                                      R"("\u001F")",
                                      R"("\/")",
                                      "\"\t\"",
                                      "\"\x7f\"",
                                      "\"\xff\"",
                                      "\"\\",
                                      "b'a'",
                                      "b\"\xc3\xa9\"",
                                      R"(b"\n")",
                                      R"(b"\x41")",
                                      R"(b"\xFF")",
                                      R"(b"\x0)",
                                      "(1)",
                                      "(1,2)",
                                      "(1, 2,)",
                                      "(,)",
                                      "(1,",
                                      "( )",
                                      "[1,]",
                                      "[1 , 2]",
                                      "[1",
                                      "[",
                                      "]",
                                      "{2, 1}",
                                      "{1, 1}",
                                      "{1: 2, 1: 3}",
                                      "{3: 4, 1: 2}",
                                      "{1:2}",
                                      "{1: }",
                                      "{1: 2, 3}",
                                      "{1, 2: 3}",
                                      "{1",
                                      "{,}",
                                      "set(",
                                      "set( )",
                                      "f(",
                                      "f(1",
                                      "f(1,)",
                                      "f(a=1, a=2)",
                                      "f(=1)",
                                      "f(a=)",
                                      "f (1)",
                                      "f",
                                      "(f)",
                                      "1()x",
                                      "1, 2",
                                      "f(a = 1)",
                                      "\xff()",
                                      "f(\xff=1)",
                                      "1e999",
                                      "-",
                                      "None None",
                                      "[1, 2",
                                      "{\"a\": 1,}",
                                      "\"a\"\"b\""})
    EXPECT_NE(refusal(text), "accepted") << text;
}

TEST(ValueParse, TellsTheOffset) {
  EXPECT_NE(refusal("[1, 02]").find("offset 4"), std::string::npos) << refusal("[1, 02]");
  EXPECT_NE(refusal("{2, 1}").find("offset 4"), std::string::npos) << refusal("{2, 1}");
  EXPECT_NE(refusal("1 ").find("offset 1"), std::string::npos) << refusal("1 ");
  EXPECT_NE(refusal("\"ab").find("offset 3"), std::string::npos) << refusal("\"ab");
}

TEST(ValueParse, NestingIsBounded) {
  EXPECT_EQ(Value::parse(nested(200)).text(), nested(200));
  EXPECT_NE(refusal(nested(201)).find("200"), std::string::npos);
  EXPECT_NE(refusal(std::string(10'000'000, '[')), "accepted");
  EXPECT_NE(refusal(std::string(5'000'000, '{')), "accepted");
  std::string names;
  for (int i = 0; i < 1'000'000; ++i) names += "f(";
  EXPECT_NE(refusal(names), "accepted");
}

TEST(ValueParse, WhatCannotBeReadIsNotWritten) {
  Value v = 1;
  for (int i = 0; i < 200; ++i) v = Value::list({v});
  EXPECT_EQ(Value::parse(v.text()), v);
  EXPECT_THROW(static_cast<void>(Value::list({v})), InvalidValue);
  EXPECT_THROW(static_cast<void>(Value::named("f", {{"", v}})), InvalidValue);
  EXPECT_NO_THROW(static_cast<void>(Value::list({Value(std::string(1000, '['))})));
}

enum class Colour : std::uint8_t { red = 3 };
struct Blocking {
  int block = 64;
  bool fast = true;
  static constexpr auto tuned = std::tuple(disttune::field("BLOCK", &Blocking::block),
                                           disttune::field("FAST", &Blocking::fast));
};
struct Shape {
  int rows;
  friend void disttune_describe(TextWriter& w, const Shape& s) {
    w.begin_named("Shape");
    w.field("rows");
    w.value(s.rows);
    w.end();
  }
};

TEST(Describe, CppObjects) {
  EXPECT_EQ(describe(true), Value(true));
  EXPECT_EQ(describe(std::uint8_t{7}), Value(7));
  EXPECT_EQ(describe(1.5F), Value(1.5));
  EXPECT_EQ(describe("abc"), Value("abc"));
  EXPECT_EQ(describe(std::string("abc")), Value("abc"));
  EXPECT_EQ(describe(Colour::red), Value(3));
  EXPECT_EQ(describe(std::tuple(1, "a", 2.0)).text(), R"((1, "a", 2.0))");
  EXPECT_EQ(describe(std::pair(1, 2)).text(), "(1, 2)");
  EXPECT_EQ(describe(std::vector<int>{1, 2}).text(), "[1, 2]");
  EXPECT_EQ(describe(std::vector<bool>{true, false}).text(), "[True, False]");
  EXPECT_EQ(describe(Blocking{}).text(), R"({"BLOCK": 64, "FAST": True})");
  EXPECT_EQ(describe(Shape{4}).text(), "Shape(rows=4)");
  EXPECT_EQ(describe(std::vector<Shape>{{1}, {2}}).text(), "[Shape(rows=1), Shape(rows=2)]");
}

}  // namespace
