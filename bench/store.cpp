// What records on disk cost: loading one against parsing the same bytes with nlohmann-json alone;
// saving a new one against one write and rename of the same bytes; saving into an old one, which is
// read, checked and written again, against parsing the old bytes and one such write; and a look-up
// in a store of 100,000 records against one in an empty store.
#include "store/store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "turns.hpp"

namespace {

namespace fs = std::filesystem;
using namespace disttune;

constexpr int k_candidates = 100, k_samples = 10, k_crowd = 100'000;

RecordKey make_key(int n) {
  RecordKey key;
  key.identity =
      Value::dict({{Value("name"), Value("bench_store")}, {Value("version"), Value("1")}});
  key.key = Value::tuple({Value(n), Value(4096), Value("float16")});
  key.hardware = Value::dict({{Value("kind"), Value("host")}, {Value("cores"), Value(2)}});
  return key;
}

Record make_record(int n) {
  Record record;
  record.name = "bench_store";
  record.module = "bench";
  record.key = make_key(n);
  TuningRecord tuning;
  for (int i = 0; i < k_candidates; ++i) {
    CandidateRecord c;
    c.config =
        Config{{"BLOCK", Value(64 * (i + 1))}, {"WARPS", Value(4)}, {"STAGES", Value(i % 4)}};
    c.status = Status::ok;
    for (int s = 0; s < k_samples; ++s) {
      c.samples_ns.push_back(100'000 + 137 * i + 11 * s);
      c.host_ns.push_back(105'000 + 137 * i + 11 * s);
    }
    c.score_ns = 100'050.0 + 137 * i;
    tuning.candidates.push_back(std::move(c));
  }
  tuning.winner = tuning.candidates.front().config.identity();
  tuning.default_config = tuning.candidates.back().config.identity();
  tuning.created = "2026-01-01T00:00:00Z";
  tuning.warmup = 5;
  tuning.repeat = 10;
  record.tunings.push_back(std::move(tuning));
  return record;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_and_rename(const fs::path& path, const std::string& bytes) {
  const std::string temporary = path.string() + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    std::perror("bench_store");
  ::close(fd);
  fs::rename(temporary, path);
}

// Other keys' records, as small as a record may be: their number is what matters. Hard links of one
// file stand for records that a look-up must never open.
void crowd(const store::Store& store) {
  const fs::path first = store.file("bench_store", make_key(0));
  fs::create_directories(first.parent_path());
  write_and_rename(first, store::write_record(make_record(0)));
  for (int n = 1; n < k_crowd; ++n) {
    const fs::path link = store.file("bench_store", make_key(n));
    // Most file systems bound the links of one file to some ten thousand.
    if (::link(first.c_str(), link.c_str()) != 0) write_and_rename(link, "{}");
  }
}

// Three saves, each beside the least that could be done instead: of a new record (both alternatives
// create their file anew and remove it), of a tuning in place of the only one, and of a tuning
// beside another one.
void measure_saves(const store::Store& store, bench::Report& report) {
  constexpr std::size_t saves = 2;  // few at a time: shorter than a turn of the scheduler
  const Record fresh = make_record(2), again = make_record(3);
  Record more = make_record(4);
  const auto file_of = [&](int n) { return store.file("bench_store", make_key(n)); };
  store.save(again);
  store.save(more);
  more.tunings.front().deps = Value::dict({{Value("library"), Value("2")}});
  store.save(more);
  const std::string one = read_file(file_of(3)), two = read_file(file_of(4));
  const fs::path plain = file_of(1).parent_path() / "plain.json";
  const auto times = [](auto&& f) {
    return [f] {
      for (std::size_t i = 0; i < saves; ++i) f();
    };
  };
  const std::vector<double> ns =
      bench::in_turns({times([&] {
                         write_and_rename(plain, one);
                         fs::remove(plain);
                       }),
                       times([&] {
                         store.save(fresh);
                         fs::remove(file_of(2));
                       }),
                       times([&] { write_and_rename(plain, one); }), times([&] {
                         bench::keep(nlohmann::json::parse(one).size());
                         write_and_rename(plain, one);
                       }),
                       times([&] { store.save(again); }), times([&] {
                         bench::keep(nlohmann::json::parse(two).size());
                         write_and_rename(plain, two);
                       }),
                       times([&] { store.save(more); })},
                      saves, 201, bench::wall_ns);
  report.limited("ratio_save_new_to_write_and_rename", ns[1] / ns[0], 3);
  report.limited("ratio_save_replacing_to_parse_and_write", ns[4] / ns[3], 3);
  report.limited("ratio_save_adding_to_parse_and_write", ns[6] / ns[5], 3);
  report.figure("ratio_save_replacing_to_write_and_rename", ns[4] / ns[2]);
  report.figure("ns_save_new", ns[1]);
  report.figure("ns_save_replacing", ns[4]);
  report.figure("ns_save_adding", ns[6]);
  report.figure("ns_write_and_rename", ns[2]);
}

}  // namespace

int main() {
  const fs::path root = bench::scratch();
  const store::Store store(root / "one", {}), full(root / "full", {}), empty(root / "empty", {});
  const Record record = make_record(1);
  const RecordKey key = make_key(1);
  bench::Report report;

  store.save(record);
  const fs::path file = store.file("bench_store", key);
  const std::string bytes = read_file(file);
  if (!store.load("bench_store", key).record) {
    std::fputs("bench_store: the record that was saved cannot be loaded\n", stderr);
    return 1;
  }
  constexpr std::size_t loads = 20;
  const std::vector<double> load =
      bench::in_turns({[&] {
                         for (std::size_t i = 0; i < loads; ++i)
                           bench::keep(nlohmann::json::parse(bytes).size());
                       },
                       [&] {
                         for (std::size_t i = 0; i < loads; ++i)
                           bench::keep(store.load("bench_store", key).record.has_value());
                       }},
                      loads);
  report.limited("ratio_load_to_parse", load[1] / load[0], 2);
  report.figure("ns_load", load[1]);
  report.figure("ns_parse", load[0]);
  report.figure("record_bytes", static_cast<double>(bytes.size()));

  measure_saves(store, report);

  crowd(full);
  fs::create_directories(empty.folder("bench_store"));
  constexpr std::size_t looks = 200;
  const RecordKey absent = make_key(-1);
  const auto look = [&](const store::Store& in) {
    return [&in, &absent] {
      for (std::size_t i = 0; i < looks; ++i)
        bench::keep(in.load("bench_store", absent).record.has_value());
    };
  };
  const std::vector<double> looked = bench::in_turns({look(empty), look(full)}, looks, 31);
  report.limited("ratio_lookup_full_to_empty", looked[1] / looked[0], 1.2);
  report.figure("ns_lookup_empty", looked[0]);
  report.figure("ns_lookup_full", looked[1]);
  report.figure("records_in_full", k_crowd);

  fs::remove_all(root);
  report.print();
}
