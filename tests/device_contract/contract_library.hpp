// A test's view of a contract library: the control functions of contract_control.cpp.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace contract {

class Library {
 public:
  explicit Library(const std::string& path) : m_handle(dlopen(path.c_str(), RTLD_NOW)) {
    if (m_handle == nullptr) throw std::runtime_error(dlerror());
    find(reset, "contract_reset");
    find(advance, "contract_advance");
    find(kernel, "contract_kernel");
    find(hang, "contract_hang");
    find(end_hangs, "contract_end_hangs");
    find(fault, "contract_fault");
    find(fail_next, "contract_fail_next");
    find(lose_host_memory, "contract_lose_host_memory");
    find(set, "contract_set");
    find(get, "contract_get");
    find(force_elapsed, "contract_force_elapsed");
    find(calls, "contract_calls");
    find(misuse, "contract_misuse");
    find(live, "contract_live");
    find(create_stream, "contract_create_stream");
    find(destroy_stream, "contract_destroy_stream");
    find(make_current, "contract_make_current");
    find(current, "contract_current");
    find(begin_capture, "contract_begin_capture");
    find(capture_state, "contract_capture_state");
  }

  /// What lives, but for the one word in pinned memory that the CUDA driver keeps for its next
  /// timer.
  [[nodiscard]] std::string left() const {
    std::string text = live();
    const std::string spare = "host blocks 1\n";
    if (const auto at = text.find(spare); at != std::string::npos) text.erase(at, spare.size());
    return text;
  }

  void (*reset)() = nullptr;
  void (*advance)(std::int64_t ns) = nullptr;
  int (*kernel)(void* stream, std::int64_t ns) = nullptr;
  int (*hang)(void* stream) = nullptr;
  void (*end_hangs)() = nullptr;
  int (*fault)(void* stream, int code) = nullptr;
  void (*fail_next)(const char* name, int code, int after) = nullptr;
  void (*lose_host_memory)() = nullptr;
  void (*set)(const char* name, std::int64_t value) = nullptr;
  std::int64_t (*get)(const char* name) = nullptr;
  void (*force_elapsed)(float milliseconds) = nullptr;
  int (*calls)(const char* name) = nullptr;
  const char* (*misuse)() = nullptr;
  const char* (*live)() = nullptr;
  void* (*create_stream)(int device) = nullptr;
  void (*destroy_stream)(void* stream) = nullptr;
  void (*make_current)(int device) = nullptr;
  int (*current)() = nullptr;
  int (*begin_capture)(void* stream) = nullptr;
  int (*capture_state)(void* stream) = nullptr;

 private:
  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(m_handle, name));
    if (function == nullptr) throw std::runtime_error(name);
  }
  void* m_handle;
};

}  // namespace contract
