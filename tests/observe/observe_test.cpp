#include "observe/observe.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/samples.hpp"
#include "disttune/trace.hpp"
#include "observe/progress.hpp"

namespace disttune::observe {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

CandidateRecord candidate(int block, std::optional<double> score, Status status = Status::ok,
                          std::string reason = {}) {
  CandidateRecord c;
  c.config = Config{{"BLOCK", block}};
  c.status = status;
  c.reason = std::move(reason);
  c.score_ns = score;
  return c;
}

/// A folder of its own, a sink that keeps what is shown, and one tuning's events.
class Observe : public ::testing::Test {
 protected:
  Observe() {
    unsetenv("TRITON_DIST_AUTOTUNE_LOG_LEVEL");
    char name[] = "/tmp/disttune-observe-XXXXXX";
    folder = mkdtemp(name);
    key.key = Value("shape");
    set_message_sink([this](Level level, std::string_view text) {
      shown.emplace_back(level, std::string(text));
    });
  }
  ~Observe() override {
    set_message_sink({});
    fs::permissions(folder, fs::perms::owner_all);
    fs::remove_all(folder);
  }

  [[nodiscard]] fs::path log() const { return folder / "f" / "abc.log-now"; }
  [[nodiscard]] static Lines lines_of(const fs::path& file) {
    std::ifstream in(file);
    Lines lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  [[nodiscard]] static std::size_t count(const Lines& lines, std::string_view part) {
    return static_cast<std::size_t>(
        std::ranges::count_if(lines, [&](const std::string& l) { return l.find(part) != l.npos; }));
  }

  void play(int rank = -1) const {
    const std::vector<CandidateRecord> space{
        candidate(64, {}, Status::skipped), candidate(128, {}, Status::skipped),
        candidate(4096, {}, Status::pruned, "prune_fn refused it")};
    emit(Miss{"scale", key, "no record", 2, rank, "{\"torch\": \"2.9\"}", space});
    const std::vector<std::int64_t> samples{12000, 12300, core::sample_of(core::Retry::spoiled)};
    emit(VisitDone{"scale", 0, space[0].config, Status::ok, {}, samples, 1, 2, rank});
    emit(VisitDone{"scale",
                   1,
                   space[1].config,
                   Status::launch_failed,
                   "warm-up: std::runtime_error: two\nlines",
                   {},
                   2,
                   2,
                   rank});
    TuningRecord tuning;
    tuning.candidates = {candidate(128, {}, Status::launch_failed, "boom"), candidate(256, 15000.0),
                         candidate(64, 12100.0)};
    tuning.winner = tuning.candidates[2].config.identity();
    emit(Decided{"scale", key, tuning, "/store/f/abc.json", rank});
  }

  fs::path folder;
  RecordKey key;
  std::vector<std::pair<Level, std::string>> shown;
};

TEST_F(Observe, a_log_tells_a_tuning_from_its_candidates_to_the_sorted_list) {
  {
    const Scope scope(log(), false, "off");
    play();
  }
  const Lines lines = lines_of(log());
  const std::regex form(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ - (DEBUG|INFO|WARNING|ERROR) - .+)");
  for (const auto& line : lines) EXPECT_TRUE(std::regex_match(line, form)) << line;
  EXPECT_EQ(count(lines, "tuning scale: 2 candidates; no record"), 1u);
  EXPECT_EQ(count(lines, "INFO - key " + std::string(key.text().text())), 1u);
  EXPECT_EQ(count(lines, "deps {\"torch\": \"2.9\"}"), 1u);
  EXPECT_EQ(count(lines, "candidate BLOCK=64"), 1u);
  EXPECT_EQ(count(lines, "candidate BLOCK=4096: pruned: prune_fn refused it"), 1u);
  EXPECT_EQ(count(lines, "median 12.150 us; samples in ns: 12000 12300 spoiled"), 1u);
  const auto at = [&](std::string_view part) {
    return std::ranges::find_if(lines,
                                [&](const std::string& l) { return l.find(part) != l.npos; });
  };
  EXPECT_LT(at("1. BLOCK=64: 12.100 us (chosen)"), at("2. BLOCK=256: 15.000 us"));
  EXPECT_LT(at("2. BLOCK=256: 15.000 us"), at("-  BLOCK=128: launch_failed: boom"));
  EXPECT_LT(at("-  BLOCK=128"), at("stored in /store/f/abc.json"));
  EXPECT_NE(at("stored in"), lines.end());
  EXPECT_TRUE(shown.empty()) << shown[0].second;
}

// S54: the failure log did not name the config.
TEST_F(Observe, S54_a_failure_names_candidate_configuration_key_rank_and_phase) {
  {
    const Scope scope(log(), false, "off");
    play(3);
  }
  const std::vector<std::string> parts{
      "scale candidate #1", "BLOCK=128",     std::string(key.text().text()),   "rank 3",
      "phase measure",      "launch_failed", "std::runtime_error: two\\nlines"};
  for (const auto& line : lines_of(log())) {
    if (line.find("- WARNING -") == line.npos) continue;
    for (const auto& part : parts)
      EXPECT_NE(line.find(part), line.npos) << part << " is not in: " << line;
  }
  EXPECT_EQ(count(lines_of(log()), "- WARNING -"), 1u);
}

TEST_F(Observe, a_verbose_tuning_shows_its_lines_as_information) {
  {
    const Scope scope({}, true, "off");
    play();
  }
  ASSERT_GT(shown.size(), 5u);
  for (const auto& [level, text] : shown) EXPECT_EQ(level, Level::info) << text;
  shown.clear();
  play();  // no scope: nobody asked
  EXPECT_TRUE(shown.empty());
}

TEST_F(Observe, the_log_level_decides_what_is_shown) {
  const auto shown_at = [&](const char* level) {
    setenv("TRITON_DIST_AUTOTUNE_LOG_LEVEL", level, 1);
    shown.clear();
    message(Level::debug, "d");
    message(Level::info, "i");
    message(Level::warning, "w");
    message(Level::error, "e");
    unsetenv("TRITON_DIST_AUTOTUNE_LOG_LEVEL");
    std::string all;
    for (const auto& [l, text] : shown) all += text;
    return all;
  };
  EXPECT_EQ(shown_at("debug"), "diwe");
  EXPECT_EQ(shown_at("info"), "iwe");
  EXPECT_EQ(shown_at("warning"), "we");
  EXPECT_EQ(shown_at("error"), "e");
  EXPECT_EQ(shown_at("nonsense"), "we");
}

// S87: messages meant to be logged once were keyed wrongly: spam, or silence.
TEST_F(Observe, S87_a_cause_is_one_line_and_no_distinct_message_is_lost) {
  for (int i = 0; i < 10'000; ++i) {
    message(Level::warning, "the same notice", "S87 same");
    message(Level::warning, "notice " + std::to_string(i % 100), "S87 " + std::to_string(i % 100));
  }
  std::set<std::string> distinct;
  for (const auto& [level, text] : shown) distinct.insert(text);
  EXPECT_EQ(distinct.size(), 101u);
  EXPECT_EQ(shown.size(), 101u);

  shown.clear();
  for (int i = 0; i < 10'000; ++i)  // more causes than are remembered
    message(Level::warning, "many " + std::to_string(i), "S87 many " + std::to_string(i));
  distinct.clear();
  for (const auto& [level, text] : shown) distinct.insert(text);
  EXPECT_EQ(distinct.size(), 10'000u);
}

TEST_F(Observe, S87_from_many_threads_a_cause_is_one_line) {
  std::atomic<int> lines{0};
  set_message_sink([&](Level, std::string_view) { ++lines; });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([] {
        for (int i = 0; i < 1000; ++i) message(Level::warning, "notice", "S87 threads");
      });
  }
  EXPECT_EQ(lines, 1);
}

TEST_F(Observe, messages_without_a_cause_are_never_merged) {
  message(Level::warning, "same");
  message(Level::warning, "same");
  EXPECT_EQ(shown.size(), 2u);
}

TEST_F(Observe, a_log_that_cannot_be_written_is_one_warning_a_folder) {
  std::ofstream(folder / "f") << "a file where the folder should be";
  for (int i = 0; i < 3; ++i) {
    const Scope scope(log(), false, "off");
    play();
  }
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].first, Level::warning);
  EXPECT_NE(shown[0].second.find(log().string()), std::string::npos) << shown[0].second;
  EXPECT_NE(shown[0].second.find("Not a directory"), std::string::npos) << shown[0].second;
}

TEST_F(Observe, a_full_disk_is_a_warning_and_no_error) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Scope scope("/dev/full", false, "off");
  play();
  EXPECT_EQ(shown.size(), 1u);
}

TEST_F(Observe, scopes_nest_and_belong_to_their_thread) {
  const fs::path inner_log = folder / "inner.log";
  {
    const Scope outer(log(), false, "off");
    message(Level::info, "disttune: outer 1");
    {
      const Scope inner(inner_log, false, "off");
      message(Level::info, "disttune: inner");
    }
    std::thread([] { message(Level::info, "elsewhere"); }).join();
    message(Level::info, "outer 2");
  }
  message(Level::info, "after");
  const Lines outer_lines = lines_of(log());
  ASSERT_EQ(outer_lines.size(), 2u);
  EXPECT_TRUE(outer_lines[0].ends_with(" - INFO - outer 1")) << outer_lines[0];
  EXPECT_TRUE(outer_lines[1].ends_with(" - INFO - outer 2")) << outer_lines[1];
  EXPECT_EQ(lines_of(inner_log).size(), 1u);
}

TEST_F(Observe, observers_hear_every_event_until_they_are_removed) {
  struct Ear : Observer {
    int misses = 0, visits = 0, decisions = 0, messages = 0;
    void miss(const Miss&) noexcept override { ++misses; }
    void visit_done(const VisitDone&) noexcept override { ++visits; }
    void decided(const Decided&) noexcept override { ++decisions; }
    void message(const Message& e) noexcept override {
      ++messages;
      EXPECT_EQ(e.cause, "ear");
    }
  };
  const auto ear = std::make_shared<Ear>();
  const auto token = add_observer(ear);
  const auto second = add_observer(std::make_shared<Observer>());
  EXPECT_NE(token, second);
  play();
  message(Level::debug, "hm", "ear");
  remove_observer(token);
  remove_observer(token);  // twice is nothing
  remove_observer(second);
  play();
  EXPECT_EQ(std::tuple(ear->misses, ear->visits, ear->decisions, ear->messages),
            std::tuple(1, 2, 1, 1));
  EXPECT_EQ(ear.use_count(), 1);
  EXPECT_THROW(add_observer(nullptr), std::invalid_argument);
}

TEST_F(Observe, an_observer_may_remove_itself) {
  struct Once : Observer {
    std::uint64_t token = 0;
    int heard = 0;
    void message(const Message&) noexcept override {
      ++heard;
      remove_observer(token);
    }
  };
  auto once = std::make_shared<Once>();
  const std::weak_ptr<Once> watch = once;
  once->token = add_observer(once);
  once.reset();
  message(Level::info, "now");
  EXPECT_TRUE(watch.expired());
}

TEST_F(Observe, observers_are_called_by_one_thread_at_a_time) {
  struct Slow : Observer {
    void message(const Message& e) noexcept override {
      overlapped = overlapped || inside.exchange(true);
      if (e.text == "first") {
        other = std::thread([] { disttune::observe::message(Level::debug, "second"); });
        for (int i = 0; i < 1000 && !overlapped; ++i) std::this_thread::yield();
      }
      ++heard;
      inside = false;
    }
    std::thread other;
    std::atomic<bool> inside = false, overlapped = false;
    int heard = 0;  // not atomic on purpose
  };
  const auto slow = std::make_shared<Slow>();
  const auto token = add_observer(slow);
  message(Level::debug, "first");
  slow->other.join();
  remove_observer(token);
  EXPECT_EQ(slow->heard, 2);
  EXPECT_FALSE(slow->overlapped);
}

TEST_F(Observe, without_a_sink_messages_go_to_standard_error) {
  set_message_sink({});
  ::testing::internal::CaptureStderr();
  message(Level::warning, "disttune: careful");
  message(Level::error, "broken");
  message(Level::info, "not shown");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "disttune: warning: careful\ndisttune: error: broken\n");
}

TEST_F(Observe, a_log_is_named_after_its_record_time_and_rank) {
  const fs::path record = "/store/f/0123.json";
  EXPECT_TRUE(std::regex_match(log_file_name(record, -1).string(),
                               std::regex(R"(/store/f/0123\.log-\d{8}T\d{6}\.\d{6}Z)")));
  EXPECT_TRUE(std::regex_match(log_file_name(record, 12).string(),
                               std::regex(R"(/store/f/0123\.log-\d{8}T\d{6}\.\d{6}Z-rank12)")));
}

TEST_F(Observe, a_trace_is_a_timeline_of_visits) {
  const fs::path file = folder / "trace.json";
  const auto token = add_observer(trace_file(file.string()));
  play(2);
  remove_observer(token);
  std::ifstream in(file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto events = nlohmann::json::parse(text + "]");  // the form needs no closing bracket
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["ph"], "i");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_EQ(events[1]["name"], "#0 BLOCK=64");
  EXPECT_EQ(events[1]["pid"], 2);
  EXPECT_EQ(events[1]["args"]["samples_ns"][0], 12000);
  EXPECT_EQ(events[2]["args"]["status"], "launch_failed");
  EXPECT_EQ(events[2]["ts"],
            events[1]["ts"].get<std::int64_t>() + events[1]["dur"].get<std::int64_t>());
  EXPECT_EQ(events[3]["cat"], "decided");
  EXPECT_THROW(static_cast<void>(trace_file((folder / "no" / "trace.json").string())), Error);
}

struct ProgressRig {
  explicit ProgressRig(int columns)
      : progress(
            columns, [this](std::string_view text) { out += text; }, [this] { return now; }) {}
  void visit(std::size_t done, std::int64_t ns, int rank = -1) {
    const std::vector<std::int64_t> samples{ns};
    progress.visit_done(VisitDone{"scale", done, config, Status::ok, {}, samples, done, 9, rank});
  }
  Config config{{"BLOCK", 64}};
  std::string out;
  Progress::Clock::time_point now{1h};
  Progress progress;
};

TEST(Progress, on_a_terminal_one_line_is_rewritten_and_taken_away) {
  ProgressRig rig(200);
  rig.visit(1, 12000);
  EXPECT_EQ(rig.out, "\rdisttune: scale: 1/9 visits, 0 s, best 12.000 us (BLOCK=64)\033[K");
  rig.out.clear();
  rig.now += 50ms;
  rig.visit(2, 11000);
  EXPECT_EQ(rig.out, "");
  rig.now += 2s;
  rig.visit(3, 13000);
  EXPECT_EQ(rig.out, "\rdisttune: scale: 3/9 visits, 2 s, best 11.000 us (BLOCK=64)\033[K");
  rig.out.clear();
  rig.progress.clear();
  rig.progress.clear();
  EXPECT_EQ(rig.out, "\r\033[K");
}

TEST(Progress, a_line_never_wraps_and_never_cuts_a_character) {
  ProgressRig rig(20);
  rig.visit(1, 12000);
  EXPECT_EQ(rig.out, "\rdisttune: scale: 1/\033[K");
  ProgressRig narrow(12);
  const Config config{{"ä", 1}};
  narrow.progress.visit_done(VisitDone{"äöü", 0, config, Status::pruned, {}, {}, 1, 2, -1});
  EXPECT_EQ(narrow.out, "\rdisttune: \033[K");
}

TEST(Progress, elsewhere_a_plain_line_every_few_seconds) {
  ProgressRig rig(0);
  for (std::size_t i = 1; i <= 120; ++i) {
    rig.visit(i, 12000);
    rig.now += 100ms;
  }
  EXPECT_EQ(rig.out,
            "disttune: scale: 51/9 visits, 5 s, best 12.000 us (BLOCK=64)\n"
            "disttune: scale: 101/9 visits, 10 s, best 12.000 us (BLOCK=64)\n");
}

TEST(Progress, only_the_first_rank_draws) {
  ProgressRig rig(80);
  rig.visit(1, 12000, 1);
  EXPECT_EQ(rig.out, "");
  rig.visit(1, 12000, 0);
  EXPECT_NE(rig.out, "");
}

}  // namespace
}  // namespace disttune::observe
