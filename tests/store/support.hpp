// Records, folders and faulty file systems for the tests of the store.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "store/atomic_file.hpp"
#include "store/store.hpp"

namespace disttune::store::testing {

namespace fs = std::filesystem;

/// A fresh folder, gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "disttune-store-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    m_path = pattern;
  }
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(m_path, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return m_path; }

 private:
  fs::path m_path;
};

/// Replaces system calls for the life of the object.
class Faults {
 public:
  Faults() : m_saved(file_calls()) {}
  ~Faults() { file_calls() = m_saved; }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

 private:
  FileCalls m_saved;
};

inline std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline void write_text(const fs::path& file, std::string_view text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

inline RecordKey make_key(std::int64_t size = 128) {
  RecordKey key;
  key.identity = Value::dict({{"source", "0123abcd"}});
  key.key = Value::tuple({Value::tuple({Value(size)}), Value("float32")});
  key.hardware = Value::dict({{"name", "H200"}, {"memory_gib", 141}, {"units", 132}});
  key.policy = Value::dict({{"clock", "device"}, {"cache", "hot"}});
  return key;
}

inline Value deps(std::string_view triton) {
  return Value::dict({{"triton", triton}, {"torch", "2.13"}, {"driver", Value()}});
}

inline TuningRecord make_tuning(std::string_view triton = "3.6.0", std::int64_t best = 100,
                                int candidates = 3) {
  TuningRecord tuning;
  tuning.deps = deps(triton);
  for (int i = 0; i < candidates; ++i) {
    CandidateRecord c;
    c.config = Config{{"WARPS", Value(1 << i)}, {"BLOCK", Value(256 + i)}};
    c.status = Status::ok;
    for (int k = 0; k < 4; ++k) {
      c.samples_ns.push_back(best + 10 * i + k);
      c.host_ns.push_back(best + 20 * i + k);
    }
    c.score_ns = static_cast<double>(best + 10 * i) + 1.5;
    tuning.candidates.push_back(c);
  }
  tuning.winner = tuning.candidates.front().config.identity();
  tuning.default_config = tuning.candidates.back().config.identity();
  tuning.created = "2026-11-29T19:12:12Z";
  tuning.warmup = 5;
  tuning.repeat = 4;
  tuning.prepare_seconds = 0.5;
  tuning.measure_seconds = 0.25;
  tuning.gate = "stream wait";
  tuning.quality = {"contended"};
  tuning.rank_medians = {{0, 101}, {1, 103}};
  tuning.host = "node-1";
  tuning.tool_version = "0.1.0";
  return tuning;
}

inline Record make_record(std::int64_t size = 128, std::string_view triton = "3.6.0",
                          std::int64_t best = 100) {
  Record record;
  record.name = "scale";
  record.module = "kernels.scale";
  record.key = make_key(size);
  record.tunings.push_back(make_tuning(triton, best));
  return record;
}

}  // namespace disttune::store::testing
