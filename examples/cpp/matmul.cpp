// A blocked product of two float matrices: which blocking is fastest depends on the size and on the
// machine, so each size is a key of its own.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "disttune/disttune.hpp"
#include "report.hpp"

namespace {

struct Blocking {
  int rows = 1;     // of the result, computed together and kept in registers
  int columns = 4;  // the same
  int depth = 256;  // terms of the inner products summed before moving on
  static constexpr auto tuned = disttune::fields(disttune::field("ROWS", &Blocking::rows),
                                                 disttune::field("COLUMNS", &Blocking::columns),
                                                 disttune::field("DEPTH", &Blocking::depth));
};

using Matrix = std::span<float>;
using Input = std::span<const float>;

// Four floats in one register, as GCC and Clang know it on every machine.
constexpr std::size_t k_lanes = 4;
using Lanes [[gnu::vector_size(k_lanes * sizeof(float))]] = float;

// Adds the terms k_begin … k_end to R × C elements of c. R and C are constants, so that all the
// sums stay in registers; more of them hide the additions' latency, too many do not fit.
template <std::size_t R, std::size_t C>
void multiply_tile(Input a, Input b, Matrix c, std::size_t n, std::size_t i, std::size_t j,
                   std::size_t k_begin, std::size_t k_end) {
  constexpr std::size_t vectors = C / k_lanes;
  Lanes sums[R][vectors];
  for (std::size_t r = 0; r < R; ++r) std::memcpy(sums[r], &c[(i + r) * n + j], sizeof sums[r]);
  for (std::size_t k = k_begin; k < k_end; ++k) {
    Lanes right[vectors];
    std::memcpy(right, &b[k * n + j], sizeof right);
    for (std::size_t r = 0; r < R; ++r)
      for (std::size_t v = 0; v < vectors; ++v) sums[r][v] += a[(i + r) * n + k] * right[v];
  }
  for (std::size_t r = 0; r < R; ++r) std::memcpy(&c[(i + r) * n + j], sums[r], sizeof sums[r]);
}

template <std::size_t R, std::size_t C>
void multiply(std::size_t depth, Input a, Input b, Matrix c, std::size_t n) {
  std::fill(c.begin(), c.end(), 0.0f);
  for (std::size_t k = 0; k < n; k += depth)
    for (std::size_t j = 0; j < n; j += C)
      for (std::size_t i = 0; i < n; i += R)
        multiply_tile<R, C>(a, b, c, n, i, j, k, std::min(k + depth, n));
}

std::vector<float> plain_product(Input a, Input b, std::size_t n) {
  std::vector<float> c(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < n; ++k) sum += double{a[i * n + k]} * double{b[k * n + j]};
      c[i * n + j] = static_cast<float>(sum);
    }
  return c;
}

double largest_difference(Input a, Input b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
  return worst;
}

}  // namespace

int main() {
  using disttune::grid;
  constexpr std::size_t n = 256;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (float& v : a) v = uniform(random);
  for (float& v : b) v = uniform(random);
  const std::vector<float> expected = plain_product(a, b, n);

  int launches = 0;
  const auto product =
      disttune::autotune(
          "example_matmul",
          grid(&Blocking::rows, {1, 2, 4}) * grid(&Blocking::columns, {4, 8, 16}) *
              grid(&Blocking::depth, {256, 64}),
          [](Input, Input, Matrix, std::size_t size) { return std::tuple(size, "float32"); },
          [&launches](const Blocking& t, Input x, Input y, Matrix out, std::size_t size) {
            ++launches;
            disttune::with_constant<1, 2, 4>(t.rows, [&](auto rows) {
              disttune::with_constant<4, 8, 16>(t.columns, [&](auto columns) {
                multiply<rows, columns>(static_cast<std::size_t>(t.depth), x, y, out, size);
              });
            });
          })
          .source(DISTTUNE_SOURCE_DIGEST)
          .prune([](const Blocking& t, Input, Input, Matrix, std::size_t size) {
            return size % static_cast<std::size_t>(t.rows) == 0 &&
                   size % static_cast<std::size_t>(t.columns) == 0;
          })
          .check([&expected](const Blocking&, Input, Input, Matrix out,
                             std::size_t) -> std::optional<std::string> {
            const double difference = largest_difference(out, expected);
            if (difference < 1e-3) return std::nullopt;
            return "differs from the plain product by " + std::to_string(difference);
          });

  const disttune::Explanation before = product.explain(a, b, c, n);
  product(a, b, c, n);
  const double difference = largest_difference(c, expected);
  std::printf("product of two %zu x %zu matrices\n", n, n);
  print_report(before, product.result(a, b, c, n), launches);
  if (difference < 1e-3) return EXIT_SUCCESS;
  std::printf("wrong: differs from the plain product by %g\n", difference);
  return EXIT_FAILURE;
}
