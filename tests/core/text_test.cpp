#include "core/text.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace disttune::core;

TEST(Text, Times) {
  EXPECT_TRUE(std::regex_match(utc_now(), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")));
  EXPECT_TRUE(std::regex_match(utc_stamp(), std::regex(R"(\d{8}T\d{6}\.\d{6}Z)")));
}

TEST(Text, HostNameIsThere) { EXPECT_FALSE(host_name().empty()); }

TEST(Text, SafeNamesStayAsTheyAre) {
  for (const std::string& name :
       std::vector<std::string>{"gemm", "a.b-c_d", "X9", std::string(100, 'n')})
    EXPECT_EQ(safe_name(name), name);
}

TEST(Text, UnsafeNamesBecomeSafeAndStayApart) {
  const std::set<std::string> names = {"",
                                       ".",
                                       "..",
                                       ".hidden",
                                       "../../etc/passwd",
                                       "a/b",
                                       "a\\b",
                                       "a b",
                                       "a_b/",
                                       "f.<locals>.g",
                                       std::string("a\0b", 3),
                                       "中",
                                       "é",
                                       std::string(101, 'n'),
                                       std::string(102, 'n'),
                                       std::string(5000, 'n')};
  std::set<std::string> safe;
  for (const std::string& name : names) {
    const std::string s = safe_name(name);
    EXPECT_TRUE(std::regex_match(s, std::regex("[A-Za-z0-9_-][A-Za-z0-9._-]*"))) << s;
    EXPECT_LE(s.size(), 100U);
    EXPECT_NE(s, name);
    EXPECT_TRUE(safe.insert(s).second) << s;
  }
}

TEST(Text, NobodyCanTakeAChangedNamesFolder) {
  const std::string changed = safe_name("a/b");
  EXPECT_NE(safe_name(changed), changed);
}

TEST(Text, Utf8) {
  for (const std::string_view good : {"", "abc", "é", "中", "😀", "\xef\xbf\xbf", "\xed\x9f\xbf",
                                      "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "\xc2\x80"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const std::string_view bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe4\xb8", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
        "a\xc3(", "\xf0\x9f\x98"})
    EXPECT_FALSE(is_utf8(bad));
}

}  // namespace
