// Whole files: read in one go, written under a temporary name and renamed, moved aside instead of
// deleted. Every failure is a text, none an exception.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace disttune::store {

/// The system calls below, replaceable so that tests can make a file system busy, stale, full or
/// read-only. Meaning, results and errno are those of the calls of the same name.
struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  ssize_t (*read)(int fd, void* data, std::size_t size);
  ssize_t (*write)(int fd, const void* data, std::size_t size);
  int (*close)(int fd);
  int (*stat)(const char* path, struct ::stat* out);
  int (*fstat)(int fd, struct ::stat* out);
  int (*rename)(const char* from, const char* to);
  /// EEXIST when `to` is there; EINVAL or ENOSYS where a rename cannot promise that.
  int (*rename_new)(const char* from, const char* to);
  int (*link)(const char* from, const char* to);
  int (*unlink)(const char* path);
  int (*mkdir)(const char* path, mode_t mode);
  int (*rmdir)(const char* path);
  int (*fchmod)(int fd, mode_t mode);
  int (*flock)(int fd, int operation);
  std::int64_t (*now_ns)();  ///< monotonic
  void (*sleep_ns)(std::int64_t ns);
};
/// The calls in use. Assigning to it is for tests, and not thread-safe.
[[nodiscard]] FileCalls& file_calls() noexcept;

/// A system call that failed: errno and "what: its text".
struct FileError {
  int code = 0;  ///< 0: no error
  std::string text;
  explicit operator bool() const noexcept { return code != 0; }
};

enum class FileState {
  read,        ///< `text` holds all of it
  missing,     ///< nothing there
  not_a_file,  ///< a folder, a loop of links, a pipe … in its place
  too_large,   ///< beyond the limit; not read
  unreadable   ///< it may be a good file, but not for us, or not now
};
struct FileContent {
  FileState state = FileState::missing;
  std::string text;
  std::string reason;       ///< for all but `read`
  std::uint64_t inode = 0;  ///< of the file that was opened; 0 when none was
};
/// Reads at most `limit` bytes: all (a longer file is `too_large`), or the beginning with
/// `head_only`. Stale handles (NFS) are tried again twice.
[[nodiscard]] FileContent read_file(const std::filesystem::path& file, std::size_t limit,
                                    bool head_only = false);

/// Makes the folder and its parents (mode 0777 less the umask).
[[nodiscard]] FileError make_folders(const std::filesystem::path& folder);

/// Writes beside `file` under a temporary name and renames: other processes see the old content or
/// the new, never a part. Nothing stays behind on failure. Makes missing folders. Busy and stale
/// errors are tried again a few times, for a quarter of a second.
[[nodiscard]] FileError write_atomically(const std::filesystem::path& file, std::string_view text);

/// Writes a new file; EEXIST when something has the name already (then nothing is changed),
/// EOPNOTSUPP on a file system that has no way to rename without replacing.
[[nodiscard]] FileError create_atomically(const std::filesystem::path& file, std::string_view text);

/// Renames to "<file>.<word>-<UTC stamp>", never over something that is there.
struct MovedAside {
  std::filesystem::path to;
  FileError error;
};
[[nodiscard]] MovedAside move_aside(const std::filesystem::path& file, std::string_view word);

/// An advisory lock by a file of its own, which stays: making and removing it would cost as much as
/// a small save. Whoever may write into its folder may write to it, whatever the umask, since a
/// network file system locks for writers only. A file and not the folder: NFS, Lustre and others
/// lock a folder on one machine alone. Excludes threads and processes alike; released by the system
/// when the process dies.
class FileLock {
 public:
  /// Waits for at most `patience_ns`; 0: does not wait. Makes missing folders.
  FileLock(std::filesystem::path file, std::int64_t patience_ns);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  [[nodiscard]] bool held() const noexcept { return m_fd >= 0; }
  [[nodiscard]] const FileError& error() const noexcept { return m_error; }

 private:
  [[nodiscard]] bool try_once();
  [[nodiscard]] int open_or_make();
  std::filesystem::path m_file;
  int m_fd = -1;
  FileError m_error;
};

/// "-<host>-<pid>-<random>": tells apart whatever processes, threads and hosts write at once.
[[nodiscard]] std::string unique_suffix();
/// Uniform in [1, 2^63 - 1].
[[nodiscard]] std::uint64_t random_number();

}  // namespace disttune::store
