// The C++ half of test_both_languages.py: launchers that Python has too, under equal names and
// versions. `launchers NAME` calls one twice and prints what the test compares, a line each.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <disttune/disttune.hpp>

namespace {

struct Plain {
  int block = 256;
  int warps = 4;
  static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Plain::block),
                                                 disttune::field("WARPS", &Plain::warps));
};
struct Mixed {
  bool vectorised = false;
  double scale = 1.0;
  std::string layout = "row";
  std::int64_t stages = 1;
  static constexpr auto tuned = disttune::fields(
      disttune::field("VECTORISED", &Mixed::vectorised), disttune::field("SCALE", &Mixed::scale),
      disttune::field("LAYOUT", &Mixed::layout), disttune::field("STAGES", &Mixed::stages));
};

int runs = 0;
std::int64_t now_ns = 1000;

/// Candidate i takes (i + 1) * 1000 ns, the one that C++ finds fastest takes 10.
std::int64_t cost(const disttune::Value& identity) {
  const char* fastest = std::getenv("FASTEST");
  return fastest != nullptr && identity.text() == fastest ? 10 : 1000;
}

template <class C, class Key>
void call(const std::string& name, const disttune::Space<C>& space, Key key) {
  const auto launcher = disttune::autotune(name, space, key,
                                           [](const C& c, int) {
                                             ++runs;
                                             const disttune::Value identity =
                                                 disttune::to_config(c).identity();
                                             now_ns += cost(identity);
                                             return std::string(identity.text());
                                           })
                            .version("7")
                            .timer([] { return now_ns; });
  const std::string winner = launcher(1);
  const int cold = runs;
  launcher(1);
  const auto record = launcher.result(1);
  std::printf("cold=%d\nwarm=%d\nwinner=%s\n", cold, runs - cold, winner.c_str());
  std::printf("file=%s\n", launcher.explain(1).file.c_str());
  if (!record) return;
  for (const auto& [field, value] : {std::pair{"key", record->key.key},
                                     {"hardware", record->key.hardware},
                                     {"identity", record->key.identity},
                                     {"policy", record->key.policy},
                                     {"text", record->key.text()}})
    std::printf("%s=%s\n", field, std::string(value.text()).c_str());
}

const disttune::Space<Plain> plain =
    disttune::grid(&Plain::block, {256, 512}) * disttune::grid(&Plain::warps, {4, 8});
const disttune::Space<Mixed> mixed{
    {}, {true, 0.5, "column", 2}, {true, -0.0, "quote \" and \xc3\xa9", -1}, {false, 1e16, "", 3}};

const std::map<std::string, std::function<void(const std::string&)>, std::less<>> cases = {
    {"int", [](const auto& n) { call(n, plain, [](int) { return 4096; }); }},
    {"negative", [](const auto& n) { call(n, plain, [](int) { return std::int64_t{-1} << 62; }); }},
    {"unsigned",
     [](const auto& n) {
       call(n, plain, [](int) { return std::numeric_limits<std::uint64_t>::max(); });
     }},
    {"bool", [](const auto& n) { call(n, plain, [](int) { return true; }); }},
    {"string", [](const auto& n) { call(n, plain, [](int) { return "caf\xc3\xa9 \"q\" \n"; }); }},
    {"float", [](const auto& n) { call(n, plain, [](int) { return 0.1; }); }},
    {"whole_float", [](const auto& n) { call(n, plain, [](int) { return 1.0; }); }},
    {"minus_zero", [](const auto& n) { call(n, plain, [](int) { return -0.0; }); }},
    {"not_a_number",
     [](const auto& n) {
       call(n, plain, [](int) { return std::numeric_limits<double>::quiet_NaN(); });
     }},
    {"tuple",
     [](const auto& n) { call(n, plain, [](int) { return std::tuple(128, "float32"); }); }},
    {"nested",
     [](const auto& n) {
       call(n, plain, [](int) {
         return std::tuple(std::tuple(128, 64), "float32", true, std::tuple(2.5), std::tuple<>());
       });
     }},
    {"list",
     [](const auto& n) {
       call(n, plain, [](int) { return std::tuple(std::vector<std::int64_t>{1, 2}, 3); });
     }},
    {"named",
     [](const auto& n) {
       call(n, plain, [](int) { return std::tuple(8, disttune::named("torch.float16")); });
     }},
    {"struct", [](const auto& n) { call(n, plain, [](int) {
                                     return Plain{1, 2};
                                   }); }},
    {"mixed", [](const auto& n) { call(n, mixed, [](int) { return 1; }); }},
};

}  // namespace

int main(int argc, char** argv) {
  const auto found = cases.find(std::string_view(argc > 1 ? argv[1] : ""));
  if (found == cases.end()) return 2;
  found->second("both/" + found->first);
}
