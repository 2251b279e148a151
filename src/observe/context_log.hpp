// The log of contextual calls, `<folder>/rank-<r>.log`: appended, one line a step.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace disttune::observe {

class ContextLog {
 public:
  /// Nothing is opened before the first line. A folder that cannot be written costs one warning.
  ContextLog(std::filesystem::path folder, int rank) : m_folder(std::move(folder)), m_rank(rank) {}
  ~ContextLog();
  ContextLog(const ContextLog&) = delete;
  ContextLog& operator=(const ContextLog&) = delete;

  /// Writes "UTC time - text" at once. Never throws.
  void line(std::string_view text) noexcept;

 private:
  std::filesystem::path m_folder;
  int m_rank;
  int m_file = -1;
  bool m_failed = false;
};

}  // namespace disttune::observe
