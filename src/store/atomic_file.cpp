#include "store/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "core/text.hpp"

namespace disttune::store {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t k_ms = 1'000'000;

int call_open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
int call_stat(const char* path, struct ::stat* out) { return ::stat(path, out); }
int call_fstat(int fd, struct ::stat* out) { return ::fstat(fd, out); }

int call_rename_new(const char* from, const char* to) {
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE));
}

std::int64_t call_now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}
void call_sleep_ns(std::int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

FileError failed(std::string_view what, const fs::path& file, int code) {
  return {code,
          fmt::format("{} {}: {}", what, file.string(), std::generic_category().message(code))};
}

/// What a network file system reports for a moment and not for good.
bool is_passing(int code) noexcept { return code == EBUSY || code == ESTALE || code == EINTR; }

/// Calls `attempt` (0 or an errno) until it succeeds, fails for good, or has passed six times.
template <class F>
int with_retries(F&& attempt) {
  std::int64_t pause = 8 * k_ms;
  int code = attempt();
  for (int i = 0; i < 5 && is_passing(code); ++i, pause *= 2) {
    file_calls().sleep_ns(pause);
    code = attempt();
  }
  return code;
}

/// Renames without replacing anything, or returns why not: EEXIST, EOPNOTSUPP where the file system
/// knows neither such a rename nor links …
int rename_new(const char* from, const char* to) {
  const FileCalls& calls = file_calls();
  if (calls.rename_new(from, to) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (calls.link(from, to) == 0) {
    (void)calls.unlink(from);  // what stays has a second name, which nobody reads
    return 0;
  }
  const bool no_links = errno == EPERM || errno == ENOSYS || errno == EMLINK;
  return no_links ? EOPNOTSUPP : errno;
}
/// … which leaves a look before the rename, and microseconds between the two.
int rename_aside(const char* from, const char* to) {
  const int code = rename_new(from, to);
  if (code != EOPNOTSUPP) return code;
  std::error_code unknown;
  if (fs::exists(fs::symlink_status(to, unknown))) return EEXIST;
  return file_calls().rename(from, to) == 0 ? 0 : errno;
}

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = file_calls().write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? ENOSPC : errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

/// Hidden, so that nobody's `*.json` finds it, and in the same folder, so that renaming is atomic.
fs::path temporary_name(const fs::path& file) {
  return file.parent_path() / ("." + file.stem().string() + ".tmp" + unique_suffix());
}

FileError write_temporary(const fs::path& temporary, std::string_view text) {
  const FileCalls& calls = file_calls();
  int fd = -1;
  const auto open = [&] {
    fd = calls.open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd < 0 ? errno : 0;
  };
  int code = with_retries(open);
  if (code == ENOENT) {
    if (FileError error = make_folders(temporary.parent_path())) return error;
    code = with_retries(open);
  }
  if (code != 0) return failed("cannot create", temporary, code);
  code = write_all(fd, text);
  // Network and quota systems may report a failed write only here.
  if (calls.close(fd) != 0 && code == 0 && errno != EINTR) code = errno;
  if (code == 0) return {};
  (void)calls.unlink(temporary.c_str());
  return failed("cannot write", temporary, code);
}

/// `rename` returns 0 or an errno.
template <class F>
FileError publish(const fs::path& file, std::string_view text, F&& rename) {
  const fs::path temporary = temporary_name(file);
  if (FileError error = write_temporary(temporary, text)) return error;
  const int code = with_retries([&] { return rename(temporary.c_str(), file.c_str()); });
  if (code == 0) return {};
  (void)file_calls().unlink(temporary.c_str());
  return failed("cannot rename a temporary file to", file, code);
}

FileContent content_without(FileState state, std::string reason) {
  FileContent out;
  out.state = state;
  out.reason = std::move(reason);
  return out;
}

FileContent not_opened(int code) {
  if (code == ENOENT || code == ENOTDIR) return content_without(FileState::missing, "no record");
  const std::string reason = std::generic_category().message(code);
  // ENXIO: a socket or device; ELOOP: links in a circle.
  return content_without(
      code == ELOOP || code == ENXIO ? FileState::not_a_file : FileState::unreadable, reason);
}

int read_all(int fd, std::size_t size, std::string& out) {
  out.resize(size);
  std::size_t have = 0;
  while (have < size) {
    const ssize_t n = file_calls().read(fd, out.data() + have, size - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  out.resize(have);
  return 0;
}

FileContent read_open_file(int fd, std::size_t limit, bool head_only, int& code) {
  FileContent out;
  struct ::stat about {};
  if (file_calls().fstat(fd, &about) != 0) {
    code = errno;
    return content_without(FileState::unreadable, std::generic_category().message(code));
  }
  out.inode = about.st_ino;
  const auto size = static_cast<std::size_t>(std::max<off_t>(about.st_size, 0));
  if (!S_ISREG(about.st_mode)) {
    out.state = FileState::not_a_file;
    out.reason = S_ISDIR(about.st_mode) ? "a folder is in its place" : "not a regular file";
  } else if (size > limit && !head_only) {
    out.state = FileState::too_large;
    out.reason = fmt::format("{} bytes, more than {} are not read", size, limit);
  } else {
    // Files in /proc say that they are empty, so a beginning is read without asking for the size.
    code = read_all(fd, head_only ? limit : size, out.text);
    out.state = code == 0 ? FileState::read : FileState::unreadable;
    if (code != 0) out.reason = std::generic_category().message(code);
  }
  return out;
}

}  // namespace

FileCalls& file_calls() noexcept {
  static FileCalls calls{
      call_open, ::read,   ::write, ::close, call_stat, call_fstat, ::rename,    call_rename_new,
      ::link,    ::unlink, ::mkdir, ::rmdir, ::fchmod,  ::flock,    call_now_ns, call_sleep_ns};
  return calls;
}

FileContent read_file(const fs::path& file, std::size_t limit, bool head_only) {
  const FileCalls& calls = file_calls();
  FileContent out;
  for (int attempt = 0; attempt < 3; ++attempt) {
    int code = 0;
    // Without O_NONBLOCK a pipe in the record's place would be waited for.
    const int fd = calls.open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) {
      code = errno;
      out = not_opened(code);
    } else {
      out = read_open_file(fd, limit, head_only, code);
      (void)calls.close(fd);
    }
    if (!is_passing(code)) return out;
    if (attempt < 2) calls.sleep_ns(10 * k_ms);
  }
  return out;
}

FileError make_folders(const fs::path& folder) {
  if (folder.empty()) return {};
  const auto make = [&] { return file_calls().mkdir(folder.c_str(), 0777) == 0 ? 0 : errno; };
  int code = with_retries(make);
  if (code == ENOENT && folder.has_relative_path() && folder.parent_path() != folder) {
    if (FileError error = make_folders(folder.parent_path())) return error;
    code = with_retries(make);
  }
  if (code == 0) return {};
  struct ::stat about {};
  const bool there = file_calls().stat(folder.c_str(), &about) == 0;
  if (there && S_ISDIR(about.st_mode)) return {};
  // A file where a folder should be; EEXIST would read as if all were well.
  if (there || code == EEXIST) code = ENOTDIR;
  return failed("cannot make the folder", folder, code);
}

FileError write_atomically(const fs::path& file, std::string_view text) {
  return publish(file, text, [](const char* from, const char* to) {
    return file_calls().rename(from, to) == 0 ? 0 : errno;
  });
}

FileError create_atomically(const fs::path& file, std::string_view text) {
  return publish(file, text, rename_new);
}

MovedAside move_aside(const fs::path& file, std::string_view word) {
  MovedAside out;
  for (int i = 0; i < 100; ++i) {
    out.to = file;
    out.to += fmt::format(".{}-{}", word, core::utc_stamp());
    if (i > 0) out.to += fmt::format("-{}", i);
    const int code = with_retries([&] { return rename_aside(file.c_str(), out.to.c_str()); });
    out.error = code == 0 ? FileError{} : failed("cannot move aside", file, code);
    if (code != EEXIST) break;
  }
  return out;
}

FileLock::FileLock(fs::path file, std::int64_t patience_ns) : m_file(std::move(file)) {
  const FileCalls& calls = file_calls();
  const std::int64_t deadline = calls.now_ns() + patience_ns;
  std::int64_t pause = k_ms / 2;
  while (!try_once()) {
    const bool wait = m_error.code == EWOULDBLOCK || is_passing(m_error.code);
    const std::int64_t left = deadline - calls.now_ns();
    if (!wait || left <= 0) return;
    calls.sleep_ns(std::min(pause, left));
    pause = std::min(pause * 2, 20 * k_ms);
  }
}

int FileLock::open_or_make() {
  const FileCalls& calls = file_calls();
  int fd = calls.open(m_file.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd >= 0 || errno != ENOENT) return fd;
  const auto make = [&] { return calls.open(m_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); };
  const fs::path folder = m_file.parent_path();
  fd = make();
  if (fd < 0 && errno == ENOENT) {
    m_error = make_folders(folder);
    if (!m_error) fd = make();
  }
  struct ::stat about {};
  if (fd >= 0 && calls.stat(folder.c_str(), &about) == 0)
    (void)calls.fchmod(fd, about.st_mode & 0666);
  return fd;
}

bool FileLock::try_once() {
  const FileCalls& calls = file_calls();
  m_error = {};
  const int fd = open_or_make();
  if (fd < 0) {
    if (!m_error) m_error = failed("cannot open the lock", m_file, errno);
    return false;
  }
  if (calls.flock(fd, LOCK_EX | LOCK_NB) != 0) {
    m_error = failed("cannot lock", m_file, errno);
    (void)calls.close(fd);
    return false;
  }
  // Somebody may have deleted it: what is locked here is then no longer what others see.
  struct ::stat mine {};
  struct ::stat named {};
  const bool same = calls.fstat(fd, &mine) == 0 && calls.stat(m_file.c_str(), &named) == 0 &&
                    mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
  if (!same) {
    (void)calls.close(fd);
    m_error = {EWOULDBLOCK, "the lock changed hands"};
    return false;
  }
  m_fd = fd;
  return true;
}

FileLock::~FileLock() {
  if (m_fd < 0) return;
  // A child forked meanwhile has the descriptor too; closing ours would not release the lock.
  (void)file_calls().flock(m_fd, LOCK_UN);
  (void)file_calls().close(m_fd);
}

std::string unique_suffix() {
  return fmt::format("-{}-{}-{:016x}", core::safe_name(core::host_name()), ::getpid(),
                     random_number());
}

std::uint64_t random_number() {
  for (;;) {
    std::uint64_t bits = 0;
    // std::random_device reads one 32-bit word at a time, which costs more than a whole look-up.
    if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) {
      std::random_device device;
      bits = static_cast<std::uint64_t>(device()) << 32 | device();
    }
    bits &= 0x7fff'ffff'ffff'ffffULL;
    if (bits != 0) return bits;
  }
}

}  // namespace disttune::store
