// The HIP runtime's functions over the model. CONTRACT_OLD: a runtime without hipStreamGetDevice,
// stream waits and graphs. CONTRACT_ANCIENT: one without hipHostMalloc.
#include <cstring>
#include <string>

#include "device_contract/gpu_model.hpp"

using contract::Model;
using contract::model;

namespace {

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const auto found = model().settings.find(name);
  return found == model().settings.end() ? otherwise : found->second;
}

int devices() { return static_cast<int>(setting("devices", 2)); }

/// HIP always has a device: 0 until another is set.
void* current() {
  if (Model::current.empty()) Model::current.push_back(model().primary(0));
  return Model::current.back();
}

}  // namespace

#define ENTER()                                              \
  const std::lock_guard lock(model().mutex);                 \
  if (const int code = model().enter(__func__)) return code; \
  void* const context = current();                           \
  static_cast<void>(context)

CONTRACT_EXPORT int hipInit(unsigned flags) {
  ENTER();
  return flags == 0 ? contract::success : contract::invalid_value;
}
CONTRACT_EXPORT int hipRuntimeGetVersion(int* version) {
  ENTER();
  *version = 60443483;
  return 0;
}
CONTRACT_EXPORT int hipDriverGetVersion(int* version) {
  ENTER();
  *version = 60443483;
  return 0;
}
CONTRACT_EXPORT const char* hipGetErrorName(int code) {
  return code == 700 ? "hipErrorIllegalAddress" : "hipErrorOfTheContract";
}
CONTRACT_EXPORT const char* hipGetErrorString(int) { return "an error of the contract library"; }
CONTRACT_EXPORT int hipGetDeviceCount(int* count) {
  ENTER();
  *count = devices();
  return devices() == 0 ? 100 : 0;
}
CONTRACT_EXPORT int hipDeviceGetName(char* name, int length, int) {
  ENTER();
  std::strncpy(name, "Contract Instinct", static_cast<std::size_t>(length));
  return 0;
}
CONTRACT_EXPORT int hipDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER();
  if (device < 0 || device >= devices()) {
    model().misuse("a device that does not exist");
    return contract::invalid_device;
  }
  switch (attribute) {
    case 5:
      *value = 2100000;
      return 0;
    case 19:
      *value = static_cast<int>(setting("l2", 4 << 20));
      return 0;
    case 23:
      *value = 9;
      return 0;
    case 59:
      *value = 8192;
      return 0;
    case 60:
      *value = 1300000;
      return 0;
    case 61:
      *value = 4;
      return 0;
    case 63:
      *value = 304;
      return 0;
    case 87:
      *value = 64;
      return 0;
    case 10013:
      *value = static_cast<int>(setting("stream_wait", 1));
      return 0;
    default:
      model().misuse("attribute " + std::to_string(attribute));
      return 1;
  }
}
CONTRACT_EXPORT int hipDeviceTotalMem(std::size_t* bytes, int) {
  ENTER();
  *bytes = std::size_t{206} << 30;
  return 0;
}
CONTRACT_EXPORT int hipGetDevice(int* device) {
  ENTER();
  *device = model().contexts.at(context).device;
  return 0;
}
CONTRACT_EXPORT int hipSetDevice(int device) {
  ENTER();
  if (device < 0 || device >= devices()) return contract::invalid_device;
  Model::current.back() = model().primary(device);
  return 0;
}
CONTRACT_EXPORT int hipStreamQuery(void* stream) {
  ENTER();
  return model().query(stream);
}
CONTRACT_EXPORT int hipEventCreateWithFlags(void** event, unsigned flags) {
  ENTER();
  return model().create_event((flags & 2) == 0, context, event);
}
CONTRACT_EXPORT int hipEventDestroy(void* event) {
  ENTER();
  return model().destroy_event(event);
}
CONTRACT_EXPORT int hipEventRecord(void* event, void* stream) {
  ENTER();
  return model().record(event, stream);
}
CONTRACT_EXPORT int hipEventElapsedTime(float* milliseconds, void* start, void* stop) {
  ENTER();
  return model().elapsed(milliseconds, start, stop);
}
CONTRACT_EXPORT int hipMalloc(void** pointer, std::size_t bytes) {
  ENTER();
  std::uint64_t address = 0;
  const int code = model().allocate(bytes, context, &address);
  *pointer = reinterpret_cast<void*>(address);
  return code;
}
CONTRACT_EXPORT int hipFree(void* pointer) {
  ENTER();
  return model().free(reinterpret_cast<std::uint64_t>(pointer));
}
CONTRACT_EXPORT int hipMemsetAsync(void* pointer, int, std::size_t bytes, void* stream) {
  ENTER();
  return model().fill(reinterpret_cast<std::uint64_t>(pointer), bytes, stream);
}
#if !defined(CONTRACT_ANCIENT)
CONTRACT_EXPORT int hipHostMalloc(void** pointer, std::size_t bytes, unsigned flags) {
  ENTER();
  if ((flags & 0x2) == 0) model().misuse("host memory that is not mapped");
  if ((flags & 0x40000000) == 0 || (flags & 0x80000000) != 0) {
    model().misuse("host memory that is not coherent");
  }
  return model().allocate_host(bytes, pointer);
}
#endif
CONTRACT_EXPORT int hipHostFree(void* pointer) {
  ENTER();
  return model().free_host(pointer);
}
CONTRACT_EXPORT int hipHostGetDevicePointer(void** address, void* pointer, unsigned) {
  ENTER();
  std::uint64_t seen = 0;
  const int code = model().host_address(pointer, &seen);
  *address = reinterpret_cast<void*>(seen);
  return code;
}
CONTRACT_EXPORT int hipLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  ENTER();
  return model().host_function(stream, function, argument);
}
#if !defined(CONTRACT_OLD)
CONTRACT_EXPORT int hipStreamGetDevice(void* stream, int* device) {
  ENTER();
  contract::Stream* found = nullptr;
  const int code = model().find_stream(stream, nullptr, &found);
  if (found != nullptr) *device = model().contexts.at(found->context).device;
  return code;
}
CONTRACT_EXPORT int hipStreamWaitValue32(void* stream, void* address, std::uint32_t value,
                                         unsigned flags, std::uint32_t mask) {
  ENTER();
  if (mask != 0xffffffff) model().misuse("a wait that ignores bits");
  return model().wait_for_word(stream, reinterpret_cast<std::uint64_t>(address), value, flags);
}
CONTRACT_EXPORT int hipStreamIsCapturing(void* stream, int* status) {
  ENTER();
  return model().capture_status(stream, status);
}
CONTRACT_EXPORT int hipStreamBeginCapture(void* stream, int mode) {
  ENTER();
  if (mode < 0 || mode > 2) return contract::invalid_value;
  return model().begin_capture(stream);
}
CONTRACT_EXPORT int hipStreamEndCapture(void* stream, void** graph) {
  ENTER();
  return model().end_capture(stream, graph);
}
CONTRACT_EXPORT int hipGraphInstantiateWithFlags(void** executable, void* graph,
                                                 unsigned long long flags) {
  ENTER();
  if (flags != 0) return contract::invalid_value;
  return model().instantiate(executable, graph);
}
CONTRACT_EXPORT int hipGraphLaunch(void* executable, void* stream) {
  ENTER();
  return model().launch(executable, stream);
}
CONTRACT_EXPORT int hipGraphExecDestroy(void* executable) {
  ENTER();
  return model().destroy_graph(model().executables, executable, "an executable graph");
}
CONTRACT_EXPORT int hipGraphDestroy(void* graph) {
  ENTER();
  return model().destroy_graph(model().graphs, graph, "a graph");
}
#endif
