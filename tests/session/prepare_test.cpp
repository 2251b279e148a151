// Compiling candidates ahead in threads of ours that run the caller's code.
#include "session/prepare.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "disttune/config.hpp"

namespace disttune::session {
namespace {

class Preparing final : public detail::Attempt {
 public:
  [[nodiscard]] bool can_prepare() const override { return true; }
  void prepare(std::size_t candidate) override { on_prepare(candidate); }
  void run(std::size_t) override {}
  void drop_results() noexcept override {}
  void decided(std::size_t) override {}
  std::function<void(std::size_t)> on_prepare;
};

std::vector<Config> blocks(int n) {
  std::vector<Config> out;
  for (int i = 0; i < n; ++i) out.push_back(Config{{"BLOCK", i}});
  return out;
}

/// No process or thread more may be had, by one that is not allowed everything.
bool take_threads_away() {
  if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return false;
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_NPROC, &none) != 0) return false;
  try {
    std::thread([] {}).join();
    return false;
  } catch (const std::system_error&) {
    return true;
  }
}

TEST(Prepare, WhereNoThreadCanBeHadTheCallersDoesItAll) {
  constexpr int k_could_not_try = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!take_threads_away()) ::_exit(k_could_not_try);
    const auto space = blocks(4);
    Field field(space);
    Preparing attempt;
    int prepared = 0;
    attempt.on_prepare = [&](std::size_t) { ++prepared; };
    prepare_candidates(field, field.open(), attempt, 3);
    ::_exit(prepared);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == k_could_not_try) GTEST_SKIP() << "threads cannot be taken away here";
  EXPECT_EQ(WEXITSTATUS(status), 4);
}

TEST(Prepare, ACompilerThatAPreparationStartsCanBeInterrupted) {
  const auto space = blocks(2);
  Field field(space);
  Preparing attempt;
  std::barrier both(2);  // in two threads at once
  std::array<std::atomic<bool>, 2> blocked{};
  attempt.on_prepare = [&](std::size_t i) {
    both.arrive_and_wait();
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    blocked[i] = sigismember(&mask, SIGINT) != 0 || sigismember(&mask, SIGTERM) != 0;
  };
  prepare_candidates(field, field.open(), attempt, 2);
  EXPECT_FALSE(blocked[0]) << "it would inherit the mask";
  EXPECT_FALSE(blocked[1]) << "it would inherit the mask";
}

}  // namespace
}  // namespace disttune::session
