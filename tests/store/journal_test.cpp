#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <latch>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "store/journal.hpp"
#include "store/journal_format.hpp"
#include "store/process_id.hpp"
#include "support.hpp"

namespace disttune::store {
namespace {

using namespace testing;

Value candidate(int i) { return Value::dict({{"BLOCK", i}}); }

class JournalTest : public ::testing::Test {
 protected:
  TemporaryFolder m_folder;
  fs::path m_record = m_folder.path() / "scale" / "0123abcd.json";
  Value m_key = make_key().text();
  Value m_policy = Value::dict({{"clock", "device"}, {"repeat", 10}});

  [[nodiscard]] Remains remains() const { return read_remains(m_record, m_key, m_policy); }
  [[nodiscard]] std::vector<std::string> names() const { return names_in(m_record.parent_path()); }

  /// Runs `work` in a child that ends by `signal`, or by _exit when that is 0.
  template <class F>
  void in_child(int signal, F&& work) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      work();
      if (signal != 0) ::kill(::getpid(), signal);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  }
  /// A child killed at candidate 2, with 0 and 1 measured.
  void die_at_candidate_2() {
    in_child(SIGKILL, [&] {
      Journal journal(m_record, m_key, m_policy);
      for (int i = 0; i < 2; ++i) {
        journal.begin(candidate(i));
        const std::vector<std::int64_t> samples = {100 + i, 200 + i};
        journal.end(candidate(i), i == 0 ? Status::ok : Status::launch_failed, i == 0 ? "" : "bad",
                    i == 0 ? samples : std::vector<std::int64_t>());
      }
      journal.begin(candidate(2));
    });
  }
  /// Rewrites the only journal there is.
  void rewrite(const std::function<void(nlohmann::ordered_json&)>& header) {
    ASSERT_EQ(names().size(), 1U);
    const fs::path file = m_record.parent_path() / names()[0];
    std::string text = read_text(file);
    const std::size_t end = text.find('\n');
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(text.substr(0, end));
    header(json);
    write_text(file, json.dump() + text.substr(end));
  }
  void set_age(std::int64_t seconds) {
    for (const std::string& name : names()) {
      struct timespec now {};
      ::clock_gettime(CLOCK_REALTIME, &now);
      now.tv_sec -= seconds;
      const struct timespec times[2] = {now, now};
      ASSERT_EQ(::utimensat(AT_FDCWD, (m_record.parent_path() / name).c_str(), times, 0), 0);
    }
  }
};

TEST_F(JournalTest, NothingThereIsNothingLeft) {
  const Remains left = remains();
  EXPECT_TRUE(left.crashed.empty());
  EXPECT_TRUE(left.measured.empty());
  EXPECT_TRUE(left.files.empty());
  EXPECT_TRUE(read_remains({}, m_key, m_policy).files.empty());
}

TEST_F(JournalTest, NoFileBeforeTheFirstNoteAndNoneAfterAnOrderlyEnd) {
  Journal journal(m_record, m_key, m_policy);
  EXPECT_FALSE(fs::exists(m_record.parent_path()));
  journal.begin(candidate(0));
  ASSERT_EQ(names().size(), 1U);
  EXPECT_TRUE(names()[0].starts_with("0123abcd.journal-")) << names()[0];
  EXPECT_NE(names()[0].find("-" + std::to_string(::getpid()) + "-"), std::string::npos);
  journal.close(false);
  EXPECT_TRUE(names().empty());
}

TEST_F(JournalTest, NotesAreOnDiskWhenTheCallReturns) {
  Journal journal(m_record, m_key, m_policy);
  journal.begin(candidate(7));
  const std::string text = read_text(m_record.parent_path() / names()[0]);
  EXPECT_NE(text.find("{\\\"BLOCK\\\": 7}"), std::string::npos) << text;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    EXPECT_TRUE(nlohmann::json::accept(text.substr(at, end - at)));
}

TEST_F(JournalTest, OneWriteANote) {
  static int writes;
  static FileCalls real;
  const Faults restore;
  real = file_calls();
  writes = 0;
  file_calls().write = [](int fd, const void* data, std::size_t size) {
    ++writes;
    return real.write(fd, data, size);
  };
  Journal journal(m_record, m_key, m_policy);
  for (int i = 0; i < 100; ++i) {
    journal.begin(candidate(i));
    journal.end(candidate(i), Status::ok, "", std::vector<std::int64_t>(10, 1000));
  }
  EXPECT_EQ(writes, 200);
}

TEST_F(JournalTest, S28_KilledProcessLeavesWhatItMeasuredAndWhatKilledIt) {
  die_at_candidate_2();
  const Remains left = remains();
  ASSERT_EQ(left.crashed.size(), 1U);
  EXPECT_EQ(left.crashed[0].candidate, candidate(2));
  EXPECT_TRUE(left.crashed[0].what.starts_with("host ")) << left.crashed[0].what;
  EXPECT_NE(left.crashed[0].what.find(", process "), std::string::npos);
  ASSERT_EQ(left.measured.size(), 2U);
  EXPECT_EQ(left.measured[0].candidate, candidate(0));
  EXPECT_EQ(left.measured[0].status, Status::ok);
  EXPECT_EQ(left.measured[0].samples_ns, (std::vector<std::int64_t>{100, 200}));
  EXPECT_EQ(left.measured[1].status, Status::launch_failed);
  EXPECT_EQ(left.measured[1].reason, "bad");
  EXPECT_TRUE(left.measured[1].samples_ns.empty());
  ASSERT_EQ(left.files.size(), 1U);
  EXPECT_TRUE(fs::exists(left.files[0])) << "reading removes nothing";
}

TEST_F(JournalTest, SamplesAreResumedOnlyUnderAnEqualPolicyACrashCountsUnderAny) {
  die_at_candidate_2();
  const Remains left = read_remains(m_record, m_key, Value::dict({{"clock", "host"}}));
  EXPECT_EQ(left.crashed.size(), 1U);
  EXPECT_TRUE(left.measured.empty());
  EXPECT_EQ(left.files.size(), 1U);
}

TEST_F(JournalTest, JournalOfAnotherKeyIsNotOurs) {
  die_at_candidate_2();
  const Remains left = read_remains(m_record, make_key(999).text(), m_policy);
  EXPECT_TRUE(left.crashed.empty());
  EXPECT_TRUE(left.files.empty());
}

TEST_F(JournalTest, InterruptedIsNoCrash) {
  in_child(0, [&] {
    Journal journal(m_record, m_key, m_policy);
    journal.begin(candidate(0));
    journal.end(candidate(0), Status::ok, "", std::vector<std::int64_t>{5});
    journal.begin(candidate(1));
    journal.interrupted();
    journal.close(true);
  });
  const Remains left = remains();
  EXPECT_TRUE(left.crashed.empty());
  EXPECT_EQ(left.measured.size(), 1U);
}

TEST_F(JournalTest, AnOrderlyEndOfTheProcessInterruptsWhatAnotherThreadTunes) {
  for (const bool by_itself : {false, true}) {
    fs::remove_all(m_record.parent_path());
    if (const pid_t child = ::fork(); child == 0) {
      auto* journal = new Journal(m_record, m_key, m_policy);
      std::latch began(1);
      std::thread tunes([&] {
        journal->begin(candidate(1));
        if (by_itself) std::exit(0);
        began.count_down();
        for (;;) ::pause();
      });
      if (by_itself)
        for (;;) ::pause();
      began.wait();
      std::exit(0);
    } else {
      int status = 0;
      ::waitpid(child, &status, 0);
    }
    EXPECT_EQ(remains().crashed.size(), by_itself ? 1U : 0U);
  }
}

TEST_F(JournalTest, LivingProcessIsLeftAlone) {
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    Journal journal(m_record, m_key, m_policy);
    journal.begin(candidate(0));
    char c = 'x';
    (void)!::write(ready[1], &c, 1);
    (void)!::read(done[0], &c, 1);
    ::_exit(0);
  }
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  set_age(100'000);  // however long it has been silent
  EXPECT_TRUE(remains().crashed.empty());
  EXPECT_TRUE(remains().files.empty());
  ASSERT_EQ(::write(done[1], &c, 1), 1);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(remains().crashed.size(), 1U);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) ::close(fd);
}

TEST_F(JournalTest, ProcessNumberUsedAgainIsNotTheOneBefore) {
  die_at_candidate_2();
  rewrite([](nlohmann::ordered_json& header) {
    header["pid"] = ::getpid();
    // Not the child's own start: in the same clock tick, it would be this process to anyone who
    // asks.
    header["start"] = this_process().start - 1;
  });
  EXPECT_EQ(remains().crashed.size(), 1U) << "this process has another start time";
}

TEST_F(JournalTest, OtherHostsAreGivenTenMinutes) {
  die_at_candidate_2();
  rewrite([](nlohmann::ordered_json& header) { header["host"] = "far-away"; });
  set_age(590);
  EXPECT_TRUE(remains().crashed.empty());
  EXPECT_TRUE(remains().files.empty());
  set_age(610);
  ASSERT_EQ(remains().crashed.size(), 1U);
  EXPECT_TRUE(remains().crashed[0].what.starts_with("host far-away, process "));
}

TEST_F(JournalTest, SameHostNameInAnotherContainerOrBootIsAnotherHost) {
  die_at_candidate_2();
  rewrite([](nlohmann::ordered_json& header) { header["boot"] = "other/pid:[1]"; });
  EXPECT_TRUE(remains().crashed.empty()) << "its processes cannot be seen from here";
  set_age(610);
  EXPECT_EQ(remains().crashed.size(), 1U);
}

TEST_F(JournalTest, LastLineMayBeCutAnywhere) {
  die_at_candidate_2();
  const fs::path file = m_record.parent_path() / names()[0];
  const std::string text = read_text(file);
  std::size_t crashes = 0;
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::optional<JournalContent> content =
        read_journal(std::string_view(text).substr(0, n), m_policy);
    if (n <= text.find('\n')) {
      EXPECT_FALSE(content.has_value()) << n;
      continue;
    }
    ASSERT_TRUE(content.has_value()) << n;
    EXPECT_LE(content->measured.size(), 2U);
    crashes += content->begun.has_value();
  }
  EXPECT_GT(crashes, 0U);
  write_text(file, text.substr(0, text.size() - 3));
  EXPECT_TRUE(remains().crashed.empty());
  EXPECT_EQ(remains().measured.size(), 2U);
}

TEST_F(JournalTest, DamagedLineEndsTheJournal) {
  die_at_candidate_2();
  const fs::path file = m_record.parent_path() / names()[0];
  std::string text = read_text(file);
  for (const char* damage : {"garbage", "{\"end\": \"(\", \"status\": \"ok\"}", "[]", "\xff",
                             "{\"end\": \"1\", \"status\": \"fine\"}"}) {
    write_text(file, text + damage + "\n" + begin_line(candidate(9)));
    const Remains left = remains();
    ASSERT_EQ(left.crashed.size(), 1U) << damage;
    EXPECT_EQ(left.crashed[0].candidate, candidate(2)) << damage;
  }
}

TEST_F(JournalTest, JournalWithoutAReadableOwnerIsLeftAloneForTenMinutes) {
  write_text(m_record.parent_path() / "0123abcd.journal-h-1-2", "{\"jour");
  EXPECT_TRUE(remains().files.empty());
  set_age(610);
  EXPECT_EQ(remains().files.size(), 1U);
  EXPECT_TRUE(remains().crashed.empty());
}

TEST_F(JournalTest, WhatAProcessNotesBeforeItsEndIsReadHoweverLateItEnds) {
  die_at_candidate_2();
  const fs::path file = m_record.parent_path() / names()[0];
  const std::string last = end_line(candidate(2), Status::ok, "", std::vector<std::int64_t>{7});
  const Faults faults;
  static FileCalls calls;
  static std::function<void()> meanwhile;
  calls = file_calls();
  int opened = 0;
  file_calls().open = [](const char* path, int flags, unsigned mode) {
    if (std::string_view(path).find(".journal-") != std::string_view::npos) meanwhile();
    return calls.open(path, flags, mode);
  };
  meanwhile = [&] {  // between the first reading and the question whether the process lives
    if (++opened == 2) std::ofstream(file, std::ios::app) << last;
  };
  EXPECT_TRUE(remains().crashed.empty());
  opened = 0;
  meanwhile = [&] {
    if (++opened == 2) fs::remove(file);  // it has decided the key
  };
  EXPECT_TRUE(remains().crashed.empty());
  EXPECT_TRUE(remains().files.empty());
}

TEST_F(JournalTest, CandidateThatEndedForAnotherRankOfTheJobStillCrashed) {
  die_at_candidate_2();
  // Not begun before the other, whatever second the clock stood at.
  const fs::path file = m_record.parent_path() / names()[0];
  write_text(file, std::regex_replace(read_text(file), std::regex("\"20[0-9]{2}-"), "\"2999-"));
  in_child(0, [&] {
    Journal journal(m_record, m_key, m_policy);
    journal.begin(candidate(2));
    journal.end(candidate(2), Status::ok, "", std::vector<std::int64_t>{7});
  });
  const Remains left = remains();
  ASSERT_EQ(left.crashed.size(), 1U);
  EXPECT_EQ(left.crashed[0].candidate, candidate(2));
  for (const Remains::Measured& m : left.measured) EXPECT_NE(m.candidate, candidate(2));
}

TEST_F(JournalTest, CandidateThatEndedLaterDidNotCrash) {
  die_at_candidate_2();
  const fs::path file = m_record.parent_path() / names()[0];
  write_text(file, std::regex_replace(read_text(file), std::regex("\"20[0-9]{2}-"), "\"2001-"));
  set_age(60);
  in_child(0, [&] {
    Journal journal(m_record, m_key, m_policy);
    journal.begin(candidate(2));
    journal.end(candidate(2), Status::ok, "", std::vector<std::int64_t>{7});
    journal.begin(candidate(0));  // and what was good before now is not
  });
  const Remains left = remains();
  ASSERT_EQ(left.crashed.size(), 1U);
  EXPECT_EQ(left.crashed[0].candidate, candidate(0));
  ASSERT_EQ(left.measured.size(), 2U);
  EXPECT_EQ(left.measured[0].candidate, candidate(1));
  EXPECT_EQ(left.measured[1].candidate, candidate(2));
  EXPECT_EQ(left.files.size(), 2U);
}

TEST_F(JournalTest, LaterNoteOnACandidateReplacesTheEarlier) {
  in_child(SIGKILL, [&] {
    Journal journal(m_record, m_key, m_policy);
    journal.begin(candidate(0));
    journal.end(candidate(0), Status::ok, "", {});
    journal.end(candidate(0), Status::ok, "", std::vector<std::int64_t>{1, 2});
    journal.begin(candidate(1));
    journal.end(candidate(1), Status::ok, "", std::vector<std::int64_t>{1});
    journal.begin(candidate(1));
    journal.end(candidate(1), Status::wrong_result, "differs", {});
  });
  const Remains left = remains();
  EXPECT_TRUE(left.crashed.empty());
  ASSERT_EQ(left.measured.size(), 2U);
  EXPECT_EQ(left.measured[0].samples_ns, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(left.measured[1].status, Status::wrong_result);
  EXPECT_TRUE(left.measured[1].samples_ns.empty());
}

TEST_F(JournalTest, ForkedChildDoesNotTouchItsParentsJournal) {
  Journal journal(m_record, m_key, m_policy);
  journal.begin(candidate(0));
  const fs::path file = m_record.parent_path() / names()[0];
  const std::string before = read_text(file);
  in_child(0, [&] {
    journal.end(candidate(0), Status::ok, "", {});
    journal.begin(candidate(1));
    journal.interrupted();
    journal.close(false);
  });
  EXPECT_EQ(read_text(file), before);
  journal.end(candidate(0), Status::ok, "", {});
  EXPECT_NE(read_text(file), before);
  journal.close(false);
  EXPECT_TRUE(names().empty());
}

TEST_F(JournalTest, SameProcessResumesWhatItKeptButNotWhatItIsWriting) {
  {
    Journal journal(m_record, m_key, m_policy);
    journal.begin(candidate(0));
    journal.end(candidate(0), Status::ok, "", std::vector<std::int64_t>{5, 6});
    journal.begin(candidate(1));
    EXPECT_TRUE(remains().files.empty()) << "in use";
    journal.interrupted();
    journal.close(true);
  }
  Remains left = remains();
  EXPECT_TRUE(left.crashed.empty());
  ASSERT_EQ(left.measured.size(), 1U);
  ASSERT_EQ(left.files.size(), 1U);

  Journal again(m_record, m_key, m_policy);
  again.begin(candidate(0));
  again.end(candidate(0), Status::ok, "", std::vector<std::int64_t>{7});
  again.close(true);
  left = remains();
  ASSERT_EQ(left.measured.size(), 1U);
  EXPECT_EQ(left.measured[0].samples_ns, std::vector<std::int64_t>{7}) << "measured anew";
}

TEST_F(JournalTest, TwoTuningsOfOneKeyInOneProcessHaveJournalsOfTheirOwn) {
  Journal first(m_record, m_key, m_policy);
  Journal second(m_record, m_key, m_policy);
  first.begin(candidate(0));
  second.begin(candidate(0));
  EXPECT_EQ(names().size(), 2U);
  first.close(false);
  EXPECT_EQ(names().size(), 1U);
  second.close(false);
  EXPECT_TRUE(names().empty());
}

TEST_F(JournalTest, ManyRecordsBesideItDoNotMatter) {
  write_text(m_record.parent_path() / "ffff.journal-h-1-2", "another record's");
  write_text(m_record.parent_path() / "0123abcd.json", "the record");
  die_at_candidate_2();
  EXPECT_EQ(remains().files.size(), 1U);
}

}  // namespace
}  // namespace disttune::store
