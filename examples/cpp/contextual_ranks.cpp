// Running sums of data that is spread over MPI ranks, in one step: sums over this rank's blocks,
// what the ranks before hold, and the running sums themselves. The two kernels are tuned during
// complete runs of the step, which communicates in between, and all ranks choose alike.
//
//   mpirun -n 4 contextual_ranks
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "disttune/contextual.hpp"
#include "disttune/disttune.hpp"
#include "disttune/mpi.hpp"
#include "prefix_sum.hpp"

namespace {

/// Whether all ranks have chosen the same.
bool is_alike(const Split* choice) {
  const int mine[] = {choice != nullptr ? choice->threads : 0,
                      choice != nullptr ? choice->chunk : 0};
  int most[2] = {}, least[2] = {};
  MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(mine, least, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return least[0] > 0 && most[0] == least[0] && most[1] == least[1];
}

int run() {
  using disttune::grid;
  const auto group = disttune::mpi();
  constexpr std::size_t blocks = 256;
  std::vector<std::int32_t> in(blocks * k_block, group->rank() + 1);
  std::vector<std::int64_t> sums(blocks), out(in.size());

  const auto space = grid(&Split::threads, {1, 2}) * grid(&Split::chunk, {32, 128});
  const auto sum = disttune::tuned_kernel(
                       "example_sum", space, [](Data d, Sums) { return d.size(); },
                       [](const Split& s, Data d, Sums o) { sum_blocks(s, d, o); })
                       .group(group);
  const auto scan = disttune::tuned_kernel(
                        "example_scan", space, [](Data d, Sums, Sums) { return d.size(); },
                        [](const Split& s, Data d, Sums b, Sums o) { scan_blocks(s, d, b, o); })
                        .group(group);
  int runs = 0;
  const auto prefix_sum = disttune::contextual(
      "prefix_sum", {.n_warmup = 1, .n_repeat = 3, .group = group.get()}, [&](Data d) {
        ++runs;
        sum(d, sums);
        const auto total = std::accumulate(sums.begin(), sums.end(), std::int64_t{0});
        std::int64_t before = 0;  // what the ranks before hold
        MPI_Exscan(&total, &before, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        if (group->rank() == 0) before = 0;  // where MPI_Exscan leaves it undefined
        std::exclusive_scan(sums.begin(), sums.end(), sums.begin(), before);
        scan(d, sums, out);
        return out.back();
      });

  const std::int64_t last = prefix_sum(in);
  const int first_runs = std::exchange(runs, 0);
  prefix_sum(in);
  const auto ranks = static_cast<std::int64_t>(group->rank()) + 1;
  const std::int64_t expected = static_cast<std::int64_t>(in.size()) * ranks * (ranks + 1) / 2;
  int wrong = last != expected || runs != 1 || first_runs < 4 * 4;
  wrong += !is_alike(sum.choice(in, sums));
  wrong += !is_alike(scan.choice(in, sums, out));
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (group->rank() == 0) {
    std::printf("first call: %d runs of the step, second call: %d\n", first_runs, runs);
    std::puts(wrong == 0 ? "all ranks chose alike" : "wrong: ranks differ, or a sum does");
  }
  return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int end = EXIT_FAILURE;
  try {
    end = run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);  // the others may be waiting for this rank
  }
  MPI_Finalize();
  return end;
}
