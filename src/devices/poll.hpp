// Waiting for a device with a deadline, which no driver offers.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "disttune/device.hpp"

namespace disttune::devices {

/// Calls `done` until it returns true or the deadline has passed; at least once. Spins at first,
/// because most waits are for a few microseconds of work; then sleeps a sixteenth of the time
/// waited so far (20 µs … 1 ms), so that a wait costs at most about 6 % more than the work.
template <class Done>
bool poll_until(Deadline deadline, Done&& done) {
  using std::chrono::microseconds;
  using clock = std::chrono::steady_clock;
  constexpr microseconds k_spin{100};
  constexpr clock::duration k_shortest = microseconds(20);
  constexpr clock::duration k_longest = microseconds(1000);
  const auto begin = clock::now();
  for (;;) {
    if (done()) return true;
    const auto now = clock::now();
    if (now >= deadline) return false;
    const auto waited = now - begin;
    if (waited < k_spin) {
      std::this_thread::yield();
    } else {
      const auto nap = std::clamp<clock::duration>(waited / 16, k_shortest, k_longest);
      std::this_thread::sleep_for(std::min<clock::duration>(nap, deadline - now));
    }
  }
}

}  // namespace disttune::devices
