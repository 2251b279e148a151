// A GPU driver without a GPU: contexts, in-order streams, events and memory, in virtual time. The
// two contract libraries export it under the names of their drivers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace contract {

using Ns = std::int64_t;

// Codes that both drivers share.
enum Code : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  invalid_device = 101,
  invalid_context = 201,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  not_supported = 801,
  capture_unsupported = 900,
  capture_invalidated = 901,
  capture_implicit = 906,
};

struct HostTask {
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
  std::thread thread;
  std::atomic<bool> done{false};
};

struct Command {
  enum Kind { kernel, record, wait, host, hang, fault } kind = kernel;
  Ns queued_at = 0;
  Ns duration = 0;                 // kernel
  void* event = nullptr;           // record
  std::uint64_t number = 0;        // record: which one of the event's
  std::uint64_t address = 0;       // wait
  std::uint32_t value = 0;         // wait
  unsigned flag = 0;               // wait
  bool was_blocked = false;        // wait, host
  int code = 0;                    // fault
  std::shared_ptr<HostTask> task;  // host
};

struct Context {
  int device = 0;
  int sticky = 0;
  int retained = 0;
};

struct Stream {
  void* context = nullptr;
  Ns time = 0;
  std::deque<Command> queue;
  int capture = 0;  // 0 none, 1 active, 2 invalidated
  std::vector<Command> captured;
};

struct Event {
  void* context = nullptr;
  bool timed = true;
  std::uint64_t recorded = 0;
  std::uint64_t completed = 0;
  Ns stamp = 0;
};

struct HostBlock {
  std::size_t bytes = 0;
  unsigned long long id = 0;
  std::unique_ptr<std::uint64_t[]> storage;
};

struct Allocation {
  std::size_t bytes = 0;
  void* context = nullptr;
};

class Model {
 public:
  Model() { reset(); }
  void reset();

  /// First statement of every exported function: counts the call; an injected fault answers.
  int enter(const char* name);
  /// The same for a function that needs a current context; a lost context answers.
  int enter_with_context(const char* name, void** context);
  void misuse(const std::string& what) { m_misuse.push_back(what); }
  /// Runs every queue as far as it gets.
  void pump();

  int find_stream(void* handle, void** key, Stream** stream);
  int queue(void* stream, Command command);
  int create_stream(void* context, void** stream);
  int destroy_stream(void* stream);

  int create_event(bool timed, void* context, void** event);
  int destroy_event(void* event);
  int record(void* event, void* stream);
  int elapsed(float* milliseconds, void* start, void* stop);
  int query(void* stream);

  int capture_status(void* stream, int* status);
  int begin_capture(void* stream);
  int end_capture(void* stream, void** graph);
  int instantiate(void** executable, void* graph);
  int launch(void* executable, void* stream);
  int destroy_graph(std::map<void*, std::vector<Command>>& table, void* graph, const char* what);

  int allocate_host(std::size_t bytes, void** pointer);
  int free_host(void* pointer);
  int host_address(void* pointer, std::uint64_t* address);
  int buffer_id(std::uint64_t address, unsigned long long* id);
  /// As when the context goes in which it was allocated.
  void lose_host_memory() { m_host.clear(); }
  int wait_for_word(void* stream, std::uint64_t address, std::uint32_t value, unsigned flag);
  int host_function(void* stream, void (*function)(void*), void* argument);
  int allocate(std::size_t bytes, void* context, std::uint64_t* address);
  int free(std::uint64_t address);
  int fill(std::uint64_t address, std::size_t bytes, void* stream);

  void* primary(int device);
  [[nodiscard]] std::string live() const;
  [[nodiscard]] std::string misuse_text() const;

  std::mutex mutex;
  Ns host_now = 0;
  std::map<std::string, std::int64_t> settings;
  std::map<std::string, int> calls;
  struct Injected {
    int code = 0;
    int after = 0;
  };
  std::map<std::string, Injected> injected;
  std::map<void*, Context> contexts;
  std::map<void*, Stream> streams;
  std::map<void*, Event> events;
  std::map<void*, std::vector<Command>> graphs;
  std::map<void*, std::vector<Command>> executables;
  std::uint64_t hangs_released = 0;
  bool force_elapsed = false;
  float forced_elapsed = 0;

  /// The contexts that the calling thread has made current, the innermost last.
  static thread_local std::vector<void*> current;

 private:
  void* handle() { return reinterpret_cast<void*>(m_next_handle += 16); }
  bool step(Stream& stream);
  bool word_reached(const Command& wait) const;
  void lose(void* context, int code);
  bool breaks_capture(const char* call);

  std::uintptr_t m_next_handle = 0x1000;
  std::vector<void*> m_primaries;
  std::map<void*, void*> m_default_streams;  // by context
  std::map<void*, HostBlock> m_host;
  unsigned long long m_next_buffer_id = 1;
  std::map<std::uint64_t, Allocation> m_memory;
  std::uint64_t m_next_address = 0x700000000000;
  std::vector<std::string> m_misuse;
};

/// Never destroyed: a host function may still be blocked at exit.
Model& model();

}  // namespace contract

#define CONTRACT_EXPORT extern "C" __attribute__((visibility("default")))
