#include "core/text.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace disttune::core;

/// Digits as 9, so that a time's shape can be compared.
std::string shape(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c >= '0' && c <= '9'; }, '9');
  return text;
}

TEST(Text, Times) {
  EXPECT_EQ(shape(utc_now()), "9999-99-99T99:99:99Z");
  EXPECT_EQ(shape(utc_stamp()), "99999999T999999.999999Z");
  EXPECT_TRUE(utc_now().starts_with("20"));
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
    EXPECT_NE(s.front(), '.');
    EXPECT_EQ(s.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-"),
              std::string::npos)
        << s;
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
