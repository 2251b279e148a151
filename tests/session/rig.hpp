// A launcher whose time is a script: candidate i takes `cost(i)` nanoseconds of a scripted clock.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "disttune/disttune.hpp"
#include "disttune/testing/scripted_clock.hpp"
#include "disttune/testing/scripted_device.hpp"

namespace disttune::test {

struct Tile {
  int block = 1;
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Tile::block));
};

inline Space<Tile> tiles(std::initializer_list<int> blocks) {
  std::vector<Tile> out;
  for (const int b : blocks) out.push_back({.block = b});
  return Space<Tile>(out);
}

/// Warnings while it lives.
class Warnings {
 public:
  Warnings() : m_ear(std::make_shared<Ear>()), m_token(add_observer(m_ear)) {}
  ~Warnings() { remove_observer(m_token); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  [[nodiscard]] std::size_t with(const std::string& part) const {
    return static_cast<std::size_t>(
        std::count_if(m_ear->texts.begin(), m_ear->texts.end(),
                      [&](const std::string& t) { return t.find(part) != std::string::npos; }));
  }

 private:
  struct Ear : Observer {
    void message(const Message& m) noexcept override {
      if (m.level == Level::warning) texts.emplace_back(m.text);
    }
    std::vector<std::string> texts;
  };
  std::shared_ptr<Ear> m_ear;
  std::uint64_t m_token;
};

/// A fresh folder and a clean environment for each test.
class Session : public ::testing::Test {
 protected:
  Session() {
    std::string pattern = (std::filesystem::temp_directory_path() / "disttune-XXXXXX").string();
    root = ::mkdtemp(pattern.data());
    for (const char* name :
         {"ALWAYS_TUNE", "VERSION_CHECK", "MODE", "STRATEGY", "WARMUP", "REPEAT", "TIMER", "CACHE",
          "BUDGET", "LAYERS", "RETRY_CRASHED", "TIMEOUT", "WORKERS", "PROGRESS", "LOG_LEVEL"})
      ::unsetenv((std::string("TRITON_DIST_AUTOTUNE_") + name).c_str());
    // Processes that tune at the same time see each other by a file in the folder for temporary
    // ones; the tests beside this one are not to be seen.
    if (const char* before = std::getenv("TMPDIR")) m_tmpdir = before;
    std::filesystem::create_directory(root / ".tmp");
    ::setenv("TMPDIR", (root / ".tmp").c_str(), 1);
    set("HOME", root.string());
    set("CONTEXT_LOGS", (root / "context").string());
    set("LOG_LEVEL", "error");
  }
  ~Session() override {
    if (m_tmpdir)
      ::setenv("TMPDIR", m_tmpdir->c_str(), 1);
    else
      ::unsetenv("TMPDIR");
    std::filesystem::remove_all(root);
  }

  static void set(const std::string& name, const std::string& value) {
    ::setenv(("TRITON_DIST_AUTOTUNE_" + name).c_str(), value.c_str(), 1);
  }
  static void unset(const std::string& name) {
    ::unsetenv(("TRITON_DIST_AUTOTUNE_" + name).c_str());
  }

  /// Every run is noted, takes `cost(block)` ns, and may throw.
  void run(const Tile& t, int n) {
    runs.emplace_back(t.block, n);
    if (on_run) on_run(t, n);
    clock.advance(std::chrono::nanoseconds(cost(t.block)));
  }
  [[nodiscard]] std::size_t runs_of(int block) const {
    return static_cast<std::size_t>(
        std::count_if(runs.begin(), runs.end(), [&](const auto& r) { return r.first == block; }));
  }

  auto scale(const Space<Tile>& space, const std::string& name = "scale") {
    return autotune(
               name, space, [](int n) { return n; }, [this](const Tile& t, int n) { run(t, n); })
        .version("1")
        .timer(clock.reader());
  }

  std::filesystem::path root;
  testing::ScriptedClock clock;
  std::function<std::int64_t(int)> cost = [](int block) { return 1000 * block; };
  std::function<void(const Tile&, int)> on_run;
  std::vector<std::pair<int, int>> runs;  ///< (block, n), in order

 private:
  std::optional<std::string> m_tmpdir;  ///< what it was before
};

}  // namespace disttune::test
