// A blocked product of two float matrices: which blocking is fastest depends on the size and on the
// machine, so each size is a key of its own.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "disttune/disttune.hpp"
#include "report.hpp"

namespace {

struct Blocking {
  int rows = 1;      // rows of the result that one sweep updates together
  int depth = 16;    // terms of the inner product summed before moving on
  int columns = 16;  // columns of the result in work at once
  static constexpr auto tuned = disttune::fields(disttune::field("ROWS", &Blocking::rows),
                                                 disttune::field("DEPTH", &Blocking::depth),
                                                 disttune::field("COLUMNS", &Blocking::columns));
};

using Matrix = std::span<float>;
using Input = std::span<const float>;

// c += a * b for one block. R is a constant, so that the compiler keeps R running sums in
// registers.
template <int R>
void multiply_block(Input a, Input b, Matrix c, std::size_t n, std::size_t i, std::size_t k_begin,
                    std::size_t k_end, std::size_t j_begin, std::size_t j_end) {
  for (std::size_t k = k_begin; k < k_end; ++k) {
    float left[R];
    for (std::size_t r = 0; r < R; ++r) left[r] = a[(i + r) * n + k];
    const float* right = &b[k * n];
    for (std::size_t r = 0; r < R; ++r) {
      float* out = &c[(i + r) * n];
      for (std::size_t j = j_begin; j < j_end; ++j) out[j] += left[r] * right[j];
    }
  }
}

template <int R>
void multiply(const Blocking& blocking, Input a, Input b, Matrix c, std::size_t n) {
  const auto depth = static_cast<std::size_t>(blocking.depth);
  const auto columns = static_cast<std::size_t>(blocking.columns);
  std::fill(c.begin(), c.end(), 0.0f);
  for (std::size_t j = 0; j < n; j += columns)
    for (std::size_t k = 0; k < n; k += depth)
      for (std::size_t i = 0; i < n; i += R)
        multiply_block<R>(a, b, c, n, i, k, std::min(k + depth, n), j, std::min(j + columns, n));
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
          disttune::Space<Blocking>{Blocking{}} + grid(&Blocking::rows, {1, 4, 8}) *
                                                      grid(&Blocking::depth, {32, 256}) *
                                                      grid(&Blocking::columns, {64, 256}),
          [](Input, Input, Matrix, std::size_t size) { return std::tuple(size, "float32"); },
          [&launches](const Blocking& t, Input x, Input y, Matrix out, std::size_t size) {
            ++launches;
            disttune::with_constant<1, 4, 8>(
                t.rows, [&](auto rows) { multiply<rows>(t, x, y, out, size); });
          })
          .source(DISTTUNE_SOURCE_DIGEST)
          .prune([](const Blocking& t, Input, Input, Matrix, std::size_t size) {
            return size % static_cast<std::size_t>(t.rows) == 0;
          })
          .check([&expected](const Blocking&, std::monostate, Input, Input, Matrix out,
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
