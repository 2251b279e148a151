// File systems that are busy, stale, full or read-only: injected, so that nothing depends on luck
// or on who runs the tests.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "store/journal.hpp"
#include "store/place.hpp"
#include "support.hpp"

namespace disttune::store {
namespace {

using namespace testing;

FileCalls g_real;
int g_code = 0;    ///< the errno to fail with
int g_left = 0;    ///< so many calls fail, then they work
int g_failed = 0;  ///< how many have failed
std::int64_t g_slept = 0;

bool fails() {
  if (g_left <= 0) return false;
  --g_left;
  ++g_failed;
  errno = g_code;
  return true;
}
constexpr int k_always = 1'000'000;

int bad_open(const char* path, int flags, mode_t mode) {
  return fails() ? -1 : g_real.open(path, flags, mode);
}
int bad_open_to_write(const char* path, int flags, mode_t mode) {
  return (flags & O_CREAT) != 0 && fails() ? -1 : g_real.open(path, flags, mode);
}
int bad_open_of_records(const char* path, int flags, mode_t mode) {
  const std::string_view name(path);
  return name.ends_with(".json") && fails() ? -1 : g_real.open(path, flags, mode);
}
ssize_t bad_read(int fd, void* data, std::size_t size) {
  return fails() ? -1 : g_real.read(fd, data, size);
}
ssize_t bad_write(int fd, const void* data, std::size_t size) {
  return fails() ? -1 : g_real.write(fd, data, size);
}
/// Takes half of what it is given, then says that the disk is full.
ssize_t half_write(int fd, const void* data, std::size_t size) {
  return size > 64 ? g_real.write(fd, data, size / 2) : (errno = ENOSPC, -1);
}
int bad_close(int fd) {
  (void)g_real.close(fd);
  return fails() ? -1 : 0;
}
int bad_rename(const char* a, const char* b) { return fails() ? -1 : g_real.rename(a, b); }
int bad_rename_new(const char* a, const char* b) { return fails() ? -1 : g_real.rename_new(a, b); }
int bad_unlink(const char* path) { return fails() ? -1 : g_real.unlink(path); }
int bad_rmdir(const char* path) { return fails() ? -1 : g_real.rmdir(path); }
int bad_mkdir(const char* path, mode_t mode) { return fails() ? -1 : g_real.mkdir(path, mode); }
int bad_flock(int fd, int operation) { return fails() ? -1 : g_real.flock(fd, operation); }
std::int64_t fake_now() { return g_slept; }
void fake_sleep(std::int64_t ns) { g_slept += ns; }

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() {
    g_real = file_calls();
    g_left = g_failed = 0;
    g_slept = 0;
    file_calls().now_ns = fake_now;
    file_calls().sleep_ns = fake_sleep;
  }
  void fail(int code, int times = k_always) {
    g_code = code;
    g_left = times;
    g_failed = 0;
  }
  void heal() {
    file_calls() = g_real;
    g_left = 0;
  }
  bool found() { return m_store.load("scale", m_record.key).record.has_value(); }
  std::size_t temporaries() {
    std::size_t n = 0;
    for (const auto& entry : fs::recursive_directory_iterator(m_folder.path()))
      n += entry.path().filename().string().find(".tmp") != std::string::npos;
    return n;
  }

  Faults m_faults;
  TemporaryFolder m_folder;
  Store m_store{m_folder.path() / "root", {}};
  Record m_record = make_record();
  fs::path m_file = m_store.file("scale", m_record.key);
};

TEST_F(FaultsTest, S24_BusyOrStaleForAMomentIsTriedAgain) {
  for (const int code : {EBUSY, ESTALE}) {
    for (auto set :
         {+[] { file_calls().rename_new = bad_rename_new; },
          +[] { file_calls().open = bad_open_to_write; }, +[] { file_calls().mkdir = bad_mkdir; },
          // The last two are for a record that is there.
          +[] { file_calls().rename = bad_rename; }, +[] { file_calls().flock = bad_flock; }}) {
      set();
      const bool is_new =
          file_calls().rename == g_real.rename && file_calls().flock == g_real.flock;
      if (is_new) fs::remove_all(m_folder.path() / "root");
      fail(code, 2);
      const Saved saved = m_store.save(m_record);
      EXPECT_EQ(g_failed, 2);
      EXPECT_EQ(saved.file, m_file) << saved.problem;
      EXPECT_EQ(saved.problem, "");
      heal();
      file_calls().now_ns = fake_now;
      file_calls().sleep_ns = fake_sleep;
      EXPECT_TRUE(found());
      EXPECT_EQ(temporaries(), 0U);
    }
  }
}

TEST_F(FaultsTest, S24_RenameThatStaysBusyIsOneProblemAndNothingIsThrown) {
  for (const int code : {EBUSY, ESTALE}) {
    file_calls().rename = bad_rename;
    file_calls().rename_new = bad_rename_new;
    fail(code);
    const Saved saved = m_store.save(m_record);
    EXPECT_TRUE(saved.file.empty());
    EXPECT_NE(saved.problem.find(std::generic_category().message(code)), std::string::npos);
    EXPECT_LE(g_slept, 5'000'000'000);
    EXPECT_EQ(temporaries(), 0U);
    EXPECT_FALSE(found());
  }
}

TEST_F(FaultsTest, S24_FailedCleanUpDoesNotUndoAPublish) {
  for (const int code : {EBUSY, ESTALE, EACCES}) {
    file_calls().unlink = bad_unlink;
    file_calls().rmdir = bad_rmdir;
    fail(code);
    const Saved saved = m_store.save(m_record);
    EXPECT_EQ(saved.file, m_file);
    EXPECT_EQ(saved.problem, "");
    EXPECT_TRUE(found());
  }
}

TEST_F(FaultsTest, S26_StaleHandlesBecomeAMissAfterAShortRetry) {
  ASSERT_EQ(m_store.save(m_record).problem, "");
  file_calls().open = bad_open_of_records;
  fail(ESTALE, 2);
  EXPECT_TRUE(found()) << "the third try worked";
  fail(ESTALE);
  Lookup lookup = m_store.load("scale", m_record.key);
  EXPECT_FALSE(lookup.record.has_value());
  EXPECT_NE(lookup.reason.find("cannot be read"), std::string::npos) << lookup.reason;
  heal();
  file_calls().sleep_ns = fake_sleep;
  file_calls().read = bad_read;
  for (const int code : {ESTALE, EIO}) {
    fail(code);
    lookup = m_store.load("scale", m_record.key);
    EXPECT_FALSE(lookup.record.has_value());
    EXPECT_NE(lookup.reason, "");
  }
  heal();
  EXPECT_TRUE(found()) << "what cannot be read now is not moved aside";
}

TEST_F(FaultsTest, S26_FolderReplacedUnderneath) {
  ASSERT_EQ(m_store.save(m_record).problem, "");
  fs::rename(m_folder.path() / "root", m_folder.path() / "away");
  EXPECT_EQ(m_store.load("scale", m_record.key).reason, "no record");
  write_text(m_folder.path() / "root", "a file where the root was");
  EXPECT_EQ(m_store.load("scale", m_record.key).reason, "no record");
  const Saved saved = m_store.save(m_record);
  EXPECT_TRUE(saved.file.empty());
  EXPECT_NE(saved.problem, "");
  EXPECT_EQ(m_store.id(), 0U);
}

TEST_F(FaultsTest, UnreadableFileIsKeptAndSavesGoBeside) {
  ASSERT_EQ(m_store.save(make_record(128, "3.5")).problem, "");
  const std::string before = read_text(m_file);
  file_calls().open = [](const char* path, int flags, mode_t mode) {
    const bool record = std::string_view(path).find(".beside") == std::string_view::npos &&
                        std::string_view(path).ends_with(".json");
    return record ? (errno = EACCES, -1) : g_real.open(path, flags, mode);
  };
  EXPECT_FALSE(found());
  const Saved saved = m_store.save(m_record);
  EXPECT_NE(saved.problem.find("saved beside"), std::string::npos) << saved.problem;
  EXPECT_TRUE(found());
  heal();
  EXPECT_EQ(read_text(m_file), before);
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings.size(), 2U);
}

TEST_F(FaultsTest, S30_NowhereToWriteIsOneProblem) {
  ASSERT_EQ(m_store.save(make_record(256)).problem, "");
  for (const int code : {EROFS, EACCES, EPERM, ENOSPC, EDQUOT}) {
    for (auto set :
         {+[] { file_calls().open = bad_open_to_write; }, +[] { file_calls().write = bad_write; },
          +[] { file_calls().close = bad_close; },
          +[] { file_calls().rename_new = bad_rename_new; }}) {
      set();
      fail(code);
      const Saved saved = m_store.save(m_record);
      EXPECT_TRUE(saved.file.empty());
      EXPECT_NE(saved.problem.find(std::generic_category().message(code)), std::string::npos)
          << saved.problem;
      EXPECT_EQ(saved.problem.find('\n'), std::string::npos);
      EXPECT_FALSE(found());
      EXPECT_TRUE(m_store.load("scale", make_key(256)).record.has_value());
      heal();
      EXPECT_EQ(temporaries(), 0U);
    }
  }
  file_calls().mkdir = bad_mkdir;
  fail(EROFS);
  EXPECT_NE(Store(m_folder.path() / "new", {}).save(m_record).problem, "");
  EXPECT_EQ(Store(m_folder.path() / "new", {}).id(), 0U);
}

TEST_F(FaultsTest, S30_FullDiskInTheMiddleLeavesTheOldRecord) {
  ASSERT_EQ(m_store.save(make_record(128, "3.5")).problem, "");
  file_calls().write = half_write;
  const Saved saved = m_store.save(m_record);
  EXPECT_TRUE(saved.file.empty());
  EXPECT_NE(saved.problem, "");
  heal();
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings[0].deps, deps("3.5"));
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(FaultsTest, S30_ReadOnlyRootStillServes) {
  ASSERT_EQ(m_store.save(m_record).problem, "");
  write_text(m_store.file("scale", make_key(256)), "junk");
  const std::uint64_t id = m_store.id();
  file_calls().open = bad_open_to_write;
  fail(EROFS);
  EXPECT_TRUE(found());
  EXPECT_EQ(m_store.id(), id);
  const Lookup damaged = m_store.load("scale", make_key(256));
  EXPECT_FALSE(damaged.record.has_value());
  EXPECT_TRUE(damaged.reason.starts_with("damaged: ")) << damaged.reason;
  EXPECT_TRUE(fs::exists(m_store.file("scale", make_key(256))));
}

TEST_F(FaultsTest, DamageThatCannotBeMovedIsNotOverwritten) {
  write_text(m_file, "junk");
  file_calls().rename_new = bad_rename_new;
  fail(EBUSY);
  EXPECT_FALSE(found());
  const Saved saved = m_store.save(m_record);
  EXPECT_NE(saved.problem.find("saved beside"), std::string::npos) << saved.problem;
  EXPECT_EQ(read_text(m_file), "junk");
  EXPECT_TRUE(found());
}

TEST_F(FaultsTest, FileSystemWithoutLocksSavesBeside) {
  ASSERT_EQ(m_store.save(make_record(128, "3.5")).problem, "");
  file_calls().flock = bad_flock;
  fail(ENOLCK);
  const Saved saved = m_store.save(m_record);
  EXPECT_FALSE(saved.file.empty());
  EXPECT_EQ(g_slept, 0) << "there is nothing to wait for";
  EXPECT_EQ(m_store.load("scale", m_record.key).record->tunings.size(), 2U);
}

TEST_F(FaultsTest, S30_JournalThatCannotBeWrittenDoesNothing) {
  const Value policy = Value::dict({});
  for (auto set :
       {+[] { file_calls().open = bad_open; }, +[] { file_calls().write = bad_write; }}) {
    set();
    fail(ENOSPC);
    Journal journal(m_file, m_record.key.text(), policy);
    journal.begin(Value(1));
    journal.end(Value(1), Status::ok, "", {});
    journal.interrupted();
    journal.close(false);
    heal();
  }
  EXPECT_TRUE(names_in(m_file.parent_path()).empty());
}

}  // namespace
}  // namespace disttune::store
