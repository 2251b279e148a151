#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "store/differences.hpp"
#include "support.hpp"

namespace disttune::store {
namespace {

using namespace testing;
using Lines = std::vector<std::string>;

TEST(Differences, NameTheFieldExactly) {
  const Value stored = make_key().text();
  RecordKey key = make_key(256);
  EXPECT_EQ(key_differences(stored, key.text()), Lines{"key[0]: (128,) → (256,)"});
  key = make_key();
  key.hardware = Value::dict({{"name", "H200"}, {"memory_gib", 80}, {"units", 132}});
  EXPECT_EQ(key_differences(stored, key.text()), Lines{"hardware.memory_gib: 141 → 80"});
  key.hardware = Value::dict({{"name", "H200"}, {"units", 132}, {"mig", "1g.18gb"}});
  EXPECT_EQ(key_differences(stored, key.text()),
            (Lines{"hardware.memory_gib: 141 → absent", "hardware.mig: absent → \"1g.18gb\""}));
  key = make_key();
  key.group = Value::dict({{"size", 2}});
  EXPECT_EQ(key_differences(stored, key.text()), Lines{"group: None → {\"size\": 2}"});
  EXPECT_TRUE(key_differences(stored, stored).empty());
}

TEST(Differences, DigestsAndOtherLongTextsAreSaidToHaveChanged) {
  RecordKey a = make_key();
  RecordKey b = make_key();
  a.identity = Value::dict({{"source", std::string(64, 'a')}, {"version", "1"}});
  b.identity = Value::dict({{"source", std::string(64, 'b')}, {"version", "2"}});
  EXPECT_EQ(key_differences(a.text(), b.text()),
            (Lines{"identity.source: changed", "identity.version: \"1\" → \"2\""}));
}

TEST(Differences, ShapesReadWholeDeeperThingsByTheirPlace) {
  RecordKey a = make_key();
  RecordKey b = make_key();
  const auto operand = [](int m, const char* dtype) {
    return Value::tuple({Value::tuple({m, 64}), Value::tuple({64, 1}), Value::named(dtype)});
  };
  a.key = Value::tuple({operand(8, "torch.float16"), operand(8, "torch.float16"), Value(1)});
  b.key = Value::tuple({operand(8, "torch.float16"), operand(9, "torch.bfloat16"), Value(1.0)});
  EXPECT_EQ(key_differences(a.text(), b.text()),
            (Lines{"key[1][0]: (8, 64) → (9, 64)", "key[1][2]: torch.float16() → torch.bfloat16()",
                   "key[2]: 1 → 1.0"}));
  a.key = Value::tuple({1, 2, 3});
  b.key = Value::tuple({1, 5, 3});
  EXPECT_EQ(key_differences(a.text(), b.text()), Lines{"key[1]: 2 → 5"});
  b.key = Value::tuple({1, 2});
  EXPECT_EQ(key_differences(a.text(), b.text()), Lines{"key: (1, 2, 3) → (1, 2)"});
  b.key = Value::list({1, 2, 3});
  EXPECT_EQ(key_differences(a.text(), b.text()), Lines{"key: (1, 2, 3) → [1, 2, 3]"});
  a.key = Value::named("Shape", {{"m", Value(1)}, {"n", Value(2)}});
  b.key = Value::named("Shape", {{"m", Value(1)}, {"n", Value(3)}});
  EXPECT_EQ(key_differences(a.text(), b.text()), Lines{"key.n: 2 → 3"});
}

TEST(Differences, S13_DepsDifferOnlyWhereBothAreKnown) {
  const Value stored =
      Value::dict({{"triton", "3.5"},
                   {"driver", Value()},
                   {"cann", "8.0"},
                   {"torch", "2.13"},
                   {"libraries", Value::dict({{"nccl", "2.20"}, {"nvshmem", Value()}})}});
  const Value now = Value::dict({{"triton", "3.6"},
                                 {"driver", "570"},
                                 {"torch", "2.13"},
                                 {"python", "3.11"},
                                 {"libraries", Value::dict({{"nccl", "2.21"}, {"nvshmem", "3"}})}});
  EXPECT_EQ(deps_differences(stored, now),
            (Lines{"libraries.nccl: \"2.20\" → \"2.21\"", "triton: \"3.5\" → \"3.6\""}));
  EXPECT_TRUE(deps_differences(stored, stored).empty());
  EXPECT_TRUE(deps_differences(Value(), now).empty());
}

class ListingTest : public ::testing::Test {
 protected:
  TemporaryFolder m_folder;
  Store m_store{m_folder.path() / "root", {}};
  fs::path m_function = m_store.folder("scale");
};

TEST_F(ListingTest, EmptyOrMissingStoreListsNothing) {
  EXPECT_TRUE(m_store.list().empty());
  EXPECT_TRUE(m_store.list("scale").empty());
  EXPECT_TRUE(m_store.nearest_differences("scale", make_key()).empty());
}

TEST_F(ListingTest, SummariesOfAFunctionAndOfAll) {
  (void)m_store.save(make_record(1));
  (void)m_store.save(make_record(2));
  Record other = make_record(3);
  other.name = "pack/ed";
  (void)m_store.save(other);
  (void)m_store.id();
  EXPECT_EQ(m_store.list("scale").size(), 2U);
  EXPECT_EQ(m_store.list("pack/ed").size(), 1U);
  const std::vector<Summary> all = m_store.list();
  ASSERT_EQ(all.size(), 3U);
  for (const Summary& s : all) {
    EXPECT_TRUE(fs::exists(s.file));
    EXPECT_EQ(s.module, "kernels.scale");
    EXPECT_EQ(s.winner_ns, 101.5);
    EXPECT_FALSE(s.original_format);
  }
}

TEST_F(ListingTest, ReadsNoMoreThanTheBeginning) {
  (void)m_store.save(make_record(1));
  const fs::path file = m_store.list("scale").at(0).file;
  std::string text = read_text(file);
  const std::size_t end = text.find("\"function\"");
  write_text(file, text.substr(0, end) + "\"function\": ?" + std::string(5000, ' '));
  EXPECT_EQ(m_store.list("scale").size(), 1U);
}

TEST_F(ListingTest, WhatIsNoRecordIsSkipped) {
  (void)m_store.save(make_record(1));
  write_text(m_function / (std::string(64, 'a') + ".json"), "junk");
  write_text(m_function / (std::string(64, 'b') + ".json"), "");
  fs::create_directories(m_function / (std::string(64, 'c') + ".json"));
  write_text(m_function / (std::string(64, 'd') + ".json.damaged-1"), "junk");
  write_text(m_function / "notes.json", "{}");
  write_text(m_folder.path() / "root" / "file", "in the root");
  EXPECT_EQ(m_store.list("scale").size(), 1U);
  EXPECT_EQ(m_store.list().size(), 1U);
  std::vector<std::string> left_out;
  (void)m_store.list({}, &left_out);
  ASSERT_EQ(left_out.size(), 3U) << "what has a record's name, and is none";
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string name = std::string(64, static_cast<char>('a' + i)) + ".json: ";
    EXPECT_EQ(left_out[i].find((m_function / name).string()), 0U) << left_out[i];
    EXPECT_GT(left_out[i].size(), (m_function / name).string().size()) << "the reason is missing";
  }
}

TEST_F(ListingTest, WhatWasSavedBesideAnUnreadableRecordIsListed) {
  (void)m_store.save(make_record(1));
  const fs::path file = m_store.list("scale").at(0).file;
  const std::string text = read_text(file);
  write_text(m_function / ".beside" / file.stem() / "1.json", text);
  EXPECT_EQ(m_store.list("scale").size(), 1U) << "it is part of the record";
  write_text(file, "junk");
  ASSERT_EQ(m_store.list("scale").size(), 1U);
  EXPECT_EQ(m_store.list("scale")[0].file.filename(), "1.json");
}

TEST_F(ListingTest, LongKeysAndRewrittenFilesAreReadWhole) {
  Record record = make_record(1);
  record.key.key = Value(std::string(20'000, 'k'));
  (void)m_store.save(record);
  ASSERT_EQ(m_store.list("scale").size(), 1U);
  EXPECT_EQ(m_store.list("scale")[0].key, record.key.text());
  const fs::path file = m_store.list("scale")[0].file;
  write_text(file, nlohmann::json::parse(read_text(file)).dump());  // the summary comes late now
  ASSERT_EQ(m_store.list("scale").size(), 1U);
  EXPECT_EQ(m_store.list("scale")[0].winner, record.tunings[0].winner);
}

TEST_F(ListingTest, FilesOfTheOriginalToolAreListed) {
  const fs::path file = m_function / (std::string(64, 'e') + ".json");
  write_text(file, R"({"config": [[0.25, {"BLOCK": 64}], [Infinity, {"BLOCK": 32}]],
    "deps": {"torch": "2.1"}, "key": [[128], null], "func": "scale",
    "timestamp": "2026-01-02_03_04_05"})");
  const std::vector<Summary> all = m_store.list("scale");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(all[0].original_format);
  EXPECT_EQ(all[0].name, "scale");
  EXPECT_EQ(all[0].winner, Value::dict({{"BLOCK", 64}}));
  EXPECT_EQ(all[0].winner_ns, 250'000.0);
  EXPECT_EQ(all[0].created, "2026-01-02_03_04_05");
  EXPECT_EQ(all[0].key, Value::list({Value::list({128}), Value()}));
  EXPECT_TRUE(m_store.nearest_differences("scale", make_key()).empty());
}

TEST_F(ListingTest, RootHidesEqualFilesOfLayers) {
  const fs::path layer = m_folder.path() / "layer";
  (void)Store(layer, {}).save(make_record(1));
  (void)Store(layer, {}).save(make_record(2));
  (void)m_store.save(make_record(1));
  const Store both(m_folder.path() / "root", {layer});
  EXPECT_EQ(both.list("scale").size(), 2U);
  EXPECT_EQ(both.list().size(), 2U);
}

TEST_F(ListingTest, NearestIsTheKeyWithTheFewestDifferentFields) {
  Record far = make_record(64);
  far.key.hardware = Value::dict({{"name", "H100"}, {"memory_gib", 80}, {"units", 132}});
  (void)m_store.save(far);
  (void)m_store.save(make_record(512));
  EXPECT_EQ(m_store.nearest_differences("scale", make_key(128)), Lines{"key[0]: (512,) → (128,)"});
  EXPECT_TRUE(m_store.nearest_differences("other", make_key(128)).empty());
  const Store layered(m_folder.path() / "empty", {m_folder.path() / "root"});
  EXPECT_EQ(layered.nearest_differences("scale", make_key(128)), Lines{"key[0]: (512,) → (128,)"});
}

}  // namespace
}  // namespace disttune::store
