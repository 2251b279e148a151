// Waiting for a device with a deadline, which no driver offers.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "disttune/device.hpp"

namespace disttune::devices {

/// Calls `done` until it returns true or the deadline has passed; at least once. Spins at first,
/// because most waits are for one visit of a small kernel, which a thread that slept would find
/// late by a good part of it: without a pause for 100 µs, then asking every 10 µs, so that the
/// driver and the memory that it shares with the device are left alone while kernels are timed.
/// After 5 ms sleeps a thirty-second of the time waited so far, at most 1 ms.
template <class Done>
bool poll_until(Deadline deadline, Done&& done) {
  using std::chrono::microseconds;
  using clock = std::chrono::steady_clock;
  constexpr microseconds k_without_pause{100};
  constexpr microseconds k_pause{10};
  constexpr microseconds k_spin{5000};
  constexpr clock::duration k_longest = microseconds(1000);
  const auto begin = clock::now();
  for (;;) {
    if (done()) return true;
    const auto now = clock::now();
    if (now >= deadline) return false;
    const auto waited = now - begin;
    if (waited < k_spin) {
      const auto next = std::min<clock::time_point>(
          deadline, waited < k_without_pause ? now : clock::time_point(now + k_pause));
      do std::this_thread::yield();
      while (clock::now() < next);
    } else {
      const auto nap = std::min<clock::duration>(waited / 32, k_longest);
      std::this_thread::sleep_for(std::min<clock::duration>(nap, deadline - now));
    }
  }
}

}  // namespace disttune::devices
