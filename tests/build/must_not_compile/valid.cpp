// Everything that the other files do wrong, done right: without it, a broken header would look like
// a refusal.
#include <memory>
#include <string>
#include <tuple>

#include "tile.hpp"

auto plain = disttune::autotune(
                 "plain", tiles, [](int n, float) { return std::tuple(n, "float32"); },
                 [](const Tile&, int n, float a) { return a * static_cast<float>(n); })
                 .prune([](const Tile& t, int n, float) { return t.block <= n; })
                 .fails_when([](float) -> std::optional<std::string> { return std::nullopt; })
                 .version("1");
auto by_reference = disttune::autotune(
    "by_reference", tiles, [](const std::unique_ptr<int>& p) { return *p; },
    [](const Tile&, const std::unique_ptr<int>& p) { return std::make_unique<int>(*p); });
auto copied = disttune::autotune(
    "copied", tiles, [](const std::string& s) { return s.size(); },
    [](const Tile&, std::string s) { return s; });
auto at_run_time = disttune::autotune(
    "at_run_time", disttune::grid("BLOCK", {disttune::Value(1)}), [](int n) { return n; },
    [](const disttune::Config& c, int n) { return n + c.get<int>("BLOCK"); });
auto generic = disttune::autotune<int(const Tile&, int)>(
    "generic", tiles, [](int n) { return n; }, [](const auto&, auto n) { return n; });
struct Matrix {
  int rows() const { return columns; }
  int columns = 1;
};
auto by_member_function = disttune::autotune("by_member_function", tiles, &Matrix::rows,
                                             [](const Tile&, const Matrix& m) { return m.rows(); });
auto by_member = disttune::autotune("by_member", tiles, &Matrix::columns,
                                    [](const Tile&, const Matrix& m) { return m.rows(); });
