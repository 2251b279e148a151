#include "observe/log_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/text.hpp"
#include "observe/event_lines.hpp"

namespace disttune::observe {

LogFile::~LogFile() {
  if (m_descriptor >= 0) ::close(m_descriptor);
}

void LogFile::add(Level level, std::string_view text) {
  if (m_file.empty() || !m_problem.empty()) return;
  m_lines += core::utc_now();
  m_lines += " - ";
  m_lines += name_of(level);
  m_lines += " - ";
  append_one_line(m_lines, text);
  m_lines += '\n';
}

bool LogFile::flush() {
  if (m_lines.empty()) return true;
  if (m_descriptor < 0 && !open()) return false;
  for (std::string_view rest = m_lines; !rest.empty();) {
    const ssize_t n = ::write(m_descriptor, rest.data(), rest.size());
    if (n >= 0)
      rest.remove_prefix(static_cast<std::size_t>(n));
    else if (errno != EINTR)
      return fails(errno);
  }
  m_lines.clear();
  return true;
}

bool LogFile::open() {
  std::error_code error;
  std::filesystem::create_directories(m_file.parent_path(), error);
  if (error) return fails(error.value());
  m_descriptor = ::open(m_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  return m_descriptor >= 0 || fails(errno);
}

bool LogFile::fails(int error) {
  m_problem = std::generic_category().message(error);
  m_lines.clear();
  return false;
}

}  // namespace disttune::observe
