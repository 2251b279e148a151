// Runs under mpirun; the first argument says which scenario. Rank 0 prints "all ranks passed" when
// no rank found anything wrong.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "agree/agreement.hpp"
#include "disttune/mpi.hpp"

namespace disttune {
namespace {

using namespace std::chrono_literals;

int wrong = 0;

void expect(bool right, const std::string& what) {
  if (right) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
  ++wrong;
}
template <class E>
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    expect(false, std::string("another error: ") + e.what());
    return {};
  }
  expect(false, "no error");
  return {};
}
void expect_part(const std::string& text, const std::string& part) {
  expect(text.find(part) != std::string::npos, "'" + part + "' is not in: " + text);
}

agree::Hello hello(int key) {
  agree::Hello h;
  h.function = "gemm";
  h.key = Value(key);
  h.store_id = 5;
  return h;
}
Wait waiting(std::chrono::nanoseconds patience, std::uint64_t sequence, std::string_view phase) {
  return {std::chrono::steady_clock::now() + patience, patience, sequence, phase};
}

void agrees() {
  const auto group = mpi();
  for (int turn = 0; turn < 3; ++turn) {
    agree::Agreement call(group.get(), 60s, "gemm");
    call.run([&] {
      call.shape(Value("machine"));
      agree::Hello mine = hello(turn);
      mine.record = group->rank() == 2 && turn == 1 ? "the record of rank 2" : "";
      const auto agreed = call.handshake(mine);
      expect(agreed.writer == (group->rank() == 0), "writer");
      if (turn == 1) expect(call.adopt(agreed, mine.record) == "the record of rank 2", "adoption");
      std::vector<std::int64_t> block(5002);  // longer than one block
      for (std::size_t i = 0; i < block.size(); ++i)
        block[i] = (std::int64_t{1} << 60) + static_cast<std::int64_t>(i) * group->rank();
      call.reduce(block);
      for (std::size_t i = 0; i < block.size(); ++i)
        expect(block[i] ==
                   (std::int64_t{1} << 60) + static_cast<std::int64_t>(i) * (group->size() - 1),
               "maximum");
      const auto medians = call.finish("a", 100 + group->rank());
      expect(medians.size() == static_cast<std::size_t>(group->size()), "medians");
    });
  }
  expect(agree::known_shape(*group)->entries().size() == 3, "shape");
}

void subgroups() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  {
    const auto group = mpi(half);
    expect(group->size() == 2, "size");
    // The two halves tune different things a different number of times.
    for (int i = 0; i <= rank % 2; ++i) {
      agree::Agreement call(group.get(), 60s, "gemm");
      static_cast<void>(call.handshake(hello(rank % 2)));
      std::vector<std::int64_t> block{rank};
      call.reduce(block);
      expect(block[0] == 2 + rank % 2, "maximum of the half");
      call.finish("a");
    }
  }
  MPI_Comm_free(&half);
}

void disagrees() {
  const auto group = mpi();
  for (int turn = 0; turn < 2; ++turn) {
    const std::string text = error_of<Disagreement>([&] {
      agree::Agreement call(group.get(), 60s, "gemm");
      call.run([&] { static_cast<void>(call.handshake(hello(group->rank() == 1 ? 7 : 8))); });
    });
    expect_part(text, "ranks 0, 2, 3");
    expect_part(text, "rank 1");
  }
  agree::Agreement call(group.get(), 60s, "gemm");
  static_cast<void>(call.handshake(hello(1)));
  call.finish("a");
}

void out_of_step() {
  const auto group = mpi();
  std::vector<std::int64_t> words(group->rank() == 3 ? 400 : 3);
  const std::string text = error_of<Disagreement>([&] {
    group->all_reduce_max(
        words, waiting(60s, group->rank() == 3 ? 13 : 1, group->rank() == 3 ? "meeting" : "batch"));
  });
  expect_part(text, "ranks 0, 1, 2 in batch of cold call 1 with 3 words");
  expect_part(text, "rank 3 in meeting of cold call 13 with 400 words");
}

void absent() {
  const auto group = mpi();
  if (group->rank() != 2) {
    const std::string text = error_of<GroupTimeout>([&] {
      agree::Agreement call(group.get(), 2s, "gemm");
      call.run([&] { static_cast<void>(call.handshake(hello(1))); });
    });
    expect_part(text, "from rank 2 within 2 s, in handshake of cold call 1");
    expect_part(text, "MPI_Abort");
    // Later cold calls raise at once, with the original reason.
    expect_part(error_of<GroupTimeout>([&] { agree::Agreement(group.get(), 2s, "gemm"); }),
                "rank 2 ");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (group->rank() == 2)
    error_of<GroupTimeout>([&] {
      agree::Agreement call(group.get(), 60s, "gemm");
      call.run([&] { static_cast<void>(call.handshake(hello(1))); });
    });
}

void slow() {
  const auto group = mpi();
  agree::Agreement call(group.get(), 7s, "gemm");
  static_cast<void>(call.handshake(hello(1)));
  if (group->rank() == 1) {  // twice the deadline, with signs of life
    const auto end = std::chrono::steady_clock::now() + 14s;
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(100ms);
      group->alive();
    }
  }
  call.meet();
  call.finish("a");
}

void raises() {
  const auto group = mpi();
  const auto call_once = [&] {
    agree::Agreement call(group.get(), 60s, "gemm");
    call.run([&] {
      static_cast<void>(call.handshake(hello(1)));
      if (group->rank() == 3) throw std::runtime_error("KeyError: 'M'");
      call.meet();
    });
  };
  const auto begin = std::chrono::steady_clock::now();
  if (group->rank() == 3) {
    error_of<std::runtime_error>(call_once);
  } else {
    const std::string text = error_of<PeerFailed>(call_once);
    expect_part(text, "rank 3 ended cold call 1 with an error: KeyError: 'M'");
    expect_part(text, "MPI_Abort");
  }
  expect(std::chrono::steady_clock::now() - begin < 30s, "it took the whole deadline");
  MPI_Barrier(MPI_COMM_WORLD);
  expect_part(error_of<PeerFailed>(call_once), "KeyError: 'M'");
}

/// The caller makes one MPI call at a time, from whichever thread.
void serialized() { std::thread(raises).join(); }

void notes() {
  const auto group = mpi();
  if (group->rank() == 1) group->note(1, 17);
  std::int64_t word = 0;
  group->all_reduce_max({&word, 1}, waiting(60s, 1, "batch"));
  while (group->rank() != 1 && !group->noted(1, 17)) group->poll(waiting(60s, 1, "measuring"));
  if (group->rank() != 1) expect(group->noted(1, 17) == 1, "note");
  expect(!group->noted(1, 18), "another note");
}

void other_thread() {
  const auto group = mpi();
  const std::string text = error_of<Error>([&] {
    std::exception_ptr error;
    std::thread([&] {
      try {
        std::int64_t word = 0;
        group->all_reduce_max({&word, 1}, waiting(60s, 1, "batch"));
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error) std::rethrow_exception(error);
  });
  expect_part(text, "MPI_THREAD_MULTIPLE");
}

void bad_communicators() {
  expect_part(error_of<Error>([] { static_cast<void>(mpi(MPI_COMM_NULL)); }), "MPI_COMM_NULL");
  expect_part(error_of<Error>([] { static_cast<void>(mpi(char{1})); }), "not a communicator");
}

int run(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  const std::map<std::string, void (*)()> scenarios{{"agrees", agrees},
                                                    {"subgroups", subgroups},
                                                    {"disagrees", disagrees},
                                                    {"out_of_step", out_of_step},
                                                    {"absent", absent},
                                                    {"slow", slow},
                                                    {"raises", raises},
                                                    {"serialized", serialized},
                                                    {"notes", notes},
                                                    {"other_thread", other_thread},
                                                    {"bad_communicators", bad_communicators}};
  expect_part(error_of<Error>([] { static_cast<void>(mpi()); }), "not initialised");
  int provided = 0;
  const int level = scenario == "single"         ? MPI_THREAD_SINGLE
                    : scenario == "other_thread" ? MPI_THREAD_FUNNELED
                    : scenario == "serialized"   ? MPI_THREAD_SERIALIZED
                                                 : MPI_THREAD_MULTIPLE;
  MPI_Init_thread(&argc, &argv, level, &provided);
  std::shared_ptr<ProcessGroup> late;
  if (scenario == "single") {
    if (provided == MPI_THREAD_SINGLE)
      expect_part(error_of<Error>([] { static_cast<void>(mpi()); }), "MPI_THREAD_FUNNELED");
  } else if (scenario == "finalized") {
    late = mpi();
  } else {
    scenarios.at(scenario)();
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const bool open = scenario == "absent" || scenario == "raises" || scenario == "serialized";
  if (open) {
    if (rank == 0 && wrong == 0) std::puts("all ranks passed");
    std::fflush(stdout);
    if (rank == 0) MPI_Abort(MPI_COMM_WORLD, wrong);
    MPI_Barrier(MPI_COMM_WORLD);  // until rank 0 ends the job
  }
  MPI_Finalize();
  if (scenario == "finalized") {
    std::int64_t word = 0;
    expect_part(error_of<Error>([&] {
                  late->all_reduce_max({&word, 1}, waiting(1s, 1, "batch"));
                }),
                "finalised before the last");
    late->abandon(1, "nothing happens");
    late.reset();
    expect_part(error_of<Error>([] { static_cast<void>(mpi()); }), "finalised already");
  }
  if (rank == 0 && wrong == 0) std::puts("all ranks passed");
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace disttune

int main(int argc, char** argv) { return disttune::run(argc, argv); }
