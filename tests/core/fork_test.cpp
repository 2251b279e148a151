#include "core/fork.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using disttune::core::PerProcess;

struct Guarded {
  std::mutex mutex;
  int entries = 0;
};

/// What `child` returns in a forked child.
template <class Child>
int exit_of(const Child& child) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(PerProcess, AChildDoesNotMeetTheLocksAndListsOfItsParent) {
  PerProcess<Guarded> guarded;
  const std::lock_guard lock(guarded.get().mutex);
  guarded.get().entries = 7;
  EXPECT_EQ(exit_of([&] {
              Guarded& mine = guarded.get();
              if (!mine.mutex.try_lock() || mine.entries != 0) return 1;
              mine.entries = 5;
              if (guarded.get().entries != 5) return 2;
              return exit_of([&] { return guarded.get().entries == 0 ? 3 : 4; });
            }),
            3);
  EXPECT_EQ(guarded.get().entries, 7);
}

TEST(PerProcess, AChildLeavesWhatIsItsParentsWhenItGoes) {
  static int destroyed = 0;
  struct Counted {
    ~Counted() { ++destroyed; }
  };
  {
    PerProcess<Counted> counted;
    static_cast<void>(counted.get());
    EXPECT_EQ(exit_of([&] {
                counted.~PerProcess();
                return destroyed;
              }),
              0);
  }
  EXPECT_EQ(destroyed, 1);
}

TEST(PerProcess, AllThreadsSeeOne) {
  for (int round = 0; round < 50; ++round) {
    PerProcess<std::atomic<int>> counted;
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        while (!go) std::this_thread::yield();
        ++counted.get();
      });
    go = true;
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(counted.get(), 4);
  }
}

}  // namespace
