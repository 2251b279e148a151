#include "observe/context_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/text.hpp"
#include "observe/event_lines.hpp"
#include "observe/observe.hpp"

namespace disttune::observe {

ContextLog::~ContextLog() {
  if (m_file >= 0) ::close(m_file);
}

void ContextLog::line(std::string_view text) noexcept {
  if (m_failed) return;
  try {
    const std::filesystem::path path = m_folder / fmt::format("rank-{}.log", m_rank);
    if (m_file < 0) {
      std::error_code error;
      std::filesystem::create_directories(m_folder, error);
      m_file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    }
    const std::string out = fmt::format("{} - {}\n", core::utc_now(), one_line(text));
    // One write a line: lines of several processes do not mix.
    if (m_file < 0 || ::write(m_file, out.data(), out.size()) < 0) {
      m_failed = true;
      message(Level::warning,
              fmt::format("disttune: cannot write {} ({}); contextual calls go on without a log",
                          path.string(), std::strerror(errno)),
              "context log " + path.string());
    }
  } catch (...) {
    m_failed = true;
  }
}

}  // namespace disttune::observe
