#include <gtest/gtest.h>

#include <stdexcept>

#include "disttune/value.hpp"

using disttune::InvalidValue;
using disttune::TextWriter;
using disttune::Value;

namespace {

TEST(TextWriter, WritesWhatTheFactoriesMake) {
  TextWriter w;
  w.begin_dict();
  w.value("b");
  w.begin_list();
  w.value(1);
  w.begin_tuple();
  w.value(2);
  w.end();
  w.end();
  w.value("a");
  w.begin_set();
  w.value(2);
  w.value(1);
  w.end();
  w.value("n");
  w.begin_named("C");
  w.value(0);
  w.field("x");
  w.begin_named("E");
  w.end();
  w.end();
  w.end();
  EXPECT_EQ(w.take().text(), R"({"a": {1, 2}, "b": [1, (2,)], "n": C(0, x=E())})");
}

TEST(TextWriter, IsEmptyAgainAfterTake) {
  TextWriter w;
  w.value(1);
  EXPECT_EQ(w.take(), Value(1));
  w.value(2);
  EXPECT_EQ(w.take(), Value(2));
  EXPECT_THROW(static_cast<void>(w.take()), std::logic_error);
}

TEST(TextWriter, MisuseIsALogicError) {
  const auto misuse = [](auto use) {
    TextWriter w;
    EXPECT_THROW(use(w), std::logic_error);
  };
  misuse([](TextWriter& w) { static_cast<void>(w.take()); });
  misuse([](TextWriter& w) { w.end(); });
  misuse([](TextWriter& w) {
    w.begin_list();
    static_cast<void>(w.take());
  });
  misuse([](TextWriter& w) {
    w.value(1);
    w.value(2);
  });
  misuse([](TextWriter& w) {
    w.value(1);
    w.begin_list();
    w.end();
  });
  misuse([](TextWriter& w) {
    w.begin_dict();
    w.value(1);
    w.end();
  });
  misuse([](TextWriter& w) {
    w.begin_list();
    w.field("x");
  });
  misuse([](TextWriter& w) {
    w.begin_named("f");
    w.field("x");
    w.end();
  });
  misuse([](TextWriter& w) {
    w.begin_named("f");
    w.field("x");
    w.field("y");
  });
}

TEST(TextWriter, BadContentIsAnInvalidValue) {
  TextWriter w;
  w.begin_dict();
  for (int i = 0; i < 4; ++i) w.value(1);
  EXPECT_THROW(w.end(), InvalidValue);
}

}  // namespace
