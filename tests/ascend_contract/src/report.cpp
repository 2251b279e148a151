// Knobs, error messages, call counters, fault injection, and the report of one process.
#include "runtime.h"

#include <unistd.h>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>

namespace contract {
namespace {

constexpr std::array k_misuse_names{
    "event_on_other_device", "elapsed_without_time_line", "event_flag_zero", "use_after_destroy",
    "no_current_device",     "bad_value_address",         "unknown_pointer"};

struct State {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<ApiRecord>> apis;
  std::map<std::string, uint64_t> unimplemented;
  std::array<std::atomic<uint64_t>, k_misuse_names.size()> misuse{};
  std::optional<Usage> at_finalize;
};

// Never destroyed: stream workers and exit handlers use it after static destructors have run.
State& state() {
  static State* instance = new State;
  return *instance;
}

thread_local std::string t_recent_error;

int64_t trace_level() {
  static const int64_t level = knob("TRACE", int64_t{0});
  return level;
}

Usage live_usage() {
  Usage usage;
  usage.streams = live_streams();
  usage.events = live_events();
  add_memory_usage(usage);
  return usage;
}

// Names are C identifiers, so nothing needs escaping.
template <class Items>
void write_object(std::ostream& out, const char* name, const Items& items) {
  out << '"' << name << "\": {";
  const char* separator = "";
  for (const auto& [key, value] : items) {
    out << separator << '"' << key << "\": " << value;
    separator = ", ";
  }
  out << '}';
}

std::string report() {
  State& s = state();
  const Usage live = live_usage();
  const std::lock_guard lock(s.mutex);
  std::map<std::string, uint64_t> calls;
  for (const auto& [name, record] : s.apis)
    if (record->calls != 0) calls[name] = record->calls;
  std::map<std::string, uint64_t> misuse;
  for (size_t i = 0; i < k_misuse_names.size(); ++i) misuse[k_misuse_names[i]] = s.misuse[i];
  const Usage usage = s.at_finalize.value_or(live);
  const std::map<std::string, size_t> left{{"streams", usage.streams},
                                           {"events", usage.events},
                                           {"device_allocations", usage.device_allocations},
                                           {"device_bytes", usage.device_bytes},
                                           {"host_allocations", usage.host_allocations}};
  std::ostringstream out;
  out << "{\"pid\": " << getpid() << ", \"finalized\": " << (s.at_finalize ? "true" : "false");
  out << ",\n ";
  write_object(out, "live", left);
  out << ",\n ";
  write_object(out, "misuse", misuse);
  out << ",\n ";
  write_object(out, "unimplemented", s.unimplemented);
  out << ",\n ";
  write_object(out, "calls", calls);
  out << "}\n";
  return out.str();
}

// A destructor of the library, not atexit: it runs after those of the libraries that use this one.
__attribute__((destructor)) void write_report() {
  std::string path = knob("REPORT", "");
  if (path.empty()) return;
  if (const size_t pid = path.find("%p"); pid != std::string::npos)
    path.replace(pid, 2, std::to_string(getpid()));
  FILE* file = fopen(path.c_str(), "w");
  if (file == nullptr) {
    fprintf(stderr, "[npu-contract] cannot write the report %s\n", path.c_str());
    return;
  }
  fputs(report().c_str(), file);
  fclose(file);
}

}  // namespace

std::string knob(const char* name, const char* fallback) {
  const std::string variable = std::string("NPU_CONTRACT_") + name;
  const char* text = getenv(variable.c_str());
  return text != nullptr && *text != '\0' ? text : fallback;
}

int64_t knob(const char* name, int64_t fallback) {
  const std::string text = knob(name, "");
  return text.empty() ? fallback : strtoll(text.c_str(), nullptr, 0);
}

ApiRecord& api_record(const char* name) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  auto& record = s.apis[name];
  if (record == nullptr) record = std::make_unique<ApiRecord>(name);
  return *record;
}

Status enter(ApiRecord& record) {
  ++record.calls;
  if (trace_level() == 1) fprintf(stderr, "[npu-contract] %s\n", record.name.c_str());
  if (record.fails_in < 0 || record.fails_in-- != 0) return {};
  return fail(record.fail_code, "%s: injected fault", record.name.c_str());
}

Status fail(int code, const char* format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  t_recent_error = message;
  if (trace_level() != 0) fprintf(stderr, "[npu-contract] error %d: %s\n", code, message);
  return {code};
}

void note_misuse(Misuse kind) { ++state().misuse.at(static_cast<size_t>(kind)); }

void snapshot_usage() {
  const Usage live = live_usage();
  const std::lock_guard lock(state().mutex);
  state().at_finalize = live;
}

}  // namespace contract

/// The report so far as JSON; valid until the calling thread asks again.
CONTRACT_API const char* npu_contract_report() {
  thread_local std::string text;
  text = contract::report();
  return text.c_str();
}

/// Makes one call of `api` return `code` without effect: the one after the next `after` calls.
/// A negative `after` takes a pending fault back.
CONTRACT_API void npu_contract_fail_next(const char* api, int code, int after) {
  contract::ApiRecord& record = contract::api_record(api);
  record.fail_code = code;
  record.fails_in = after;
}

/// Called by the generated definitions of what this library does not implement.
CONTRACT_API void npu_contract_unimplemented(const char* api) {
  {
    const std::lock_guard lock(contract::state().mutex);
    ++contract::state().unimplemented[api];
  }
  (void)contract::fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s: not implemented", api);
}

CONTRACT_API const char* aclGetRecentErrMsg() {
  thread_local std::string last;
  last = std::move(contract::t_recent_error);
  contract::t_recent_error.clear();
  return last.empty() ? nullptr : last.c_str();
}
