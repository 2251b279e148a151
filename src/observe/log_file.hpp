// The log of one tuning, beside its record. Lines: "UTC time - LEVEL - message".
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "disttune/observer.hpp"

namespace disttune::observe {

/// Opened at the first flush. The lines of an event are one write, so that it is complete up to the
/// last event before a process dies. Used by one thread at a time.
class LogFile {
 public:
  explicit LogFile(std::filesystem::path file) : m_file(std::move(file)) {}
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Once the file could not be written, nothing.
  void add(Level level, std::string_view text);
  /// Writes the lines added since the last time. False, once: the file cannot be written (`problem`
  /// says why); from then on lines are dropped.
  [[nodiscard]] bool flush();
  [[nodiscard]] const std::string& problem() const noexcept { return m_problem; }
  [[nodiscard]] const std::filesystem::path& file() const noexcept { return m_file; }

 private:
  bool open();
  bool fails(int error);

  std::filesystem::path m_file;
  std::string m_problem;
  std::string m_lines;  ///< not written yet
  int m_descriptor = -1;
};

}  // namespace disttune::observe
