#include "disttune/record.hpp"

#include <gtest/gtest.h>

#include <string>

using disttune::Config;
using disttune::Explanation;
using disttune::RecordKey;
using disttune::Status;
using disttune::Value;

namespace {

TEST(Record, StatusesHaveNames) {
  EXPECT_EQ(to_string(Status::ok), "ok");
  EXPECT_EQ(to_string(Status::out_of_resources), "out_of_resources");
  EXPECT_EQ(to_string(Status::crashed), "crashed");
  for (int i = 0; i <= static_cast<int>(Status::crashed); ++i) {
    const auto status = static_cast<Status>(i);
    EXPECT_EQ(disttune::parse_status(to_string(status)), status);
  }
  EXPECT_EQ(disttune::parse_status("OK"), std::nullopt);
  EXPECT_EQ(disttune::parse_status(""), std::nullopt);
}

TEST(Record, EveryPartOfTheKeyCounts) {
  const RecordKey key;
  const std::string text(key.text().text());
  EXPECT_EQ(Value::parse(text), key.text());
  const auto changed = [&](Value RecordKey::*part) {
    RecordKey other = key;
    other.*part = "changed";
    EXPECT_NE(other.text(), key.text());
  };
  changed(&RecordKey::identity);
  changed(&RecordKey::key);
  changed(&RecordKey::hardware);
  changed(&RecordKey::group);
  changed(&RecordKey::policy);
  changed(&RecordKey::overwritten);
}

TEST(Record, ExplanationSaysAll) {
  Explanation e;
  e.source = "none";
  e.config = Config{{"BLOCK", 256}};
  e.file = "/store/f/x.json";
  e.miss_reason = "no record";
  e.differences = {"hardware: A → B"};
  const std::string text = e.text();
  for (const char* part : {"none", "BLOCK=256", "/store/f/x.json", "no record", "hardware: A → B"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
