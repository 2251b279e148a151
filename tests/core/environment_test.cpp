#include "core/environment.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace disttune::core;

std::string full(std::string_view name) {
  return std::string(k_environment_prefix) + std::string(name);
}

/// Starts from an empty environment and puts the old one back.
class EnvironmentTest : public testing::Test {
 protected:
  EnvironmentTest() {
    for (const Variable& v : variables()) take(full(v.name));
    take("HOME");
    setenv("HOME", "/users/me", 1);
  }
  ~EnvironmentTest() override {
    for (const auto& [name, value] : m_before)
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  static void set(std::string_view name, const char* value) {
    setenv(full(name).c_str(), value, 1);
  }
  static std::string refusal() {
    try {
      static_cast<void>(Environment::read());
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  }

 private:
  void take(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    m_before[name] = value ? std::optional<std::string>(value) : std::nullopt;
    unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> m_before;
};

TEST_F(EnvironmentTest, TheTableHasEveryName) {
  std::set<std::string_view> names;
  for (const Variable& v : variables()) {
    EXPECT_TRUE(names.insert(v.name).second) << v.name;
    EXPECT_FALSE(v.type.empty());
    EXPECT_FALSE(v.meaning.empty());
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"ALWAYS_TUNE", "VERSION_CHECK", "HOME", "LAYERS",
                                               "MODE", "STRATEGY", "WARMUP", "REPEAT", "TIMER",
                                               "CACHE", "BUDGET", "TIMEOUT", "WORKERS", "PROGRESS",
                                               "LOG_LEVEL", "CONTEXT_LOGS", "RETRY_CRASHED"}));
}

TEST_F(EnvironmentTest, Defaults) {
  const Environment e = Environment::read();
  EXPECT_FALSE(e.always_tune);
  EXPECT_FALSE(e.version_check);
  EXPECT_FALSE(e.retry_crashed);
  EXPECT_EQ(e.home, "/users/me/.triton_dist/autotune");
  EXPECT_TRUE(e.layers.empty());
  EXPECT_EQ(e.mode, Mode::tune);
  EXPECT_EQ(e.strategy, "fixed");
  EXPECT_EQ(e.warmup, std::nullopt);
  EXPECT_EQ(e.repeat, std::nullopt);
  EXPECT_EQ(e.timer, "auto");
  EXPECT_EQ(e.cache, "");
  EXPECT_EQ(e.budget_seconds, std::nullopt);
  EXPECT_EQ(e.timeout_seconds, 600);
  EXPECT_EQ(e.workers, 0);
  EXPECT_EQ(e.progress, "auto");
  EXPECT_EQ(e.log_level, "warning");
  EXPECT_EQ(e.context_logs, "./.autotune_logs");
}

TEST_F(EnvironmentTest, Flags) {
  for (const char* yes : {"1", "true", "TRUE", "on", "On", "yes", " 1 "}) {
    set("ALWAYS_TUNE", yes);
    EXPECT_TRUE(Environment::read().always_tune) << yes;
  }
  for (const char* no : {"0", "false", "False", "off", "OFF", "no", "", "  "}) {
    set("ALWAYS_TUNE", no);
    EXPECT_FALSE(Environment::read().always_tune) << no;
  }
  for (const char* bad : {"2", "ja", "-1", "truee"}) {
    set("ALWAYS_TUNE", bad);
    EXPECT_NE(refusal(), "accepted") << bad;
  }
}

TEST_F(EnvironmentTest, HomeFallsBack) {
  set("HOME", "/store");
  EXPECT_EQ(Environment::read().home, "/store");
  set("HOME", "~/store");
  EXPECT_EQ(Environment::read().home, "/users/me/store");
  set("HOME", "");
  EXPECT_EQ(Environment::read().home, "/users/me/.triton_dist/autotune");
  unsetenv("HOME");
  const auto from_passwd = Environment::read().home;
  EXPECT_TRUE(!from_passwd || from_passwd->filename() == "autotune");
}

TEST_F(EnvironmentTest, LayersAreAList) {
  set("LAYERS", "/a::/b/c:~/d:");
  const auto layers = Environment::read().layers;
  ASSERT_EQ(layers.size(), 3U);
  EXPECT_EQ(layers[0], "/a");
  EXPECT_EQ(layers[1], "/b/c");
  EXPECT_EQ(layers[2], "/users/me/d");
}

TEST_F(EnvironmentTest, Modes) {
  for (const auto& [text, mode] : std::map<const char*, Mode>{{"tune", Mode::tune},
                                                              {"cached", Mode::cached},
                                                              {"STRICT", Mode::strict},
                                                              {"off", Mode::off},
                                                              {"first", Mode::first}}) {
    set("MODE", text);
    EXPECT_EQ(Environment::read().mode, mode) << text;
  }
}

TEST_F(EnvironmentTest, Numbers) {
  set("WARMUP", "0");
  set("REPEAT", "1");
  set("BUDGET", "0.5");
  set("TIMEOUT", "30");
  set("WORKERS", "8");
  const Environment e = Environment::read();
  EXPECT_EQ(e.warmup, 0);
  EXPECT_EQ(e.repeat, 1);
  EXPECT_EQ(e.budget_seconds, 0.5);
  EXPECT_EQ(e.timeout_seconds, 30);
  EXPECT_EQ(e.workers, 8);
}

TEST_F(EnvironmentTest, BadValuesNameVariableValueAndWhatIsAccepted) {
  const std::map<std::string, std::vector<const char*>> bad = {
      {"MODE", {"tuned", "1"}},
      {"WARMUP", {"-1", "x", "1.5", "70000", "5 5"}},
      {"REPEAT", {"0", "-3", "ten"}},
      {"TIMER", {"cpu"}},
      {"CACHE", {"warm"}},
      {"BUDGET", {"0", "-1", "nan", "inf", "soon", "1e10"}},
      {"TIMEOUT", {"0", "-600", "10s"}},
      {"WORKERS", {"-1", "many"}},
      {"PROGRESS", {"maybe"}},
      {"LOG_LEVEL", {"loud"}},
      {"VERSION_CHECK", {"perhaps"}},
      {"RETRY_CRASHED", {"3"}}};
  for (const auto& [name, values] : bad) {
    for (const char* value : values) {
      set(name, value);
      const std::string text = refusal();
      EXPECT_NE(text.find(full(name)), std::string::npos) << text;
      EXPECT_NE(text.find(std::string("'") + value + "'"), std::string::npos) << text;
      EXPECT_NE(text.find("accepted: "), std::string::npos) << text;
    }
    unsetenv(full(name).c_str());
  }
}

TEST_F(EnvironmentTest, EveryWordOfTheTableIsAccepted) {
  for (const Variable& v : variables()) {
    std::string words(v.type);
    if (!words.starts_with("one of ")) continue;
    words = words.substr(7) + ", ";
    for (std::size_t end = 0; (end = words.find(", ")) != std::string::npos;
         words = words.substr(end + 2)) {
      set(v.name, words.substr(0, end).c_str());
      EXPECT_EQ(refusal(), "accepted") << v.name << " " << words.substr(0, end);
    }
    unsetenv(full(v.name).c_str());
  }
}

TEST_F(EnvironmentTest, DescriptionShowsEveryVariableAndErrors) {
  set("MODE", "strict");
  set("REPEAT", "zero");
  const std::string text = describe_environment();
  for (const Variable& v : variables()) EXPECT_NE(text.find(full(v.name)), std::string::npos);
  EXPECT_NE(text.find("strict"), std::string::npos);
  EXPECT_NE(text.find("/users/me/.triton_dist/autotune"), std::string::npos);
  EXPECT_NE(text.find("'zero' cannot be used"), std::string::npos) << text;
}

}  // namespace
