#include "device_contract/gpu_model.hpp"

#include <algorithm>
#include <cstring>

namespace contract {

thread_local std::vector<void*> Model::current;

Model& model() {
  static auto* const instance = new Model;
  return *instance;
}

void Model::reset() {
  host_now = 0;
  settings.clear();
  calls.clear();
  injected.clear();
  contexts.clear();
  streams.clear();
  events.clear();
  graphs.clear();
  executables.clear();
  hangs_released = 0;
  force_elapsed = false;
  current.clear();
  m_primaries.clear();
  m_default_streams.clear();
  m_host.clear();
  m_memory.clear();
  m_misuse.clear();
}

int Model::enter(const char* name) {
  ++calls[name];
  pump();
  const auto found = injected.find(name);
  if (found == injected.end() || found->second.after-- > 0) return success;
  const int code = found->second.code;
  injected.erase(found);
  return code;
}

int Model::enter_with_context(const char* name, void** context) {
  if (const int code = enter(name)) return code;
  if (current.empty()) {
    misuse(std::string(name) + " without a current context");
    return invalid_context;
  }
  *context = current.back();
  return contexts.at(*context).sticky;
}

void* Model::primary(int device) {
  const auto index = static_cast<std::size_t>(device);
  if (m_primaries.size() <= index) m_primaries.resize(index + 1);
  if (m_primaries[index] == nullptr) {
    m_primaries[index] = handle();
    contexts[m_primaries[index]].device = device;
  }
  return m_primaries[index];
}

// ---- queues

bool Model::word_reached(const Command& wait) const {
  auto& word = *reinterpret_cast<std::uint32_t*>(wait.address);
  const std::uint32_t found = std::atomic_ref<std::uint32_t>(word).load(std::memory_order_acquire);
  switch (wait.flag) {
    case 0:
      return static_cast<std::int32_t>(found - wait.value) >= 0;
    case 1:
      return found == wait.value;
    case 2:
      return (found & wait.value) != 0;
    default:
      return ~(found | wait.value) != 0;
  }
}

bool Model::step(Stream& stream) {
  Command& c = stream.queue.front();
  const Ns start = std::max(stream.time, c.queued_at);
  switch (c.kind) {
    case Command::kernel:
      stream.time = start + c.duration;
      return true;
    case Command::record: {
      stream.time = start;
      const auto event = events.find(c.event);
      if (event != events.end()) {
        event->second.completed = c.number;
        event->second.stamp = start;
      }
      return true;
    }
    case Command::wait:
      if (!word_reached(c)) {
        c.was_blocked = true;
        return false;
      }
      stream.time = c.was_blocked ? std::max(start, host_now) : start;
      return true;
    case Command::host:
      if (!c.was_blocked) {
        c.was_blocked = true;
        c.task->thread = std::thread([task = c.task] {
          task->function(task->argument);
          task->done = true;
        });
      }
      if (!c.task->done) return false;
      c.task->thread.join();
      stream.time = std::max(start, host_now);
      return true;
    case Command::hang:
      return c.number <= hangs_released;
    case Command::fault:
      lose(stream.context, c.code);
      return false;
  }
  return false;
}

void Model::pump() {
  for (auto& [handle, stream] : streams) {
    while (!stream.queue.empty() && step(stream)) stream.queue.pop_front();
  }
}

void Model::lose(void* context, int code) {
  contexts.at(context).sticky = code;
  for (auto& [handle, stream] : streams) {
    if (stream.context != context) continue;
    for (Command& c : stream.queue) {
      if (c.task && c.task->thread.joinable()) c.task->thread.detach();
    }
    stream.queue.clear();
  }
}

int Model::find_stream(void* handle, void** key, Stream** stream) {
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2) {
    if (current.empty()) {
      misuse("a default stream without a current context");
      return invalid_context;
    }
    void*& made = m_default_streams[current.back()];
    if (made == nullptr) create_stream(current.back(), &made);
    handle = made;
  }
  const auto found = streams.find(handle);
  if (found == streams.end()) {
    misuse("a stream that does not exist, or no longer");
    return invalid_handle;
  }
  if (key != nullptr) *key = handle;
  *stream = &found->second;
  return contexts.at(found->second.context).sticky;
}

int Model::queue(void* handle, Command command) {
  Stream* stream = nullptr;
  if (const int code = find_stream(handle, nullptr, &stream)) return code;
  command.queued_at = host_now;
  if (stream->capture == 2) return capture_invalidated;
  if (stream->capture == 1) {
    stream->captured.push_back(std::move(command));
    return success;
  }
  stream->queue.push_back(std::move(command));
  pump();
  return success;
}

int Model::create_stream(void* context, void** stream) {
  *stream = handle();
  streams[*stream].context = context;
  return success;
}

int Model::destroy_stream(void* stream) {
  if (streams.erase(stream) == 0) return invalid_handle;
  return success;
}

int Model::query(void* handle) {
  Stream* stream = nullptr;
  if (const int code = find_stream(handle, nullptr, &stream)) return code;
  if (stream->capture != 0) {
    misuse("a stream under capture was queried");
    stream->capture = 2;
    return capture_unsupported;
  }
  pump();
  if (const int code = contexts.at(stream->context).sticky) return code;
  return stream->queue.empty() ? success : not_ready;
}

// ---- events

int Model::create_event(bool timed, void* context, void** event) {
  *event = handle();
  Event& made = events[*event];
  made.context = context;
  made.timed = timed;
  return success;
}

int Model::destroy_event(void* event) {
  if (events.erase(event) == 1) return success;
  misuse("an event destroyed twice");
  return invalid_handle;
}

int Model::record(void* event, void* handle) {
  const auto found = events.find(event);
  if (found == events.end()) {
    misuse("a destroyed event was recorded");
    return invalid_handle;
  }
  Stream* stream = nullptr;
  if (const int code = find_stream(handle, nullptr, &stream)) return code;
  if (stream->context != found->second.context) {
    misuse("an event recorded on a stream of another context");
    return invalid_handle;
  }
  Command c;
  c.kind = Command::record;
  c.event = event;
  c.number = ++found->second.recorded;
  return queue(handle, std::move(c));
}

int Model::elapsed(float* milliseconds, void* start, void* stop) {
  Ns stamps[2] = {};
  void* const handles[2] = {start, stop};
  for (int i = 0; i < 2; ++i) {
    const auto found = events.find(handles[i]);
    if (found == events.end()) {
      misuse("a destroyed event was read");
      return invalid_handle;
    }
    const Event& event = found->second;
    if (const int code = contexts.at(event.context).sticky) return code;
    if (!event.timed) misuse("an event without a time stamp was read");
    if (!event.timed || event.recorded == 0) return invalid_handle;
    if (event.completed != event.recorded) return not_ready;
    stamps[i] = event.stamp;
  }
  *milliseconds = static_cast<float>(static_cast<double>(stamps[1] - stamps[0]) / 1e6);
  if (force_elapsed) *milliseconds = forced_elapsed;
  return success;
}

// ---- capture

bool Model::breaks_capture(const char* call) {
  for (auto& [handle, stream] : streams) {
    if (stream.capture != 1) continue;
    misuse(std::string(call) + " during a capture");
    stream.capture = 2;
    return true;
  }
  return false;
}

int Model::capture_status(void* handle, int* status) {
  Stream* stream = nullptr;
  void* key = nullptr;
  if (const int code = find_stream(handle, &key, &stream)) return code;
  if (key != handle) {
    for (const auto& [other, each] : streams) {
      if (each.context == stream->context && each.capture != 0) return capture_implicit;
    }
  }
  *status = stream->capture;
  return success;
}

int Model::begin_capture(void* handle) {
  Stream* stream = nullptr;
  void* key = nullptr;
  if (const int code = find_stream(handle, &key, &stream)) return code;
  if (key != handle) return capture_unsupported;
  if (stream->capture != 0) return invalid_value;
  stream->capture = 1;
  stream->captured.clear();
  return success;
}

int Model::end_capture(void* handle, void** graph) {
  Stream* stream = nullptr;
  *graph = nullptr;
  if (const int code = find_stream(handle, nullptr, &stream)) return code;
  if (stream->capture == 0) {
    misuse("a capture ended that was not begun");
    return invalid_value;
  }
  const bool valid = stream->capture == 1;
  stream->capture = 0;
  if (!valid) return capture_invalidated;
  *graph = this->handle();
  graphs[*graph] = std::move(stream->captured);
  return success;
}

int Model::instantiate(void** executable, void* graph) {
  const auto found = graphs.find(graph);
  if (found == graphs.end()) {
    misuse("a destroyed graph was instantiated");
    return invalid_handle;
  }
  *executable = handle();
  executables[*executable] = found->second;
  return success;
}

int Model::launch(void* executable, void* stream) {
  const auto found = executables.find(executable);
  if (found == executables.end()) {
    misuse("a destroyed graph was launched");
    return invalid_handle;
  }
  for (Command c : found->second) {
    if (const int code = queue(stream, std::move(c))) return code;
  }
  return success;
}

int Model::destroy_graph(std::map<void*, std::vector<Command>>& table, void* graph,
                         const char* what) {
  if (table.erase(graph) == 1) return success;
  misuse(std::string(what) + " destroyed twice");
  return invalid_handle;
}

// ---- memory

int Model::allocate_host(std::size_t bytes, void** pointer) {
  if (breaks_capture("a host allocation")) return capture_unsupported;
  HostBlock block{bytes, m_next_buffer_id++, std::make_unique<std::uint64_t[]>((bytes + 7) / 8)};
  // Fresh pinned memory holds anything; a gate that relies on zeros shows itself.
  std::memset(block.storage.get(), 0xa5, (bytes + 7) / 8 * 8);
  *pointer = block.storage.get();
  m_host.emplace(*pointer, std::move(block));
  return success;
}

int Model::free_host(void* pointer) {
  if (breaks_capture("a release of host memory")) return capture_unsupported;
  const auto found = m_host.find(pointer);
  if (found == m_host.end()) {
    misuse("host memory freed twice");
    return invalid_value;
  }
  const auto begin = reinterpret_cast<std::uint64_t>(pointer);
  for (const auto& [handle, stream] : streams) {
    for (const Command& c : stream.queue) {
      if (c.kind == Command::wait && c.address >= begin &&
          c.address < begin + found->second.bytes) {
        misuse("host memory freed under a queued wait");
        return invalid_value;
      }
    }
  }
  m_host.erase(found);
  return success;
}

int Model::host_address(void* pointer, std::uint64_t* address) {
  if (!m_host.contains(pointer)) {
    misuse("the address of unknown host memory was asked for");
    return invalid_value;
  }
  *address = reinterpret_cast<std::uint64_t>(pointer);
  return success;
}

int Model::buffer_id(std::uint64_t address, unsigned long long* id) {
  const auto found = m_host.find(reinterpret_cast<void*>(address));
  if (found == m_host.end()) return invalid_value;
  *id = found->second.id;
  return success;
}

int Model::wait_for_word(void* stream, std::uint64_t address, std::uint32_t value, unsigned flag) {
  const auto block = m_host.upper_bound(reinterpret_cast<void*>(address));
  const bool inside = block != m_host.begin() &&
                      address + 4 <= reinterpret_cast<std::uint64_t>(std::prev(block)->first) +
                                         std::prev(block)->second.bytes;
  if (!inside || address % 4 != 0 || flag > 3) {
    misuse("a wait for an unknown word, or with an unknown flag");
    return invalid_value;
  }
  Command c;
  c.kind = Command::wait;
  c.address = address;
  c.value = value;
  c.flag = flag;
  return queue(stream, std::move(c));
}

int Model::host_function(void* stream, void (*function)(void*), void* argument) {
  Command c;
  c.kind = Command::host;
  c.task = std::make_shared<HostTask>();
  c.task->function = function;
  c.task->argument = argument;
  return queue(stream, std::move(c));
}

int Model::allocate(std::size_t bytes, void* context, std::uint64_t* address) {
  if (breaks_capture("an allocation")) return capture_unsupported;
  if (bytes == 0) {
    misuse("an allocation of no bytes");
    return invalid_value;
  }
  *address = m_next_address;
  m_next_address += (bytes + 511) / 512 * 512;
  m_memory[*address] = {bytes, context};
  return success;
}

int Model::free(std::uint64_t address) {
  if (breaks_capture("a release of memory")) return capture_unsupported;
  if (m_memory.erase(address) == 1) return success;
  misuse("memory freed twice");
  return invalid_value;
}

int Model::fill(std::uint64_t address, std::size_t bytes, void* handle) {
  Stream* stream = nullptr;
  if (const int code = find_stream(handle, nullptr, &stream)) return code;
  const auto found = m_memory.find(address);
  if (found == m_memory.end() || bytes > found->second.bytes ||
      found->second.context != stream->context) {
    misuse("a fill outside of the stream's memory");
    return invalid_value;
  }
  settings["filled"] += static_cast<std::int64_t>(bytes);
  Command c;
  c.duration = 1000;
  return queue(handle, std::move(c));
}

// ---- reports

std::string Model::live() const {
  std::string text;
  const auto add = [&](const char* what, std::size_t count) {
    if (count != 0) text += std::string(what) + " " + std::to_string(count) + "\n";
  };
  add("events", events.size());
  add("graphs", graphs.size());
  add("executable graphs", executables.size());
  add("host blocks", m_host.size());
  add("allocations", m_memory.size());
  std::size_t retained = 0;
  for (const auto& [handle, context] : contexts) {
    retained += static_cast<std::size_t>(context.retained);
  }
  add("retained contexts", retained);
  return text;
}

std::string Model::misuse_text() const {
  std::string text;
  for (const std::string& line : m_misuse) text += line + "\n";
  return text;
}

}  // namespace contract
