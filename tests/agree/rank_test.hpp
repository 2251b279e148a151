// A cold call as the session makes it, with a scripted measurement in place of a device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "agree/agreement.hpp"
#include "disttune/testing/ranks.hpp"

namespace disttune::agree::test {

inline constexpr std::chrono::seconds k_timeout{600};

inline Hello hello(int key = 8, std::vector<Value> candidates = {Value("a"), Value("b")}) {
  Hello h;
  h.function = "gemm";
  h.identity = Value::dict({{"name", "gemm"}, {"version", "1"}});
  h.key = Value::tuple({key, "float16"});
  h.policy = Value::dict({{"strategy", "fixed"}, {"warmup", 5}, {"repeat", 10}});
  h.candidates = Value::list(candidates);
  h.store_id = 7;
  return h;
}

/// All errors are of type E and have the same text, which is returned.
template <class E>
std::string same_error(const std::vector<std::exception_ptr>& ends,
                       const std::vector<int>& except = {}) {
  std::string text;
  for (int r = 0; r < static_cast<int>(ends.size()); ++r) {
    if (std::find(except.begin(), except.end(), r) != except.end()) continue;
    const auto& end = ends[static_cast<std::size_t>(r)];
    EXPECT_TRUE(end) << "rank " << r << " ended well";
    if (!end) continue;
    EXPECT_THROW(std::rethrow_exception(end), E) << testing::what(end);
    if (text.empty()) text = testing::what(end);
    EXPECT_EQ(text, testing::what(end)) << "rank " << r;
  }
  return text;
}

inline void expect_all_well(const std::vector<std::exception_ptr>& ends) {
  for (const auto& end : ends) EXPECT_EQ("", testing::what(end));
}

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace disttune::agree::test
