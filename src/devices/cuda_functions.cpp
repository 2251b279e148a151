#include "devices/cuda_functions.hpp"

#include <fmt/format.h>

#include <type_traits>

#include "disttune/error.hpp"

namespace disttune::devices {

namespace {

/// Asks for each function by its base name and the version of the ABI that we declare; never by the
/// driver's newest, whose arguments may differ. Drivers before CUDA 11.3 have no such question:
/// there, and where it fails, the export table is asked for the suffixed name of the same ABI.
class Resolver {
 public:
  explicit Resolver(const DriverLibrary& library) : m_library(library) {
    if (!library.find(m_ask_v2, "cuGetProcAddress_v2")) library.find(m_ask, "cuGetProcAddress");
  }

  template <class Function>
  bool optional(Function*& function, const char* base, int abi, const char* exported) const {
    void* address = nullptr;
    // 1: the legacy default stream, as the unsuffixed names mean it.
    if (m_ask_v2 != nullptr) {
      if (m_ask_v2(base, &address, abi, 1, nullptr) != 0) address = nullptr;
    } else if (m_ask != nullptr) {
      if (m_ask(base, &address, abi, 1) != 0) address = nullptr;
    }
    if (address == nullptr && exported != nullptr) address = m_library.symbol(exported);
    function = reinterpret_cast<Function*>(address);
    return function != nullptr;
  }

  template <class Function>
  void required(Function*& function, const char* base, int abi, const char* exported) const {
    if (!optional(function, base, abi, exported)) {
      throw Error(missing_function("CUDA driver (libcuda.so.1)", base, version()));
    }
  }

 private:
  [[nodiscard]] std::string version() const {
    int (*ask)(int*) = nullptr;
    int version = 0;
    if (!m_library.find(ask, "cuDriverGetVersion") || ask(&version) != 0) return "unknown";
    return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  }

  const DriverLibrary& m_library;
  int (*m_ask)(const char*, void**, int, std::uint64_t) = nullptr;
  int (*m_ask_v2)(const char*, void**, int, std::uint64_t, void*) = nullptr;
};

void resolve_required(const Resolver& find, CudaFunctions& f) {
  find.required(f.init, "cuInit", 2000, "cuInit");
  find.required(f.driver_version, "cuDriverGetVersion", 2020, "cuDriverGetVersion");
  find.required(f.error_name, "cuGetErrorName", 6000, "cuGetErrorName");
  find.required(f.error_text, "cuGetErrorString", 6000, "cuGetErrorString");
  find.required(f.device_count, "cuDeviceGetCount", 2000, "cuDeviceGetCount");
  find.required(f.device_get, "cuDeviceGet", 2000, "cuDeviceGet");
  find.required(f.device_name, "cuDeviceGetName", 2000, "cuDeviceGetName");
  find.required(f.device_attribute, "cuDeviceGetAttribute", 2000, "cuDeviceGetAttribute");
  find.required(f.device_memory, "cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2");
  find.required(f.primary_retain, "cuDevicePrimaryCtxRetain", 7000, "cuDevicePrimaryCtxRetain");
  find.required(f.primary_release, "cuDevicePrimaryCtxRelease", 11000,
                "cuDevicePrimaryCtxRelease_v2");
  find.required(f.context_current, "cuCtxGetCurrent", 4000, "cuCtxGetCurrent");
  find.required(f.context_push, "cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2");
  find.required(f.context_pop, "cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2");
  find.required(f.context_device, "cuCtxGetDevice", 2000, "cuCtxGetDevice");
  find.required(f.stream_context, "cuStreamGetCtx", 9020, "cuStreamGetCtx");
  find.required(f.stream_query, "cuStreamQuery", 2000, "cuStreamQuery");
  find.required(f.event_create, "cuEventCreate", 2000, "cuEventCreate");
  find.required(f.event_destroy, "cuEventDestroy", 4000, "cuEventDestroy_v2");
  find.required(f.event_record, "cuEventRecord", 2000, "cuEventRecord");
  find.required(f.event_elapsed, "cuEventElapsedTime", 2000, "cuEventElapsedTime");
  find.required(f.memory_allocate, "cuMemAlloc", 3020, "cuMemAlloc_v2");
  find.required(f.memory_free, "cuMemFree", 3020, "cuMemFree_v2");
  find.required(f.memory_fill, "cuMemsetD8Async", 3020, "cuMemsetD8Async");
  find.required(f.host_allocate, "cuMemHostAlloc", 2020, "cuMemHostAlloc");
  find.required(f.host_free, "cuMemFreeHost", 2000, "cuMemFreeHost");
  find.required(f.host_address, "cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2");
}

void resolve_optional(const Resolver& find, CudaFunctions& f) {
  f.stream_wait_is_v1 = false;
  if (!find.optional(f.stream_wait, "cuStreamWaitValue32", 11070, "cuStreamWaitValue32_v2")) {
    f.stream_wait_is_v1 =
        find.optional(f.stream_wait, "cuStreamWaitValue32", 8000, "cuStreamWaitValue32");
  }
  find.optional(f.device_bus_id, "cuDeviceGetPCIBusId", 4010, "cuDeviceGetPCIBusId");
  find.optional(f.pointer_attribute, "cuPointerGetAttribute", 4000, "cuPointerGetAttribute");
  find.optional(f.host_function, "cuLaunchHostFunc", 10000, "cuLaunchHostFunc");
  find.optional(f.capture_status, "cuStreamIsCapturing", 10000, "cuStreamIsCapturing");
  find.optional(f.capture_begin, "cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2");
  find.optional(f.capture_end, "cuStreamEndCapture", 10000, "cuStreamEndCapture");
  // The exported cuGraphInstantiate is the five-argument ABI of 10.0.
  find.optional(f.graph_instantiate, "cuGraphInstantiateWithFlags", 11040,
                "cuGraphInstantiateWithFlags");
  find.optional(f.graph_launch, "cuGraphLaunch", 10000, "cuGraphLaunch");
  find.optional(f.executable_destroy, "cuGraphExecDestroy", 10000, "cuGraphExecDestroy");
  find.optional(f.graph_destroy, "cuGraphDestroy", 10000, "cuGraphDestroy");
}

}  // namespace

CudaFunctions resolve_cuda(const DriverLibrary& library) {
  const Resolver find(library);
  CudaFunctions functions{};
  resolve_required(find, functions);
  resolve_optional(find, functions);
  return functions;
}

}  // namespace disttune::devices
