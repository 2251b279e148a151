// What a tuning costs beside the launches: 100 candidates of a launcher that costs nothing, against
// the file writes of that very tuning (its journal, its log, its record) made again alone.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "disttune/function.hpp"
#include "turns.hpp"

namespace {

namespace fs = std::filesystem;

constexpr int k_candidates = 100;

struct Tile {
  int block = 1;
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Tile::block));
};

disttune::Space<Tile> space() {
  std::vector<Tile> tiles;
  for (int i = 1; i <= k_candidates; ++i) tiles.push_back(Tile{i});
  return disttune::Space<Tile>(tiles);
}

struct File {
  fs::path path;
  std::string bytes;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<File> files_under(const fs::path& folder) {
  std::vector<File> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) out.push_back({entry.path(), read_file(entry.path())});
  return out;
}

bool holds(const File& file, const char* word) {
  return file.path.filename().string().find(word) != std::string::npos;
}

void write_all(int fd, const char* data, std::size_t size) {
  if (::write(fd, data, size) != static_cast<ssize_t>(size)) std::perror("bench_tune_overhead");
}

// Journals and logs line by line, as they were written; the record at once, then renamed.
void write_again(const std::vector<File>& files, const fs::path& folder) {
  fs::create_directories(folder);
  for (const File& file : files) {
    const fs::path path = folder / file.path.filename();
    const bool by_line = holds(file, ".journal") || holds(file, ".log");
    const fs::path target = by_line ? path : fs::path(path.string() + ".tmp");
    const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (!by_line) write_all(fd, file.bytes.data(), file.bytes.size());
    for (std::size_t at = 0; by_line && at < file.bytes.size();) {
      const std::size_t end = file.bytes.find('\n', at);
      const std::size_t next = end == std::string::npos ? file.bytes.size() : end + 1;
      write_all(fd, file.bytes.data() + at, next - at);
      at = next;
    }
    ::close(fd);
    if (!by_line) fs::rename(target, path);
    if (holds(file, ".journal")) fs::remove(path);
  }
}

}  // namespace

int main() {
  const fs::path root = bench::scratch();
  const fs::path store = root / "store", again = root / "again";
  std::function<void()> at_the_end;
  std::int64_t launches = 0;
  const auto launcher = disttune::autotune(
                            "bench_tune_overhead", space(), [](int n) { return n; },
                            [&](const Tile&, int) {
                              ++launches;
                              if (at_the_end) at_the_end();
                            })
                            .version("1")
                            .store(store.string());

  // One tuning to learn what it writes: the journal is gone when the tuning ends, so it is read in
  // the last timed run of the last candidate.
  std::vector<File> files;
  at_the_end = [&] {
    if (launches != 15 * k_candidates) return;
    for (File& f : files_under(store))
      if (holds(f, ".journal")) files.push_back(std::move(f));
  };
  int key = 0;
  launcher(key);
  at_the_end = nullptr;
  for (File& f : files_under(store)) files.push_back(std::move(f));
  double journal = 0, total = 0;
  for (const File& f : files) {
    total += static_cast<double>(f.bytes.size());
    if (holds(f, ".journal")) journal += static_cast<double>(f.bytes.size());
  }

  const std::vector<double> ns = bench::in_turns({[&] {
                                                    write_again(files, again);
                                                    fs::remove_all(again);
                                                  },
                                                  [&] {
                                                    launcher(++key);
                                                    fs::remove_all(store);
                                                  }},
                                                 1, 31, bench::wall_ns);
  bench::Report report;
  report.limited("ratio_tuning_to_its_writes", ns[1] / ns[0], 3);
  report.figure("us_tuning", ns[1] / 1000);
  report.figure("us_writes_alone", ns[0] / 1000);
  report.figure("bytes_written", total);
  report.figure("bytes_of_journal", journal);
  report.figure("launches_a_tuning", 15 * k_candidates + 1);
  fs::remove_all(root);
  report.print();
  return journal > 0 ? 0 : 1;  // nothing was compared if the journal was missed
}
