// Alternatives measured in turns: a machine that slows down slows all of them, so their ratio
// holds.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace bench {

/// Processor time of this thread, ns: other threads' share of a core does not count.
inline std::int64_t thread_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
inline std::int64_t wall_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/// A folder for this process's files: under TMPDIR where that is set (to measure a certain file
/// system), else in memory, so that another program's writes do not count.
inline std::filesystem::path scratch() {
  namespace fs = std::filesystem;
  const char* asked = std::getenv("TMPDIR");
  std::error_code failed;
  const fs::path parent = asked != nullptr                       ? fs::path(asked)
                          : fs::is_directory("/dev/shm", failed) ? fs::path("/dev/shm")
                                                                 : fs::temp_directory_path();
  return parent / ("disttune-bench-" + std::to_string(::getpid()));
}

/// The compiler must believe that the value is used.
template <class T>
void keep(const T& v) {
  asm volatile("" : : "r,m"(v) : "memory");
}

/// Runs every alternative once a round, in turns and starting with another one each round; returns
/// for each the median over rounds of `clock` per call. `run` makes `calls` calls.
inline std::vector<double> in_turns(const std::vector<std::function<void()>>& runs,
                                    std::size_t calls, int rounds = 15,
                                    const std::function<std::int64_t()>& clock = thread_ns) {
  std::vector<std::vector<double>> samples(runs.size());
  for (const auto& run : runs) run();  // caches and branch predictors know all of them
  for (int round = 0; round < rounds; ++round)
    for (std::size_t k = 0; k < runs.size(); ++k) {
      const std::size_t i = (k + static_cast<std::size_t>(round)) % runs.size();
      const std::int64_t before = clock();
      runs[i]();
      samples[i].push_back(static_cast<double>(clock() - before) / static_cast<double>(calls));
    }
  std::vector<double> out;
  for (auto& s : samples) out.push_back(median(std::move(s)));
  return out;
}

/// Figures by name, and for some the most that they may be.
class Report {
 public:
  void figure(const std::string& name, double value) { m_figures[name] = value; }
  void limited(const std::string& name, double value, double limit) {
    m_figures[name] = value;
    m_limits[name] = limit;
  }
  /// The last line of a benchmark.
  void print() const {
    nlohmann::json out = m_figures;
    out["limits"] = m_limits;
    std::puts(out.dump().c_str());
  }

 private:
  nlohmann::json m_figures = nlohmann::json::object();
  nlohmann::json m_limits = nlohmann::json::object();
};

}  // namespace bench
