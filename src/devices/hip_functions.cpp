#include "devices/hip_functions.hpp"

#include <fmt/format.h>

#include "disttune/error.hpp"

namespace disttune::devices {

HipFunctions resolve_hip(const DriverLibrary& library) {
  HipFunctions f{};
  const auto required = [&](auto*& function, const char* name) {
    if (library.find(function, name)) return;
    int version = 0;
    const bool known =
        library.find(f.runtime_version, "hipRuntimeGetVersion") && f.runtime_version(&version) == 0;
    throw Error(missing_function(fmt::format("HIP runtime ({})", library.name()), name,
                                 known ? fmt::format("{}", version) : "unknown"));
  };
  required(f.init, "hipInit");
  required(f.runtime_version, "hipRuntimeGetVersion");
  required(f.driver_version, "hipDriverGetVersion");
  required(f.error_name, "hipGetErrorName");
  required(f.error_text, "hipGetErrorString");
  required(f.device_count, "hipGetDeviceCount");
  required(f.device_name, "hipDeviceGetName");
  required(f.device_attribute, "hipDeviceGetAttribute");
  required(f.device_memory, "hipDeviceTotalMem");
  required(f.get_device, "hipGetDevice");
  required(f.set_device, "hipSetDevice");
  required(f.stream_query, "hipStreamQuery");
  required(f.event_create, "hipEventCreateWithFlags");
  required(f.event_destroy, "hipEventDestroy");
  required(f.event_record, "hipEventRecord");
  required(f.event_elapsed, "hipEventElapsedTime");
  required(f.memory_allocate, "hipMalloc");
  required(f.memory_free, "hipFree");
  required(f.memory_fill, "hipMemsetAsync");
  required(f.host_allocate, "hipHostMalloc");
  required(f.host_free, "hipHostFree");
  required(f.host_address, "hipHostGetDevicePointer");

  library.find(f.stream_device, "hipStreamGetDevice");
  library.find(f.stream_wait, "hipStreamWaitValue32");
  library.find(f.host_function, "hipLaunchHostFunc");
  library.find(f.capture_status, "hipStreamIsCapturing");
  library.find(f.capture_begin, "hipStreamBeginCapture");
  library.find(f.capture_end, "hipStreamEndCapture");
  library.find(f.graph_instantiate, "hipGraphInstantiateWithFlags");
  library.find(f.graph_launch, "hipGraphLaunch");
  library.find(f.executable_destroy, "hipGraphExecDestroy");
  library.find(f.graph_destroy, "hipGraphDestroy");
  return f;
}

}  // namespace disttune::devices
