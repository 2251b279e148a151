#include "disttune/record.hpp"

#include <array>
#include <cstddef>

DISTTUNE_NAMESPACE_BEGIN
namespace {

constexpr std::array<std::string_view, 9> k_statuses = {
    "ok",        "skipped",          "pruned",         "wrong_result",
    "timed_out", "out_of_resources", "compile_failed", "launch_failed",
    "crashed"};
static_assert(k_statuses.size() == static_cast<std::size_t>(Status::crashed) + 1);

}  // namespace

std::string_view to_string(Status status) noexcept {
  const auto i = static_cast<std::size_t>(status);
  return i < k_statuses.size() ? k_statuses[i] : "unknown";
}

std::optional<Status> parse_status(std::string_view text) noexcept {
  for (std::size_t i = 0; i < k_statuses.size(); ++i)
    if (k_statuses[i] == text) return static_cast<Status>(i);
  return std::nullopt;
}

Value RecordKey::text() const {
  return Value::dict({{"identity", identity},
                      {"key", key},
                      {"hardware", hardware},
                      {"group", group},
                      {"policy", policy},
                      {"overwritten", overwritten}});
}

std::string Explanation::text() const {
  std::string out = "source: " + source;
  if (config) out += "\nconfig: " + config->display();
  if (!file.empty()) out += "\nfile: " + file;
  if (!miss_reason.empty()) out += "\nmiss: " + miss_reason;
  if (!differences.empty()) {
    out += miss_reason.empty() ? "\nnoted:" : "\nthe nearest record differs in:";
    for (const std::string& line : differences) out += "\n  " + line;
  }
  return out;
}

DISTTUNE_NAMESPACE_END
