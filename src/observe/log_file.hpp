// The log of one tuning, beside its record. Lines: "UTC time - LEVEL - message".
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "disttune/observer.hpp"

namespace disttune::observe {

/// Opened at the first line, appended to line by line, so that it is complete up to the moment a
/// process dies. Used by one thread at a time.
class LogFile {
 public:
  explicit LogFile(std::filesystem::path file) : m_file(std::move(file)) {}
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// False, once: the file cannot be written (`problem` says why); from then on lines are dropped.
  [[nodiscard]] bool write(Level level, std::string_view text);
  [[nodiscard]] const std::string& problem() const noexcept { return m_problem; }
  [[nodiscard]] const std::filesystem::path& file() const noexcept { return m_file; }

 private:
  bool open();
  bool fails(int error);

  std::filesystem::path m_file;
  std::string m_problem;
  std::string m_line;  ///< the last one: its memory serves the next
  int m_descriptor = -1;
};

}  // namespace disttune::observe
