#include "disttune/config.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

using disttune::Config;
using disttune::Space;
using disttune::Value;

namespace {

struct Tile {
  int block = 256;
  int warps = 4;
  std::string mode = "a";
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Tile::block),
                                                 disttune::field("WARPS", &Tile::warps),
                                                 disttune::field("MODE", &Tile::mode));
};

TEST(Config, IdentityIgnoresTheOrder) {
  const Config a{{"BLOCK", 256}, {"WARPS", 4}};
  const Config b{{"WARPS", 4}, {"BLOCK", 256}};
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.identity().text(), R"({"BLOCK": 256, "WARPS": 4})");
  EXPECT_EQ(a.display(), "BLOCK=256, WARPS=4");
  EXPECT_EQ(b.display(), "WARPS=4, BLOCK=256");
}

TEST(Config, IdentityTellsTypes) {
  EXPECT_NE((Config{{"X", 1}}), (Config{{"X", true}}));
  EXPECT_NE((Config{{"X", 1}}), (Config{{"X", 1.0}}));
  EXPECT_NE((Config{{"X", 1}}), (Config{{"X", "1"}}));
  EXPECT_EQ(Config().identity(), Value::dict({}));
}

TEST(Config, AllAtOnceIsTheSameAsOneByOne) {
  EXPECT_EQ(Config::of({{"WARPS", 4}, {"BLOCK", 256}}), (Config{{"BLOCK", 256}, {"WARPS", 4}}));
  EXPECT_EQ(Config::of({}), Config());
  EXPECT_THROW((void)Config::of({{"X", 1}, {"X", 2}}), std::invalid_argument);
}

TEST(Config, ANameIsThereOnce) {
  Config c{{"X", 1}};
  EXPECT_THROW(c.set("X", 2), std::invalid_argument);
  EXPECT_EQ(c.get<int>("X"), 1);
  EXPECT_EQ(c.entries().size(), 1U);
}

TEST(Config, ABadNameChangesNothing) {
  Config c{{"X", 1}};
  EXPECT_THROW(c.set("\xff", 2), disttune::InvalidValue);
  EXPECT_EQ(c, (Config{{"X", 1}}));
  EXPECT_EQ(c.entries().size(), 1U);
}

TEST(Config, AMissingNameListsWhatThereIs) {
  const Config c{{"BLOCK", 256}, {"WARPS", 4}};
  EXPECT_EQ(c.find("block"), nullptr);
  try {
    static_cast<void>(c.get<int>("block"));
    FAIL() << "found a name that is not there";
  } catch (const disttune::Error& error) {
    EXPECT_NE(std::string(error.what()).find("BLOCK, WARPS"), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(c.get<bool>("WARPS")), disttune::InvalidValue);
}

TEST(Config, OfAStruct) {
  EXPECT_EQ(disttune::to_config(Tile{.block = 8}).display(), "BLOCK=8, WARPS=4, MODE=\"a\"");
}

TEST(Space, GridOfNames) {
  const Space<Config> space =
      disttune::grid("BLOCK", {128, 256}) * disttune::grid("WARPS", {4, 8, 16});
  ASSERT_EQ(space.size(), 6U);
  EXPECT_EQ(space[0].display(), "BLOCK=128, WARPS=4");
  EXPECT_EQ(space[1].display(), "BLOCK=128, WARPS=8");
  EXPECT_EQ(space[5].display(), "BLOCK=256, WARPS=16");
  EXPECT_TRUE(disttune::grid("BLOCK", {}).empty());
}

TEST(Space, AProductOfTheSameNameIsRefused) {
  EXPECT_THROW(static_cast<void>(disttune::grid("A", {1}) * disttune::grid("A", {2})),
               std::invalid_argument);
  EXPECT_THROW(
      static_cast<void>(disttune::grid(&Tile::block, {1}) * disttune::grid(&Tile::block, {2})),
      std::invalid_argument);
}

struct Many {
#define DISTTUNE_EIGHT(x) int x##0, x##1, x##2, x##3, x##4, x##5, x##6, x##7
  DISTTUNE_EIGHT(a);
  DISTTUNE_EIGHT(b);
  DISTTUNE_EIGHT(c);
  DISTTUNE_EIGHT(d);
  DISTTUNE_EIGHT(e);
  DISTTUNE_EIGHT(f);
  DISTTUNE_EIGHT(g);
  DISTTUNE_EIGHT(h);
  int last;
#undef DISTTUNE_EIGHT
#define DISTTUNE_ONE(x) disttune::field(#x, &Many::x)
#define DISTTUNE_EIGHT(x)                                                         \
  DISTTUNE_ONE(x##0), DISTTUNE_ONE(x##1), DISTTUNE_ONE(x##2), DISTTUNE_ONE(x##3), \
      DISTTUNE_ONE(x##4), DISTTUNE_ONE(x##5), DISTTUNE_ONE(x##6), DISTTUNE_ONE(x##7)
  static constexpr auto tuned = disttune::fields(
      DISTTUNE_EIGHT(a), DISTTUNE_EIGHT(b), DISTTUNE_EIGHT(c), DISTTUNE_EIGHT(d), DISTTUNE_EIGHT(e),
      DISTTUNE_EIGHT(f), DISTTUNE_EIGHT(g), DISTTUNE_EIGHT(h), DISTTUNE_ONE(last));
#undef DISTTUNE_EIGHT
#undef DISTTUNE_ONE
};

TEST(Space, AConfigurationMayHaveMoreThan64Fields) {
  const auto space = disttune::grid(&Many::a0, {1, 2}) * disttune::grid(&Many::last, {3, 4});
  ASSERT_EQ(space.size(), 4U);
  EXPECT_EQ(space[3].a0, 2);
  EXPECT_EQ(space[3].last, 4);
  EXPECT_THROW(static_cast<void>(space * disttune::grid(&Many::last, {5})), std::invalid_argument);
}

TEST(Space, GridOfMembers) {
  const auto space =
      (disttune::grid(&Tile::block, {256, 512}) * disttune::grid(&Tile::warps, {4, 8}))
          .where([](const Tile& t) { return t.block * t.warps < 4096; });
  ASSERT_EQ(space.size(), 3U);
  EXPECT_EQ(space[2].block, 512);
  EXPECT_EQ(space[2].warps, 4);
  EXPECT_EQ(space[2].mode, "a");
}

TEST(Space, SumKeepsTheOrder) {
  const auto space = Space<Config>{Config{{"A", 1}}} + disttune::grid("A", {2, 3});
  ASSERT_EQ(space.size(), 3U);
  EXPECT_EQ(space[0].display(), "A=1");
  EXPECT_EQ(space[2].display(), "A=3");
}

TEST(WithConstant, PicksTheCompiledValue) {
  const auto twice = [](auto n) { return 2 * decltype(n)::value; };
  EXPECT_EQ((disttune::with_constant<4, 8>(8, twice)), 16);
  EXPECT_THROW((disttune::with_constant<4, 8>(16, twice)), disttune::Error);
}

}  // namespace
