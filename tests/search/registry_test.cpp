#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "disttune/selector.hpp"
#include "search/fixed.hpp"

namespace {

using namespace disttune;

std::string refusal(std::string_view strategy) {
  try {
    static_cast<void>(make_selector(strategy, Problem{.candidates = 1}));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Registry, KnowsItsOwn) {
  const auto names = strategies();
  for (const char* name : {"fixed", "race"}) {
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
    EXPECT_NE(make_selector(name, Problem{.candidates = 1}), nullptr);
  }
}

TEST(Registry, AnUnknownNameListsTheKnownOnes) {
  const std::string text = refusal("annealing");
  EXPECT_NE(text.find("'annealing'"), std::string::npos) << text;
  EXPECT_NE(text.find("fixed, race"), std::string::npos) << text;
  EXPECT_EQ(text.find("did you mean"), std::string::npos) << text;
}

TEST(Registry, ACloseNameIsSuggested) {
  EXPECT_NE(refusal("fixd").find("did you mean 'fixed'"), std::string::npos) << refusal("fixd");
  EXPECT_NE(refusal("Race").find("did you mean 'race'"), std::string::npos) << refusal("Race");
  EXPECT_NE(refusal(""), "accepted");
}

TEST(Registry, ALongNameDoesNotFillTheMessage) {
  EXPECT_LT(refusal(std::string(100000, 'x')).size(), 400U);
}

TEST(Registry, UsersAddStrategies) {
  register_strategy("registry_test_own", search::make_fixed);
  EXPECT_EQ(make_selector("registry_test_own", Problem{.candidates = 3})->next().size(), 3U);
  EXPECT_THROW(register_strategy("registry_test_own", search::make_fixed), std::invalid_argument);
  EXPECT_THROW(register_strategy("fixed", search::make_fixed), std::invalid_argument);
  EXPECT_THROW(register_strategy("", search::make_fixed), std::invalid_argument);
  EXPECT_THROW(register_strategy("registry_test_empty", nullptr), std::invalid_argument);
}

TEST(Registry, AFactoryThatMakesNothingIsAnError) {
  register_strategy("registry_test_null", [](const Problem&) { return nullptr; });
  EXPECT_THROW(static_cast<void>(make_selector("registry_test_null", Problem{.candidates = 1})),
               std::logic_error);
}

TEST(Registry, AProblemMustMakeSense) {
  for (const char* name : {"fixed", "race"}) {
    EXPECT_THROW(static_cast<void>(make_selector(name, Problem{})), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(make_selector(name, Problem{.candidates = 2, .timed = 0})),
                 std::invalid_argument);
  }
}

TEST(Registry, ThreadsMayUseItAtOnce) {
  std::vector<std::jthread> threads;
  std::atomic<int> added = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&added] {
      for (int i = 0; i < 50; ++i) {
        try {
          register_strategy("registry_test_" + std::to_string(i), search::make_fixed);
          ++added;
        } catch (const std::invalid_argument&) {
          continue;  // another thread was first
        }
        static_cast<void>(make_selector("fixed", Problem{.candidates = 1}));
        static_cast<void>(strategies());
      }
    });
  threads.clear();
  EXPECT_EQ(added, 50);
}

}  // namespace
