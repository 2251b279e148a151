#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "core/sha256.hpp"
#include "store/place.hpp"
#include "store/record_json.hpp"
#include "support.hpp"

namespace disttune::store {
namespace {

using namespace testing;

std::string name_of(const RecordKey& key) { return core::sha256_hex(key.text().text()); }

bool starts_with(const std::string& text, std::string_view with) { return text.starts_with(with); }

class StoreTest : public ::testing::Test {
 protected:
  TemporaryFolder m_folder;
  fs::path m_root = m_folder.path() / "not" / "there" / "yet";
  Store m_store{m_root, {}};
  Record m_record = make_record();
  fs::path m_file = m_store.file("scale", m_record.key);
  fs::path m_function = m_store.folder("scale");

  [[nodiscard]] std::vector<std::string> record_and_lock() const {
    return {".lock", m_file.filename().string()};
  }
  /// Files of the function's folder whose name holds `part`.
  [[nodiscard]] std::vector<fs::path> files_with(std::string_view part) const {
    std::vector<fs::path> out;
    for (const std::string& name : names_in(m_function))
      if (name.find(part) != std::string::npos) out.push_back(m_function / name);
    return out;
  }
};

TEST_F(StoreTest, ConstructionTouchesNothing) { EXPECT_TRUE(names_in(m_folder.path()).empty()); }

TEST_F(StoreTest, FileIsTheDigestOfTheFullKeyInTheFunctionsFolder) {
  EXPECT_EQ(m_file, m_root / "scale" / (name_of(m_record.key) + ".json"));
  EXPECT_EQ(m_store.folder("../../etc/passwd").parent_path(), m_root);
}

TEST_F(StoreTest, SaveThenLoadInAnEmptyWorld) {
  const Lookup before = m_store.load("scale", m_record.key);
  EXPECT_FALSE(before.record.has_value());
  EXPECT_EQ(before.reason, "no record");
  EXPECT_EQ(before.file, m_file);
  EXPECT_TRUE(names_in(m_folder.path()).empty()) << "a look-up makes nothing";

  const Saved saved = m_store.save(m_record);
  EXPECT_EQ(saved.file, m_file);
  EXPECT_EQ(saved.problem, "");
  const Lookup found = m_store.load("scale", m_record.key);
  ASSERT_TRUE(found.record.has_value());
  EXPECT_EQ(write_record(*found.record), write_record(m_record));
  EXPECT_EQ(found.file, m_file);
  EXPECT_EQ(found.reason, "");
  EXPECT_FALSE(found.from_layer);
  EXPECT_EQ(names_in(m_function), std::vector<std::string>{m_file.filename().string()})
      << "no temporary file, and a new record needs no lock";
}

TEST_F(StoreTest, ModeOfFilesFollowsTheUmask) {
  const mode_t before = ::umask(027);
  (void)m_store.save(m_record);
  ::umask(before);
  struct ::stat about {};
  ASSERT_EQ(::stat(m_file.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0640U);
  ASSERT_EQ(::stat(m_function.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0750U);
}

TEST_F(StoreTest, MemoryOnlyMissesAndSaysWhy) {
  const Store store(std::nullopt, {});
  EXPECT_FALSE(store.load("scale", m_record.key).record.has_value());
  const Saved saved = store.save(m_record);
  EXPECT_TRUE(saved.file.empty());
  EXPECT_NE(saved.problem, "");
  EXPECT_EQ(store.id(), 0U);
  EXPECT_TRUE(store.list().empty());
}

TEST_F(StoreTest, S12_DevicesOfOneArchitectureWithOtherUnitCountsHaveRecordsOfTheirOwn) {
  Record other = make_record(128, "3.6.0", 50);
  other.key.hardware = Value::dict({{"name", "H200"}, {"memory_gib", 141}, {"units", 114}});
  (void)m_store.save(m_record);
  (void)m_store.save(other);
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings[0].candidates[0].samples_ns[0],
            100);
  EXPECT_EQ(m_store.load("scale", other.key).record->tunings[0].candidates[0].samples_ns[0], 50);
  EXPECT_EQ(m_store.list("scale").size(), 2U);
}

TEST_F(StoreTest, S13_OlderEnvironmentsAreKept) {
  (void)m_store.save(make_record(128, "3.5.0", 90));
  (void)m_store.save(make_record(128, "3.6.0", 80));
  Lookup found = m_store.load("scale", m_record.key);
  ASSERT_EQ(found.record->tunings.size(), 2U);
  EXPECT_EQ(found.record->tunings[0].deps, deps("3.6.0"));
  EXPECT_EQ(found.record->tunings[1].deps, deps("3.5.0"));
  EXPECT_EQ(deps_differences(deps("3.5.0"), deps("3.6.0")),
            std::vector<std::string>{"triton: \"3.5.0\" → \"3.6.0\""});

  (void)m_store.save(make_record(128, "3.5.0", 70));
  found = m_store.load("scale", m_record.key);
  ASSERT_EQ(found.record->tunings.size(), 2U) << "equal deps are replaced";
  EXPECT_EQ(found.record->tunings[0].deps, deps("3.5.0"));
  EXPECT_EQ(found.record->tunings[0].candidates[0].samples_ns[0], 70);
}

TEST_F(StoreTest, TheNewestEightEnvironmentsAreKept) {
  for (int i = 0; i < 10; ++i) (void)m_store.save(make_record(128, std::to_string(i)));
  const Lookup found = m_store.load("scale", m_record.key);
  ASSERT_EQ(found.record->tunings.size(), 8U);
  EXPECT_EQ(found.record->tunings.front().deps, deps("9"));
  EXPECT_EQ(found.record->tunings.back().deps, deps("2"));
}

TEST_F(StoreTest, ReplacedTuningNeedNotBeSoundTheOthersMust) {
  (void)m_store.save(make_record(128, "3.5.0"));
  (void)m_store.save(make_record(128, "3.6.0"));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(read_text(m_file));
  json["tunings"][0]["winner"] = "{}";
  write_text(m_file, json.dump());
  EXPECT_EQ(m_store.save(make_record(128, "3.6.0")).problem, "");
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings.size(), 2U);
  write_text(m_file, json.dump());
  EXPECT_NE(m_store.save(make_record(128, "3.5.0")).problem.find("was damaged"), std::string::npos);
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings.size(), 1U);
}

TEST_F(StoreTest, UnknownFieldsOfANewerToolSurviveASave) {
  (void)m_store.save(make_record(128, "3.5.0"));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(read_text(m_file));
  json["future"] = {1, 2};
  json["tunings"][0]["energy_j"] = 3.5;
  write_text(m_file, json.dump());
  EXPECT_EQ(m_store.save(m_record).problem, "");
  json = nlohmann::ordered_json::parse(read_text(m_file));
  EXPECT_EQ(json["future"], (std::vector<int>{1, 2}));
  EXPECT_FALSE(json["tunings"][0].contains("energy_j"));
  EXPECT_EQ(json["tunings"][1]["energy_j"], 3.5);
}

TEST_F(StoreTest, S22_KeyAtReadTimeIsKeyAtWriteTimeWhateverTheOrderOfItsFields) {
  RecordKey key = m_record.key;
  key.hardware = Value::dict({{"units", 132}, {"memory_gib", 141}, {"name", "H200"}});
  EXPECT_EQ(m_store.file("scale", key), m_file);
  (void)m_store.save(m_record);
  EXPECT_TRUE(m_store.load("scale", key).record.has_value());
}

TEST_F(StoreTest, RecordOfAnotherKeyUnderOurNameIsAMiss) {
  (void)m_store.save(make_record(256));
  fs::create_directories(m_function);
  fs::copy_file(m_store.file("scale", make_key(256)), m_file);
  const Lookup found = m_store.load("scale", m_record.key);
  EXPECT_FALSE(found.record.has_value());
  EXPECT_NE(found.reason.find("another key"), std::string::npos);
  EXPECT_EQ(files_with(".damaged-").size(), 1U);
}

TEST_F(StoreTest, S27_DamagedFilesAreMissesWithAReasonAndAreMovedAside) {
  const std::string good = write_record(m_record);
  const std::vector<std::string> contents = {"",
                                             std::string(100, '\0'),
                                             "\xff\xfe\x80",
                                             "null",
                                             "[]",
                                             "{}",
                                             "\x7f"
                                             "ELF",
                                             good.substr(0, good.size() / 2),
                                             good + good,
                                             std::string(1'000'000, '[')};
  std::size_t moved = 0;
  for (const std::string& content : contents) {
    write_text(m_file, content);
    const Lookup found = m_store.load("scale", m_record.key);
    EXPECT_FALSE(found.record.has_value());
    EXPECT_TRUE(starts_with(found.reason, "damaged: ")) << found.reason;
    EXPECT_NE(found.reason.find("moved to "), std::string::npos) << found.reason;
    EXPECT_FALSE(fs::exists(m_file));
    EXPECT_EQ(files_with(".json.damaged-").size(), ++moved) << "never deleted, never overwritten";
    EXPECT_EQ(m_store.load("scale", m_record.key).reason, "no record");
  }
  EXPECT_EQ(m_store.save(m_record).problem, "");
  EXPECT_TRUE(m_store.load("scale", m_record.key).record.has_value());
}

TEST_F(StoreTest, SaveOverADamagedFileMovesItAsideFirst) {
  write_text(m_file, "{\"my only copy\": ");
  const Saved saved = m_store.save(m_record);
  EXPECT_EQ(saved.file, m_file);
  EXPECT_NE(saved.problem.find("was damaged"), std::string::npos);
  ASSERT_EQ(files_with(".damaged-").size(), 1U);
  EXPECT_EQ(read_text(files_with(".damaged-")[0]), "{\"my only copy\": ");
  EXPECT_TRUE(m_store.load("scale", m_record.key).record.has_value());
}

TEST_F(StoreTest, FolderLoopOrPipeInItsPlace) {
  const std::vector<std::function<void()>> makers = {
      [&] { fs::create_directories(m_file / "inner"); },
      [&] { fs::create_symlink(m_file.filename(), m_file); },
      [&] { ASSERT_EQ(::mkfifo(m_file.c_str(), 0600), 0); }};
  std::size_t moved = 0;
  for (const auto& make : makers) {
    fs::create_directories(m_function);
    make();
    const Lookup found = m_store.load("scale", m_record.key);
    EXPECT_FALSE(found.record.has_value());
    EXPECT_TRUE(starts_with(found.reason, "damaged: ")) << found.reason;
    EXPECT_EQ(files_with(".damaged-").size(), ++moved);
    make();
    EXPECT_EQ(m_store.save(m_record).file, m_file) << "and a save gets its place";
    EXPECT_EQ(files_with(".damaged-").size(), ++moved);
    ASSERT_TRUE(m_store.load("scale", m_record.key).record.has_value());
    fs::remove(m_file);
  }
}

TEST_F(StoreTest, HugeFileIsNotRead) {
  fs::create_directories(m_function);
  write_text(m_file, "{");
  fs::resize_file(m_file, std::uintmax_t{1} << 40);  // sparse
  const Lookup found = m_store.load("scale", m_record.key);
  EXPECT_FALSE(found.record.has_value());
  EXPECT_NE(found.reason.find("bytes"), std::string::npos) << found.reason;
}

TEST_F(StoreTest, LinkThatLeadsNowhereIsNoRecord) {
  fs::create_directories(m_function);
  fs::create_symlink("/nowhere/at/all", m_file);
  EXPECT_EQ(m_store.load("scale", m_record.key).reason, "no record");
  EXPECT_EQ(m_store.save(m_record).file, m_file);
}

TEST_F(StoreTest, OtherSchemaVersionIsLeftAloneAndSavesGoBeside) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(write_record(m_record));
  json["schema"]["version"] = 7;
  json["tunings"] = {{"of", "the future"}};
  const std::string newer = json.dump();
  write_text(m_file, newer);
  const Lookup miss = m_store.load("scale", m_record.key);
  EXPECT_FALSE(miss.record.has_value());
  EXPECT_NE(miss.reason.find("version 7"), std::string::npos) << miss.reason;
  EXPECT_EQ(read_text(m_file), newer);

  for (const char* triton : {"3.4", "3.5", "3.6"}) {
    const Saved saved = m_store.save(make_record(128, triton));
    EXPECT_NE(saved.problem.find("saved beside"), std::string::npos) << saved.problem;
    EXPECT_FALSE(saved.file.empty());
  }
  EXPECT_EQ(read_text(m_file), newer);
  const Lookup found = m_store.load("scale", m_record.key);
  ASSERT_TRUE(found.record.has_value());
  EXPECT_EQ(found.record->tunings.size(), 3U);
  EXPECT_EQ(names_in(beside_folder(m_file)).size(), 1U) << "does not pile up";
}

TEST_F(StoreTest, FileOfTheOriginalToolIsNeverRewritten) {
  const std::string original =
      R"({"config": [[0.5, {"BLOCK": 1}]], "deps": {}, "key": null, "func": "scale",)"
      R"( "timestamp": "2026-01-01_00_00_00"})";
  write_text(m_file, original);
  EXPECT_FALSE(m_store.load("scale", m_record.key).record.has_value());
  (void)m_store.save(m_record);
  EXPECT_EQ(read_text(m_file), original);
  EXPECT_TRUE(m_store.load("scale", m_record.key).record.has_value());
}

// --- layers

TEST_F(StoreTest, LayersLieUnderTheRootInTheirOrder) {
  const fs::path first = m_folder.path() / "first";
  const fs::path second = m_folder.path() / "second";
  (void)Store(second, {}).save(make_record(128, "3.6.0", 300));
  const Store store(m_root, {first, second});
  Lookup found = store.load("scale", m_record.key);
  ASSERT_TRUE(found.record.has_value());
  EXPECT_TRUE(found.from_layer);
  EXPECT_EQ(found.file, second / "scale" / m_file.filename());
  EXPECT_EQ(found.record->tunings[0].candidates[0].samples_ns[0], 300);

  (void)Store(first, {}).save(make_record(128, "3.6.0", 200));
  found = store.load("scale", m_record.key);
  EXPECT_EQ(found.record->tunings[0].candidates[0].samples_ns[0], 200);

  const std::string below = read_text(first / "scale" / m_file.filename());
  EXPECT_EQ(store.save(make_record(128, "3.6.0", 100)).file, m_file) << "writes go to the root";
  found = store.load("scale", m_record.key);
  EXPECT_FALSE(found.from_layer);
  EXPECT_EQ(found.record->tunings[0].candidates[0].samples_ns[0], 100);
  EXPECT_EQ(found.record->tunings.size(), 1U);
  EXPECT_EQ(read_text(first / "scale" / m_file.filename()), below);
}

TEST_F(StoreTest, LayerAddsTheEnvironmentsThatTheRootDoesNotKnow) {
  const fs::path layer = m_folder.path() / "site";
  Record newer = make_record(128, "3.6.0");
  newer.tunings[0].created = "2030-01-01T00:00:00Z";
  (void)Store(layer, {}).save(newer);
  const Store store(m_root, {layer});
  (void)store.save(make_record(128, "3.5.0"));
  const Lookup found = store.load("scale", m_record.key);
  ASSERT_EQ(found.record->tunings.size(), 2U);
  EXPECT_EQ(found.record->tunings[0].deps, deps("3.5.0")) << "the root's come first";
  EXPECT_EQ(found.record->tunings[1].deps, deps("3.6.0"));
  EXPECT_FALSE(found.from_layer);
  (void)store.save(make_record(128, "3.4.0"));
  EXPECT_EQ(Store(m_root, {}).load("scale", m_record.key).record->tunings.size(), 2U)
      << "the layer's are not copied";
}

TEST_F(StoreTest, DamagedFileInALayerIsLeftAlone) {
  const fs::path layer = m_folder.path() / "site";
  const fs::path file = layer / "scale" / m_file.filename();
  write_text(file, "junk");
  const Lookup found = Store(m_root, {layer}).load("scale", m_record.key);
  EXPECT_FALSE(found.record.has_value());
  EXPECT_TRUE(starts_with(found.reason, "damaged: ")) << found.reason;
  EXPECT_EQ(names_in(layer / "scale"), std::vector<std::string>{file.filename().string()});
}

TEST_F(StoreTest, LayerServesWhereTheRootIsDamaged) {
  const fs::path layer = m_folder.path() / "site";
  (void)Store(layer, {}).save(m_record);
  write_text(m_file, "junk");
  const Lookup found = Store(m_root, {layer}).load("scale", m_record.key);
  EXPECT_TRUE(found.record.has_value());
  EXPECT_TRUE(found.from_layer);
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_NE(found.notes[0].text.find("damaged"), std::string::npos);
}

TEST_F(StoreTest, MemoryOnlyStoreMayHaveLayers) {
  (void)m_store.save(m_record);
  const Store store(std::nullopt, {m_root});
  EXPECT_TRUE(store.load("scale", m_record.key).record.has_value());
  EXPECT_TRUE(store.load("scale", m_record.key).from_layer);
}

// --- locks, merging, saving beside

TEST_F(StoreTest, S33_TwoWritersOfOneKeyLoseNothing) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] { (void)m_store.save(make_record(128, std::to_string(i))); });
  for (std::thread& t : threads) t.join();
  const Lookup found = m_store.load("scale", m_record.key);
  ASSERT_TRUE(found.record.has_value());
  EXPECT_EQ(found.record->tunings.size(), 8U);
  EXPECT_EQ(names_in(m_function), record_and_lock());
}

TEST_F(StoreTest, S33_WritersOfManyKeysLoseNothing) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 10; ++k) (void)m_store.save(make_record(100 * i + k));
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(m_store.list("scale").size(), 40U);
}

/// Time that passes only by sleeping.
std::int64_t g_now_ns = 0;
std::int64_t shifted_now() { return g_now_ns; }
void shifted_sleep(std::int64_t ns) { g_now_ns += ns; }

class LockedStoreTest : public StoreTest {
 protected:
  LockedStoreTest() {
    g_now_ns = 0;
    file_calls().now_ns = shifted_now;
    file_calls().sleep_ns = shifted_sleep;
  }
  void lock() {
    fs::create_directories(m_function);
    m_fd = ::open(m_lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ASSERT_EQ(::flock(m_fd, LOCK_EX), 0);
  }
  void unlock() { ::close(m_fd); }
  Faults m_faults;
  fs::path m_lock = m_function / ".lock";
  int m_fd = -1;
};

TEST_F(LockedStoreTest, S33_HeldLockIsWaitedForFiveSecondsThenSavedBeside) {
  (void)m_store.save(make_record(128, "3.4"));
  lock();
  const Saved first = m_store.save(make_record(128, "3.5"));
  EXPECT_EQ(g_now_ns, 5'000'000'000);
  EXPECT_NE(first.problem.find("saved beside"), std::string::npos) << first.problem;
  const Saved second = m_store.save(make_record(128, "3.6"));
  EXPECT_NE(first.file, second.file) << "one save beside does not replace another";
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings.size(), 3U)
      << "look-ups find what lies beside";
  unlock();
  const Saved merged = m_store.save(make_record(128, "3.7"));
  EXPECT_EQ(merged.file, m_file);
  EXPECT_EQ(merged.problem, "");
  EXPECT_EQ(names_in(m_function), record_and_lock());
  const Lookup found = m_store.load("scale", m_record.key);
  ASSERT_EQ(found.record->tunings.size(), 4U);
  EXPECT_EQ(found.record->tunings[0].deps, deps("3.7"));
}

TEST_F(LockedStoreTest, BesideWithoutARecordIsFoundAndListed) {
  (void)m_store.save(make_record(128, "3.5"));
  lock();
  (void)m_store.save(m_record);
  fs::remove(m_file);
  EXPECT_TRUE(m_store.load("scale", m_record.key).record.has_value());
  EXPECT_EQ(m_store.list("scale").size(), 1U);
  unlock();
}

TEST_F(LockedStoreTest, LaterTuningWinsWhicheverFileItIsIn) {
  Record record = make_record(128, "3.6.0", 100);
  (void)m_store.save(record);
  lock();
  record = make_record(128, "3.6.0", 200);
  record.tunings[0].created = "2026-11-29T20:00:00Z";
  (void)m_store.save(record);
  unlock();
  const Lookup found = m_store.load("scale", record.key);
  ASSERT_EQ(found.record->tunings.size(), 1U);
  EXPECT_EQ(found.record->tunings[0].candidates[0].samples_ns[0], 200);
}

TEST_F(LockedStoreTest, DamagedFileBesideIsSkippedAndSaidSo) {
  (void)m_store.save(m_record);
  write_text(beside_folder(m_file) / "other-1.json", "junk");
  Lookup found = m_store.load("scale", m_record.key);
  EXPECT_TRUE(found.record.has_value());
  EXPECT_EQ(found.notes.size(), 1U);
  EXPECT_EQ(m_store.save(make_record(128, "3.7")).file, m_file);
  EXPECT_TRUE(fs::exists(beside_folder(m_file) / "other-1.json")) << "never deleted";
}

TEST_F(LockedStoreTest, DamageIsNotMovedWhileSomebodySaves) {
  write_text(m_file, "junk");
  lock();
  const Lookup found = m_store.load("scale", m_record.key);
  EXPECT_FALSE(found.record.has_value());
  EXPECT_TRUE(starts_with(found.reason, "damaged: ")) << found.reason;
  EXPECT_EQ(g_now_ns, 0) << "reading does not wait";
  EXPECT_TRUE(fs::exists(m_file));
  unlock();
}

// --- new records: without a lock

TEST_F(LockedStoreTest, NewRecordNeedsNoLock) {
  lock();
  EXPECT_EQ(m_store.save(m_record).file, m_file);
  EXPECT_EQ(g_now_ns, 0) << "nobody was waited for";
  EXPECT_TRUE(m_store.load("scale", m_record.key).record.has_value());
  unlock();
}

TEST_F(LockedStoreTest, LockMayBeTakenByWhoeverMayWriteIntoTheFolder) {
  (void)m_store.save(make_record(128, "3.5"));
  fs::permissions(m_function, fs::perms(0770));
  const mode_t before = ::umask(077);
  (void)m_store.save(m_record);
  ::umask(before);
  EXPECT_EQ(fs::status(m_lock).permissions(), fs::perms(0660));
}

TEST_F(LockedStoreTest, LockThatWasDeletedWhileItWasAwaitedIsMadeAnew) {
  (void)m_store.save(make_record(128, "3.5"));
  static fs::path path;
  path = m_lock;
  file_calls().flock = [](int fd, int operation) {
    const int result = ::flock(fd, operation);
    if (operation != LOCK_UN && !path.empty()) fs::remove(std::exchange(path, {}));
    return result;
  };
  EXPECT_EQ(m_store.save(m_record).problem, "");
  EXPECT_GT(g_now_ns, 0) << "what was locked at first was nobody's lock";
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings.size(), 2U);
}

TEST_F(LockedStoreTest, WhatLiesBesideIsTakenInByTheNextNewRecordToo) {
  (void)m_store.save(make_record(128, "3.5"));
  lock();
  (void)m_store.save(make_record(128, "3.6"));
  unlock();
  fs::remove(m_file);
  EXPECT_EQ(m_store.save(make_record(128, "3.7")).file, m_file);
  EXPECT_EQ(names_in(m_function), record_and_lock());
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings.size(), 2U);
}

/// Another process's save, at a chosen step of ours.
std::function<void()> g_meanwhile;
void meanwhile() {
  if (g_meanwhile) std::exchange(g_meanwhile, nullptr)();
}
FileCalls g_calls;

class RacingStoreTest : public StoreTest {
 protected:
  RacingStoreTest() {
    g_calls = file_calls();
    g_meanwhile = [this] {
      EXPECT_EQ(m_store.save(make_record(128, "theirs")).file, m_file);
      m_raced = true;
    };
  }
  ~RacingStoreTest() override { g_meanwhile = nullptr; }
  void expect_both() {
    EXPECT_TRUE(m_raced);
    const Lookup found = m_store.load("scale", m_record.key);
    ASSERT_TRUE(found.record.has_value());
    EXPECT_EQ(found.record->tunings.size(), 2U);
    EXPECT_TRUE(files_with(".tmp").empty());
    EXPECT_FALSE(fs::exists(m_function / ".beside"));
  }
  bool m_raced = false;
  Faults m_faults;
};

TEST_F(RacingStoreTest, OfTwoNewRecordsTheSecondMergesWithTheFirst) {
  file_calls().rename_new = [](const char* from, const char* to) {
    meanwhile();
    return g_calls.rename_new(from, to);
  };
  EXPECT_EQ(m_store.save(m_record).problem, "");
  expect_both();
}

TEST_F(RacingStoreTest, NewRecordsMeetByLinksWhereNoRenameKeepsWhatIsThere) {
  file_calls().rename_new = [](const char*, const char*) {
    meanwhile();
    return errno = EINVAL, -1;
  };
  EXPECT_EQ(m_store.save(m_record).problem, "");
  expect_both();
}

TEST_F(RacingStoreTest, WithoutSuchRenamesAndLinksNewRecordsAreSavedUnderTheLock) {
  file_calls().rename_new = [](const char*, const char*) { return errno = ENOSYS, -1; };
  file_calls().link = [](const char*, const char*) {
    meanwhile();
    return errno = EPERM, -1;
  };
  EXPECT_EQ(m_store.save(m_record).problem, "");
  expect_both();
  EXPECT_EQ(names_in(m_function), record_and_lock());
}

/// Ours holds the lock, for a damaged record was there; theirs sees none and does not ask for it.
TEST_F(RacingStoreTest, NewRecordThatAppearsUnderSomebodysLockIsMerged) {
  write_text(m_file, "junk");
  file_calls().rename_new = [](const char* from, const char* to) {
    if (std::string_view(to).ends_with(".json")) meanwhile();
    return g_calls.rename_new(from, to);
  };
  const Saved saved = m_store.save(m_record);
  EXPECT_NE(saved.problem.find("was damaged"), std::string::npos) << saved.problem;
  expect_both();
  EXPECT_EQ(files_with(".damaged-").size(), 1U);
}

/// Theirs asks for the lock that ours holds, cannot have it in time, and saves beside.
TEST_F(RacingStoreTest, SaveThatMeetsAHeldLockIsNotLostBehindTheMerge) {
  ASSERT_EQ(m_store.save(make_record(128, "3.5")).problem, "");
  g_now_ns = 0;
  file_calls().now_ns = shifted_now;
  file_calls().sleep_ns = shifted_sleep;
  g_meanwhile = [this] {
    EXPECT_NE(m_store.save(make_record(128, "theirs")).problem.find("saved beside"),
              std::string::npos);
  };
  file_calls().rename = [](const char* from, const char* to) {
    meanwhile();
    return g_calls.rename(from, to);
  };
  EXPECT_EQ(m_store.save(m_record).file, m_file);
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings.size(), 3U);
}

TEST_F(StoreTest, WhatWouldBeTooLargeToReadIsNotWritten) {
  ASSERT_EQ(m_store.save(m_record).problem, "");
  const std::string before = read_text(m_file);
  Record large = m_record;
  large.tunings[0].candidates[0].reason = std::string(std::size_t{65} << 20, 'x');
  const Saved saved = m_store.save(large);
  EXPECT_NE(saved.problem.find("would not be read"), std::string::npos) << saved.problem;
  EXPECT_TRUE(saved.file.empty());
  EXPECT_EQ(read_text(m_file), before);
}

TEST_F(StoreTest, ProcessThatDiesAtAnyStepOfASaveLosesNothingAndHoldsNobodyUp) {
  const Faults faults;
  g_calls = file_calls();
  static int steps;
  const auto count = [] {
    if (--steps == 0) ::_exit(0);
  };
  static void (*step)() = count;
  file_calls().write = [](int fd, const void* data, std::size_t size) {
    step();
    return g_calls.write(fd, data, size);
  };
  file_calls().rename = [](const char* from, const char* to) {
    step();
    return g_calls.rename(from, to);
  };
  file_calls().rename_new = [](const char* from, const char* to) {
    step();
    return g_calls.rename_new(from, to);
  };
  file_calls().flock = [](int fd, int operation) {
    step();
    const int result = g_calls.flock(fd, operation);
    step();
    return result;
  };
  std::size_t saved = 0;
  for (int dies_at = 1; dies_at <= 8; ++dies_at)
    for (int round = 0; round < 2; ++round) {  // a new record, then one more tuning
      const Record record = make_record(1000 + dies_at, round == 0 ? "3.5" : "3.6");
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        steps = dies_at;
        (void)m_store.save(record);
        ::_exit(0);
      }
      ::waitpid(pid, nullptr, 0);
      steps = 0;
      EXPECT_EQ(m_store.save(record).problem, "") << dies_at;
      EXPECT_EQ(m_store.load("scale", record.key).record->tunings.size(),
                static_cast<std::size_t>(round + 1));
      ++saved;
    }
  EXPECT_EQ(saved, 16U);
  EXPECT_FALSE(fs::exists(m_function / ".beside"));
}

// --- S25: processes

TEST_F(StoreTest, S25_SixteenProcessesSaveAndReadOneKeyAtOnce) {
  constexpr int k_processes = 16;
  constexpr int k_rounds = 20;
  std::vector<pid_t> children;
  for (int p = 0; p < k_processes; ++p) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      int status = 0;
      bool seen = false;
      for (int i = 0; i < k_rounds && status == 0; ++i) {
        const Saved saved = m_store.save(make_record(128, std::to_string(p % 8), 1000 * p + i));
        if (saved.file.empty()) status = 1;
        const Lookup found = m_store.load("scale", m_record.key);
        // Once there, always there, always whole.
        if (!found.record.has_value() || !found.notes.empty()) status = 2;
        for (const TuningRecord& t :
             found.record ? found.record->tunings : std::vector<TuningRecord>())
          seen |= t.deps == deps(std::to_string(p % 8));
        if (!seen) status = 3;
      }
      ::_exit(status);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  const Lookup found = m_store.load("scale", m_record.key);
  ASSERT_TRUE(found.record.has_value());
  EXPECT_EQ(found.record->tunings.size(), 8U);
  for (const std::string& name : names_in(m_function)) {
    EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
    EXPECT_EQ(name.find(".damaged"), std::string::npos) << name;
  }
}

TEST_F(StoreTest, IdIsOneForAllProcessesThatMeetInANewRoot) {
  constexpr int k_processes = 16;
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  for (int p = 0; p < k_processes; ++p) {
    if (::fork() == 0) {
      const std::uint64_t id = m_store.id();
      ::_exit(::write(fds[1], &id, sizeof id) == sizeof id ? 0 : 1);
    }
  }
  std::set<std::uint64_t> ids;
  for (int p = 0; p < k_processes; ++p) {
    std::uint64_t id = 0;
    ASSERT_EQ(::read(fds[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
    ids.insert(id);
    ::wait(nullptr);
  }
  ::close(fds[0]);
  ::close(fds[1]);
  ASSERT_EQ(ids.size(), 1U);
  EXPECT_GT(*ids.begin(), 0U);
  EXPECT_LE(*ids.begin(), std::uint64_t{0x7fff'ffff'ffff'ffff});
  EXPECT_EQ(m_store.id(), *ids.begin());
  EXPECT_EQ(names_in(m_root), std::vector<std::string>{".id"});
}

TEST_F(StoreTest, IdsTellRootsApartAndDamageGetsANewOne) {
  const Store other(m_folder.path() / "other", {});
  EXPECT_NE(m_store.id(), other.id());
  for (const char* content : {"", "abc\n", "12", "0\n", "99999999999999999999999\n"}) {
    write_text(m_root / ".id", content);
    const std::uint64_t id = m_store.id();
    EXPECT_NE(id, 0U) << content;
    EXPECT_EQ(m_store.id(), id);
  }
  EXPECT_EQ(names_in(m_root).size(), 7U) << "the damaged ones and the lock are kept";
  EXPECT_EQ(m_store.list().size(), 0U);
}

// --- S29

TEST_F(StoreTest, S29_RecordIsOnDiskWhenSaveReturns) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    (void)m_store.save(m_record);
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_TRUE(m_store.load("scale", m_record.key).record.has_value());
}

}  // namespace
}  // namespace disttune::store
