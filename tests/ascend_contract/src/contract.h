// What the three contract libraries (runtime, operators, collectives) share.
#pragma once

#include <acl/acl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

#define CONTRACT_EXPORT __attribute__((visibility("default")))
#define CONTRACT_API extern "C" CONTRACT_EXPORT

// First statement of every entry point that reports errors: counts the call, traces it, and lets
// fault injection answer in its place.
#define CONTRACT_ENTER()                                                 \
  do {                                                                   \
    static contract::ApiRecord& record = contract::api_record(__func__); \
    CONTRACT_TRY(contract::enter(record));                               \
  } while (false)

// The same for entry points whose return type has no room for an error.
#define CONTRACT_COUNT()                                                 \
  do {                                                                   \
    static contract::ApiRecord& record = contract::api_record(__func__); \
    (void)contract::enter(record);                                       \
  } while (false)

#define CONTRACT_TRY(expression)                                                          \
  do {                                                                                    \
    if (const contract::Status failure = (expression); failure.code != 0) return failure; \
  } while (false)

// An entry point that only reports success.
#define CONTRACT_ACCEPT(name, ...)          \
  CONTRACT_API aclError name(__VA_ARGS__) { \
    CONTRACT_ENTER();                       \
    return ACL_SUCCESS;                     \
  }

namespace contract {

/// An error code of either interface (aclError is an int, HcclResult an enumeration).
struct [[nodiscard]] Status {
  int code = 0;
  template <class T>
  operator T() const {
    static_assert(std::is_same_v<T, int> || std::is_enum_v<T>);
    return static_cast<T>(code);
  }
};

enum class Misuse {
  event_on_other_device,
  elapsed_without_time_line,
  event_flag_zero,
  use_after_destroy,
  no_current_device,
  bad_value_address,
  unknown_pointer,
};

struct ApiRecord {
  explicit ApiRecord(std::string api_name) : name(std::move(api_name)) {}
  const std::string name;
  std::atomic<uint64_t> calls{0};
  std::atomic<int64_t> fails_in{-1};  // calls that still pass before the injected fault; -1: none
  std::atomic<int> fail_code{0};
};

/// Value of NPU_CONTRACT_<name>, or `fallback` when unset or empty.
CONTRACT_EXPORT std::string knob(const char* name, const char* fallback);
CONTRACT_EXPORT int64_t knob(const char* name, int64_t fallback);

CONTRACT_EXPORT ApiRecord& api_record(const char* name);
CONTRACT_EXPORT Status enter(ApiRecord& record);

/// Remembers the message for aclGetRecentErrMsg and hands the code back.
CONTRACT_EXPORT Status fail(int code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
CONTRACT_EXPORT void note_misuse(Misuse kind);

/// Queues a task on a stream (null: the current device's default stream).
CONTRACT_EXPORT Status enqueue(aclrtStream stream, std::function<void()> task);

}  // namespace contract
