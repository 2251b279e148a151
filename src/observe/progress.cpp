#include "observe/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/samples.hpp"
#include "core/statistics.hpp"
#include "observe/event_lines.hpp"

namespace disttune::observe {

void Progress::visit_done(const VisitDone& e) {
  if (e.rank > 0) return;  // one line a job, not one a rank
  const auto now = m_now();
  if (!m_began) m_began = now;
  const bool timed = e.status == Status::ok && !e.samples_ns.empty() &&
                     std::ranges::none_of(e.samples_ns, [](std::int64_t s) {
                       return core::is_failure(s) || core::is_retry(s);
                     });
  if (timed) {
    const double ns = core::median(e.samples_ns);
    if (m_best_ns == 0 || ns < m_best_ns) {
      m_best_ns = ns;
      m_best = one_line(e.config.display());
    }
  }
  // The first heartbeat comes after its interval too: a short tuning says nothing.
  const auto since = m_shown_at.value_or(*m_began);
  const bool first_on_terminal = m_columns > 0 && !m_shown_at;
  if (!first_on_terminal &&
      now - since < (m_columns > 0 ? Clock::duration(k_redraw) : Clock::duration(k_heartbeat)))
    return;
  m_shown_at = now;
  const double seconds = std::chrono::duration<double>(now - *m_began).count();
  show(fmt::format("disttune: {}: {}/{} visits, {:.0f} s{}", e.function, e.done, e.total, seconds,
                   m_best_ns == 0 ? std::string()
                                  : fmt::format(", best {} ({})", readable_ns(m_best_ns), m_best)));
}

void Progress::decided(const Decided&) { clear(); }

void Progress::clear() {
  if (!m_on_screen) return;
  m_on_screen = false;
  m_out("\r\033[K");
}

void Progress::show(std::string text) {
  if (m_columns <= 0) {
    m_out(text + "\n");
    return;
  }
  // A line that wraps could not be rewritten. Bytes, not glyphs: at worst a few columns are given
  // away; a character is not cut in two.
  auto length = std::min(text.size(), static_cast<std::size_t>(m_columns - 1));
  while (length < text.size() && length > 0 && (text[length] & 0xC0) == 0x80) --length;
  text.resize(length);
  m_out("\r" + text + "\033[K");
  m_on_screen = true;
}

int stderr_columns() noexcept {
  if (isatty(STDERR_FILENO) == 0) return 0;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 80;
  return size.ws_col;
}

}  // namespace disttune::observe
