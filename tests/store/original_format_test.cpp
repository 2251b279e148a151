#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "disttune/error.hpp"
#include "store/original_format.hpp"
#include "support.hpp"

namespace disttune::store {
namespace {

using namespace testing;

constexpr double k_infinite = std::numeric_limits<double>::infinity();

// As the original tool's own code writes it (json.dump, indent 2).
constexpr const char* k_original = R"({
  "config": [
    [
      0.0312,
      {
        "gemm_config": {
          "__triton_config__": {
            "kwargs": {
              "BLOCK_SIZE_M": 128,
              "GROUP_SIZE_M": 8
            },
            "num_warps": 4,
            "num_ctas": 1,
            "num_stages": 3,
            "maxnreg": null,
            "pre_hook": null,
            "ir_override": null
          }
        },
        "fuse_scatter": true,
        "persistent": false
      }
    ],
    [
      0.0156,
      {
        "gemm_config": {
          "__triton_config__": {
            "kwargs": {},
            "num_warps": 8
          }
        },
        "fuse_scatter": false,
        "persistent": false
      }
    ],
    [
      Infinity,
      {
        "dtype": {
          "__torch_dtype__": "torch.float8_e8m0fnu"
        }
      }
    ]
  ],
  "deps": {
    "torch": "2.7.0",
    "CUDA_DEVICE_MAX_CONNECTIONS": null
  },
  "key": [
    [
      [8192, 49152],
      [49152, 1],
      {"__torch_dtype__": "torch.bfloat16"}
    ],
    8
  ],
  "func": "gemm_rs",
  "timestamp": "2025-12-23_10_11_12"
})";

TEST(OriginalFormat, IsReadFastestFirst) {
  const OriginalForm form = read_original(k_original);
  ASSERT_EQ(form.config.size(), 3U);
  EXPECT_EQ(form.config[0].first, 0.0156);
  EXPECT_EQ(form.config[1].first, 0.0312);
  EXPECT_EQ(form.config[2].first, k_infinite);
  const Config& second = form.config[1].second;
  EXPECT_EQ(second.entries()[0].first, "gemm_config");
  EXPECT_EQ(second.at("gemm_config").text(),
            "triton.Config(kwargs={\"BLOCK_SIZE_M\": 128, \"GROUP_SIZE_M\": 8}, num_warps=4, "
            "num_ctas=1, num_stages=3, maxnreg=None, pre_hook=None, ir_override=None)");
  EXPECT_EQ(second.at("fuse_scatter"), Value(true));
  EXPECT_EQ(form.config[2].second.at("dtype"), Value::named("torch.float8_e8m0fnu"));
  EXPECT_EQ(form.deps, Value::dict({{"torch", "2.7.0"}, {"CUDA_DEVICE_MAX_CONNECTIONS", Value()}}));
  EXPECT_EQ(form.key.text(), "[[[8192, 49152], [49152, 1], torch.bfloat16()], 8]");
  EXPECT_EQ(form.func, "gemm_rs");
  EXPECT_EQ(form.timestamp, "2025-12-23_10_11_12");
}

TEST(OriginalFormat, OddValuesAreData) {
  const auto value = [](const std::string& json) {
    const OriginalForm form =
        read_original(R"({"config": [[1, {"x": )" + json + R"(}]], "deps": {}, "key": null})");
    return std::string(form.config[0].second.at("x").text());
  };
  EXPECT_EQ(value("123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(value("-0"), "0");
  EXPECT_EQ(value("-0.0"), "-0.0");
  EXPECT_EQ(value("1e400"), "inf");
  EXPECT_EQ(value("-Infinity"), "-inf");
  EXPECT_EQ(value("NaN"), "nan");
  EXPECT_EQ(value("[1, [2]]"), "[1, [2]]");
  EXPECT_EQ(value(R"({"a": 1, "a": 2})"), R"({"a": 2})");
  EXPECT_EQ(value(R"({"__torch_dtype__": "not a name"})"), R"({"__torch_dtype__": "not a name"})");
  EXPECT_EQ(value(R"({"__torch_dtype__": 5})"), R"({"__torch_dtype__": 5})");
  EXPECT_EQ(value(R"({"__triton_config__": {"no name": 1}})"),
            R"({"__triton_config__": {"no name": 1}})");
  EXPECT_EQ(value(R"({"__triton_config__": "x"})"), R"({"__triton_config__": "x"})");
}

TEST(OriginalFormat, TimeThatIsNoNumberCountsAsFailed) {
  const OriginalForm form =
      read_original(R"({"config": [[NaN, {"a": 1}], [2.0, {"a": 2}]], "deps": {}, "key": null})");
  EXPECT_EQ(form.config[0].first, 2.0);
  EXPECT_EQ(form.config[1].first, k_infinite);
}

TEST(OriginalFormat, DamageIsAnErrorWithItsPlace) {
  const std::string text = k_original;
  for (std::size_t n = 0; n < text.size(); ++n)
    EXPECT_THROW((void)read_original(text.substr(0, n)), StoreError) << n;
  for (const char* bad :
       {"null", "[]", "{}", R"({"config": [], "deps": {}, "key": 1})",
        R"({"config": [[1]], "deps": {}, "key": 1})", R"({"config": [1], "deps": {}, "key": 1})",
        R"({"config": [["1", {}]], "deps": {}, "key": 1})",
        R"({"config": [[-1, {}]], "deps": {}, "key": 1})",
        R"({"config": [[1, []]], "deps": {}, "key": 1})",
        R"({"config": [[1, {}, 2]], "deps": {}, "key": 1})", R"({"config": [[1, {}]], "deps": {}})",
        R"({"config": [[1, {}]], "key": 1})"})
    EXPECT_THROW((void)read_original(bad), StoreError) << bad;
  std::string deep = R"({"key": )";
  for (int i = 0; i < 1'000'000; ++i) deep += R"({"__triton_config__": )";
  EXPECT_THROW((void)read_original(deep), StoreError);
}

TEST(OriginalFormat, RecordsTakeTheSameForm) {
  Record record = make_record();
  TuningRecord& tuning = record.tunings[0];
  tuning.candidates[0].status = Status::launch_failed;
  tuning.candidates[0].score_ns.reset();
  tuning.candidates[1].score_ns = 250'000;
  tuning.candidates[2].score_ns = 125'000;
  tuning.winner = tuning.candidates[2].config.identity();
  const OriginalForm form = to_original(record, tuning);
  ASSERT_EQ(form.config.size(), 3U);
  EXPECT_EQ(form.config[0].first, 0.125);
  EXPECT_EQ(form.config[0].second.identity(), *tuning.winner);
  EXPECT_EQ(form.config[1].first, 0.25);
  EXPECT_EQ(form.config[2].first, k_infinite);
  EXPECT_EQ(form.key, record.key.key);
  EXPECT_EQ(form.deps, tuning.deps);
  EXPECT_EQ(form.func, "scale");
  EXPECT_EQ(form.timestamp, "2026-11-29_19_12_12");
}

TEST(OriginalFormat, WinnerOfATieComesFirst) {
  Record record = make_record();
  TuningRecord& tuning = record.tunings[0];
  for (CandidateRecord& c : tuning.candidates) c.score_ns = 1000;
  tuning.winner = tuning.candidates[1].config.identity();
  EXPECT_EQ(to_original(record, tuning).config[0].second.identity(), *tuning.winner);
}

TEST(OriginalFormat, EitherKindOfFileIsLoaded) {
  const TemporaryFolder folder;
  const Store store(folder.path(), {});
  const Saved saved = store.save(make_record());
  EXPECT_EQ(load_original_form(saved.file).config.size(), 3U);
  write_text(folder.path() / "old.json", k_original);
  EXPECT_EQ(load_original_form(folder.path() / "old.json").func, "gemm_rs");
  for (const char* content : {"", "junk", "{}", "[1]"}) {
    write_text(folder.path() / "bad.json", content);
    try {
      (void)load_original_form(folder.path() / "bad.json");
      ADD_FAILURE() << content;
    } catch (const StoreError& e) {
      EXPECT_NE(std::string(e.what()).find("bad.json"), std::string::npos);
    }
  }
  EXPECT_THROW((void)load_original_form(folder.path() / "none.json"), StoreError);
  EXPECT_THROW((void)load_original_form(folder.path()), StoreError);
}

}  // namespace
}  // namespace disttune::store
