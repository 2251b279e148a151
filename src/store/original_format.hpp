// The files of the original tool (`<H>.json` with config, deps, key, func, timestamp): read,
// listed, and the form in which records of both kinds are handed out. Never written to disk.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "disttune/config.hpp"
#include "disttune/record.hpp"
#include "disttune/value.hpp"

namespace disttune::store {

struct OriginalForm {
  /// Milliseconds a candidate, fastest first; infinite for one that failed or was not timed.
  std::vector<std::pair<double, Config>> config;
  Value deps = Value::dict({});
  Value key;
  std::string func;
  std::string timestamp;  ///< "2026-11-29_19_12_12", in the zone of whoever wrote it
};

/// Reads a file of the original tool. JSON objects are dicts, arrays lists;
/// `{"__triton_config__": {…}}` is `triton.Config(field=…)` and `{"__torch_dtype__": "torch.x"}` is
/// `torch.x`, whichever x. `Infinity` and `NaN` are accepted, as Python writes them; a time that is
/// NaN counts as infinite. Throws StoreError with the offset of what is wrong.
[[nodiscard]] OriginalForm read_original(std::string_view json);

/// The record's tuning in the original's form; `func` is the function's name, `timestamp` UTC.
[[nodiscard]] OriginalForm to_original(const Record& record, const TuningRecord& tuning);

/// Either kind of file in the original's form (of a record, its newest tuning). Throws StoreError
/// that names the file and what is wrong with it.
[[nodiscard]] OriginalForm load_original_form(const std::filesystem::path& file);

}  // namespace disttune::store
