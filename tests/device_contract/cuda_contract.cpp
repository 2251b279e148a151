// The CUDA driver's functions over the model. CONTRACT_OLD: a driver of CUDA 11.2, which has no
// cuGetProcAddress, no second ABI of stream waits and no cuGraphInstantiateWithFlags.
// CONTRACT_ANCIENT: one of CUDA 9.0, which has no cuStreamGetCtx either.
#include <cstring>
#include <string>

#include "device_contract/gpu_model.hpp"

using contract::Model;
using contract::model;

namespace {

using CuPointer = unsigned long long;

#if defined(CONTRACT_ANCIENT)
constexpr int k_version = 9000;
#elif defined(CONTRACT_OLD)
constexpr int k_version = 11020;
#else
constexpr int k_version = 13000;
#endif

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const auto found = model().settings.find(name);
  return found == model().settings.end() ? otherwise : found->second;
}

int devices() { return static_cast<int>(setting("devices", 2)); }

// CUdevice numbers differ from ordinals, so that mixing them up shows.
constexpr int k_first_device = 40;

}  // namespace

#define ENTER()                              \
  const std::lock_guard lock(model().mutex); \
  if (const int code = model().enter(__func__)) return code
#define ENTER_WITH_CONTEXT(context)          \
  const std::lock_guard lock(model().mutex); \
  void* context = nullptr;                   \
  if (const int code = model().enter_with_context(__func__, &context)) return code

CONTRACT_EXPORT int cuInit(unsigned flags) {
  ENTER();
  if (devices() == 0) return 100;
  return flags == 0 ? contract::success : contract::invalid_value;
}
CONTRACT_EXPORT int cuDriverGetVersion(int* version) {
  ENTER();
  *version = k_version;
  return 0;
}
CONTRACT_EXPORT int cuGetErrorName(int code, const char** text) {
  static thread_local std::string name;
  name = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_" + std::to_string(code);
  *text = code == 12345 ? nullptr : name.c_str();
  return code == 12345 ? contract::invalid_value : contract::success;
}
CONTRACT_EXPORT int cuGetErrorString(int code, const char** text) {
  *text = code == 12345 ? nullptr : "an error of the contract library";
  return code == 12345 ? contract::invalid_value : contract::success;
}
CONTRACT_EXPORT int cuDeviceGetCount(int* count) {
  ENTER();
  *count = devices();
  return 0;
}
CONTRACT_EXPORT int cuDeviceGet(int* device, int ordinal) {
  ENTER();
  if (ordinal < 0 || ordinal >= devices()) return contract::invalid_device;
  *device = k_first_device + ordinal;
  return 0;
}
CONTRACT_EXPORT int cuDeviceGetName(char* name, int length, int device) {
  ENTER();
  const bool mig = setting("mig", 0) != 0;
  std::string text = mig ? "Contract GPU MIG 1g.18gb" : "Contract GPU";
  if (device == k_first_device + 1 && setting("unequal", 0) != 0) text += " Lite";
  std::strncpy(name, text.c_str(), static_cast<std::size_t>(length));
  return 0;
}
CONTRACT_EXPORT int cuDeviceGetPCIBusId(char* text, int length, int device) {
  ENTER();
  const std::string id = "0000:" + std::to_string(device) + ":00.0";
  if (static_cast<std::size_t>(length) <= id.size()) return contract::invalid_value;
  std::strcpy(text, id.c_str());
  return 0;
}
CONTRACT_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER();
  if (device < k_first_device || device >= k_first_device + devices()) {
    model().misuse("a device that does not exist");
    return contract::invalid_device;
  }
  switch (attribute) {
    case 13:
      *value = 1980000;
      return 0;
    case 16:
      *value = 132;
      return 0;
    case 36:
      *value = 2619000;
      return 0;
    case 38:
      *value = static_cast<int>(setting("l2", 60 << 20));
      return 0;
    case 75:
      *value = 9;
      return 0;
    case 76:
      *value = 0;
      return 0;
    case 92:
      *value = static_cast<int>(setting("mem_ops_v1", 0));
      return 0;
    default:
      model().misuse("attribute " + std::to_string(attribute));
      return 1;
  }
}
CONTRACT_EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  ENTER();
  *bytes = static_cast<std::size_t>(setting("memory", 150040150016));
  return 0;
}
CONTRACT_EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER();
  *context = model().primary(device - k_first_device);
  ++model().contexts.at(*context).retained;
  return 0;
}
CONTRACT_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER();
  contract::Context& context = model().contexts.at(model().primary(device - k_first_device));
  if (context.retained == 0) {
    model().misuse("a primary context released more often than retained");
    return contract::invalid_context;
  }
  --context.retained;
  return 0;
}
CONTRACT_EXPORT int cuCtxGetCurrent(void** context) {
  ENTER();
  *context = Model::current.empty() ? nullptr : Model::current.back();
  return 0;
}
CONTRACT_EXPORT int cuCtxPushCurrent_v2(void* context) {
  ENTER();
  if (!model().contexts.contains(context)) {
    model().misuse("an unknown context was pushed");
    return contract::invalid_context;
  }
  Model::current.push_back(context);
  return 0;
}
CONTRACT_EXPORT int cuCtxPopCurrent_v2(void** context) {
  ENTER();
  if (Model::current.empty()) {
    model().misuse("a context popped from an empty stack");
    return contract::invalid_context;
  }
  *context = Model::current.back();
  Model::current.pop_back();
  return 0;
}
CONTRACT_EXPORT int cuCtxGetDevice(int* device) {
  ENTER_WITH_CONTEXT(context);
  *device = k_first_device + model().contexts.at(context).device;
  return 0;
}
#if !defined(CONTRACT_ANCIENT)
CONTRACT_EXPORT int cuStreamGetCtx(void* stream, void** context) {
  ENTER();
  contract::Stream* found = nullptr;
  const int code = model().find_stream(stream, nullptr, &found);
  if (found != nullptr) *context = found->context;
  return code;
}
#endif
CONTRACT_EXPORT int cuStreamQuery(void* stream) {
  ENTER();
  return model().query(stream);
}
CONTRACT_EXPORT int cuEventCreate(void** event, unsigned flags) {
  ENTER_WITH_CONTEXT(context);
  return model().create_event((flags & 2) == 0, context, event);
}
CONTRACT_EXPORT int cuEventDestroy_v2(void* event) {
  ENTER();
  return model().destroy_event(event);
}
CONTRACT_EXPORT int cuEventRecord(void* event, void* stream) {
  ENTER();
  return model().record(event, stream);
}
CONTRACT_EXPORT int cuEventElapsedTime(float* milliseconds, void* start, void* stop) {
  ENTER();
  return model().elapsed(milliseconds, start, stop);
}
CONTRACT_EXPORT int cuMemAlloc_v2(CuPointer* address, std::size_t bytes) {
  ENTER_WITH_CONTEXT(context);
  std::uint64_t made = 0;
  const int code = model().allocate(bytes, context, &made);
  *address = made;
  return code;
}
CONTRACT_EXPORT int cuMemFree_v2(CuPointer address) {
  ENTER_WITH_CONTEXT(context);
  return model().free(address);
}
CONTRACT_EXPORT int cuMemsetD8Async(CuPointer address, unsigned char, std::size_t bytes,
                                    void* stream) {
  ENTER_WITH_CONTEXT(context);
  return model().fill(address, bytes, stream);
}
CONTRACT_EXPORT int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  ENTER_WITH_CONTEXT(context);
  if ((flags & 2) == 0) model().misuse("host memory that is not mapped");
  return model().allocate_host(bytes, pointer);
}
CONTRACT_EXPORT int cuMemFreeHost(void* pointer) {
  ENTER_WITH_CONTEXT(context);
  return model().free_host(pointer);
}
CONTRACT_EXPORT int cuMemHostGetDevicePointer_v2(CuPointer* address, void* pointer, unsigned) {
  ENTER_WITH_CONTEXT(context);
  std::uint64_t seen = 0;
  const int code = model().host_address(pointer, &seen);
  *address = seen;
  return code;
}
CONTRACT_EXPORT int cuPointerGetAttribute(void* value, int attribute, CuPointer address) {
  ENTER_WITH_CONTEXT(context);
  if (attribute != 7) model().misuse("an unknown attribute of a pointer");
  return model().buffer_id(address, static_cast<unsigned long long*>(value));
}
#if defined(CONTRACT_OLD)
CONTRACT_EXPORT int cuStreamWaitValue32(void* stream, CuPointer address, std::uint32_t value,
                                        unsigned flags) {
  ENTER();
  if (setting("mem_ops_v1", 0) == 0) {
    model().misuse("stream memory operations are switched off");
    return contract::not_supported;
  }
  return model().wait_for_word(stream, address, value, flags);
}
#elif !defined(CONTRACT_ANCIENT)
CONTRACT_EXPORT int cuStreamWaitValue32_v2(void* stream, CuPointer address, std::uint32_t value,
                                           unsigned flags) {
  ENTER();
  return model().wait_for_word(stream, address, value, flags);
}
#endif
CONTRACT_EXPORT int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  ENTER();
  return model().host_function(stream, function, argument);
}
CONTRACT_EXPORT int cuStreamIsCapturing(void* stream, int* status) {
  ENTER();
  return model().capture_status(stream, status);
}
CONTRACT_EXPORT int cuStreamBeginCapture_v2(void* stream, int mode) {
  ENTER();
  if (mode < 0 || mode > 2) return contract::invalid_value;
  return model().begin_capture(stream);
}
CONTRACT_EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  ENTER();
  return model().end_capture(stream, graph);
}
#if !defined(CONTRACT_OLD) && !defined(CONTRACT_ANCIENT)
CONTRACT_EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph,
                                                unsigned long long flags) {
  ENTER();
  if (flags != 0) return contract::invalid_value;
  return model().instantiate(executable, graph);
}
#endif
CONTRACT_EXPORT int cuGraphLaunch(void* executable, void* stream) {
  ENTER();
  return model().launch(executable, stream);
}
CONTRACT_EXPORT int cuGraphExecDestroy(void* executable) {
  ENTER();
  return model().destroy_graph(model().executables, executable, "an executable graph");
}
CONTRACT_EXPORT int cuGraphDestroy(void* graph) {
  ENTER();
  return model().destroy_graph(model().graphs, graph, "a graph");
}

// Exported names whose ABI is an older one than ours. Whoever calls them has resolved them wrongly.
#define OLD_ABI(name)                          \
  CONTRACT_EXPORT int name(void) {             \
    const std::lock_guard lock(model().mutex); \
    model().misuse(#name " is an older ABI");  \
    return contract::invalid_value;            \
  }
OLD_ABI(cuMemAlloc)
OLD_ABI(cuMemFree)
OLD_ABI(cuMemHostGetDevicePointer)
OLD_ABI(cuDeviceTotalMem)
OLD_ABI(cuEventDestroy)
OLD_ABI(cuCtxPushCurrent)
OLD_ABI(cuCtxPopCurrent)
OLD_ABI(cuStreamBeginCapture)
OLD_ABI(cuGraphInstantiate)
OLD_ABI(cuDevicePrimaryCtxRelease)
#if !defined(CONTRACT_OLD)
OLD_ABI(cuStreamWaitValue32)
#endif

#if !defined(CONTRACT_OLD) && !defined(CONTRACT_ANCIENT)
namespace {

struct Entry {
  const char* name;
  int abi;
  void* function;
};

#  define ENTRY(name, abi, function) \
    { #name, abi, reinterpret_cast < void*>(function) }

const Entry k_entries[] = {
    ENTRY(cuInit, 2000, cuInit),
    ENTRY(cuDriverGetVersion, 2020, cuDriverGetVersion),
    ENTRY(cuGetErrorName, 6000, cuGetErrorName),
    ENTRY(cuGetErrorString, 6000, cuGetErrorString),
    ENTRY(cuDeviceGetCount, 2000, cuDeviceGetCount),
    ENTRY(cuDeviceGet, 2000, cuDeviceGet),
    ENTRY(cuDeviceGetName, 2000, cuDeviceGetName),
    ENTRY(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute),
    ENTRY(cuDeviceTotalMem, 2000, cuDeviceTotalMem),
    ENTRY(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2),
    ENTRY(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain),
    ENTRY(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease),
    ENTRY(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2),
    ENTRY(cuCtxGetCurrent, 4000, cuCtxGetCurrent),
    ENTRY(cuCtxPushCurrent, 2000, cuCtxPushCurrent),
    ENTRY(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
    ENTRY(cuCtxPopCurrent, 2000, cuCtxPopCurrent),
    ENTRY(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
    ENTRY(cuCtxGetDevice, 2000, cuCtxGetDevice),
    ENTRY(cuStreamGetCtx, 9020, cuStreamGetCtx),
    ENTRY(cuStreamQuery, 2000, cuStreamQuery),
    ENTRY(cuEventCreate, 2000, cuEventCreate),
    ENTRY(cuEventDestroy, 2000, cuEventDestroy),
    ENTRY(cuEventDestroy, 4000, cuEventDestroy_v2),
    ENTRY(cuEventRecord, 2000, cuEventRecord),
    ENTRY(cuEventElapsedTime, 2000, cuEventElapsedTime),
    ENTRY(cuMemAlloc, 2000, cuMemAlloc),
    ENTRY(cuMemAlloc, 3020, cuMemAlloc_v2),
    ENTRY(cuMemFree, 2000, cuMemFree),
    ENTRY(cuMemFree, 3020, cuMemFree_v2),
    ENTRY(cuMemsetD8Async, 3020, cuMemsetD8Async),
    ENTRY(cuMemHostAlloc, 2020, cuMemHostAlloc),
    ENTRY(cuMemFreeHost, 2000, cuMemFreeHost),
    ENTRY(cuMemHostGetDevicePointer, 2020, cuMemHostGetDevicePointer),
    ENTRY(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2),
    ENTRY(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId),
    ENTRY(cuPointerGetAttribute, 4000, cuPointerGetAttribute),
    ENTRY(cuStreamWaitValue32, 8000, cuStreamWaitValue32),
    ENTRY(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2),
    ENTRY(cuLaunchHostFunc, 10000, cuLaunchHostFunc),
    ENTRY(cuStreamIsCapturing, 10000, cuStreamIsCapturing),
    ENTRY(cuStreamBeginCapture, 10000, cuStreamBeginCapture),
    ENTRY(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2),
    ENTRY(cuStreamEndCapture, 10000, cuStreamEndCapture),
    ENTRY(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags),
    ENTRY(cuGraphLaunch, 10000, cuGraphLaunch),
    ENTRY(cuGraphExecDestroy, 10000, cuGraphExecDestroy),
    ENTRY(cuGraphDestroy, 10000, cuGraphDestroy),
};

}  // namespace

CONTRACT_EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version,
                                        std::uint64_t flags, void*) {
  ENTER();
  *function = nullptr;
  if (version > k_version) return contract::invalid_value;
  if (flags != 1) model().misuse("entry points asked for without saying which default stream");
  int best = -1;
  for (const Entry& entry : k_entries) {
    if (std::strcmp(entry.name, name) == 0 && entry.abi <= version && entry.abi > best) {
      best = entry.abi;
      *function = entry.function;
    }
  }
  if (best >= 0 && best != version) {
    model().misuse(std::string(name) + " asked for by an ABI that it does not have");
  }
  return best < 0 ? contract::not_found : contract::success;
}
#endif
