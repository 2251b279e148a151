// A matrix-vector product whose vector is spread over MPI ranks: each rank gathers the vector piece
// by piece and multiplies with one piece while the next is on its way. How many pieces, and how the
// rows are blocked, is chosen by the slowest rank's time, the same on all ranks.
//
//   mpirun -n 4 ranks
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "disttune/disttune.hpp"
#include "disttune/mpi.hpp"

namespace {

struct Overlap {
  int pieces = 1;
  int rows = 64;
  static constexpr auto tuned = disttune::fields(disttune::field("PIECES", &Overlap::pieces),
                                                 disttune::field("ROWS", &Overlap::rows));
};

struct Problem {
  std::span<const float> matrix;  ///< rows × (ranks · part), this rank's rows
  std::span<const float> part;    ///< this rank's part of the vector
  std::span<float> result;
  int ranks = 1;
};

/// Adds the products with one piece of every rank's part.
void multiply(const Problem& p, const std::vector<float>& piece, std::size_t first,
              std::size_t length, std::size_t block) {
  const std::size_t part = p.part.size(), width = part * static_cast<std::size_t>(p.ranks);
  for (std::size_t begin = 0; begin < p.result.size(); begin += block)
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(p.ranks); ++rank)
      for (std::size_t i = begin; i < std::min(begin + block, p.result.size()); ++i) {
        const float* row = p.matrix.data() + i * width + rank * part + first;
        const float* x = piece.data() + rank * length;
        float sum = 0;
        for (std::size_t k = 0; k < length; ++k) sum += row[k] * x[k];
        p.result[i] += sum;
      }
}

void product(const Overlap& how, const Problem& p) {
  std::fill(p.result.begin(), p.result.end(), 0.0f);
  const auto pieces = static_cast<std::size_t>(how.pieces);
  const std::size_t length = p.part.size() / pieces;
  std::vector<float> arrived[2];
  for (auto& a : arrived) a.resize(length * static_cast<std::size_t>(p.ranks));
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  const auto gather = [&](std::size_t piece) {
    MPI_Iallgather(p.part.data() + piece * length, static_cast<int>(length), MPI_FLOAT,
                   arrived[piece % 2].data(), static_cast<int>(length), MPI_FLOAT, MPI_COMM_WORLD,
                   &requests[piece % 2]);
  };
  gather(0);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    MPI_Wait(&requests[piece % 2], MPI_STATUS_IGNORE);
    if (piece + 1 < pieces) gather(piece + 1);
    multiply(p, arrived[piece % 2], piece * length, length, static_cast<std::size_t>(how.rows));
  }
}

int run() {
  const auto group = disttune::mpi();
  const int rank = group->rank(), ranks = group->size();
  constexpr std::size_t rows = 256, part = 512;
  std::vector<float> matrix(rows * part * static_cast<std::size_t>(ranks)), x(part), y(rows);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i % 7);
  for (std::size_t i = 0; i < part; ++i)
    x[i] = static_cast<float>((i + part * static_cast<std::size_t>(rank)) % 5);

  int launches = 0;
  using disttune::grid;
  const auto multiply_all =
      disttune::autotune(
          "example_ranks", grid(&Overlap::pieces, {1, 2, 4, 8}) * grid(&Overlap::rows, {16, 256}),
          [](const Problem& p) { return std::tuple(p.result.size(), p.part.size()); },
          [&launches](const Overlap& how, const Problem& p) {
            ++launches;
            product(how, p);
          })
          .source(DISTTUNE_SOURCE_DIGEST)
          .group(group);
  const Problem problem{matrix, x, y, ranks};
  multiply_all(problem);
  const int launched = launches;

  std::vector<float> expected(rows);
  const Problem plain{matrix, x, expected, ranks};
  product(Overlap{}, plain);
  int wrong = 0;
  for (std::size_t i = 0; i < rows; ++i) wrong += std::abs(y[i] - expected[i]) > 0.5f;

  // Every rank chose the same: compare the texts.
  const auto explanation = multiply_all.explain(problem);
  std::string choice = explanation.config ? explanation.config->display() : "nothing";
  choice.resize(64);
  std::vector<char> all(64 * static_cast<std::size_t>(ranks));
  MPI_Allgather(choice.data(), 64, MPI_CHAR, all.data(), 64, MPI_CHAR, MPI_COMM_WORLD);
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    wrong += choice.compare(0, 64, all.data() + 64 * r, 64) != 0;
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    std::printf("all %d ranks use %s\n", ranks, choice.c_str());
    std::printf("record: %s\n", explanation.file.c_str());
    std::printf(launched == 1
                    ? "the choice came from the store, without tuning: launches on this rank: %d\n"
                    : "tuned in this process: launches on this rank: %d\n",
                launched);
    if (wrong != 0) std::puts("wrong: ranks differ, or a product does");
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
