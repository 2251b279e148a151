// The functions of the HIP runtime that timing needs. Unlike CUDA's their exported names have kept
// their ABI from HIP 5 to 7; the one that did not, hipGetDeviceProperties, is not among them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "devices/driver_library.hpp"

namespace disttune::devices {

/// Handles are opaque pointers; hipError_t and all enumerations are ints.
struct HipFunctions {
  int (*init)(unsigned flags);
  int (*runtime_version)(int* version);
  int (*driver_version)(int* version);
  const char* (*error_name)(int code);
  const char* (*error_text)(int code);
  int (*device_count)(int* count);
  int (*device_name)(char* name, int length, int device);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*device_memory)(std::size_t* bytes, int device);
  int (*get_device)(int* device);
  int (*set_device)(int device);
  int (*stream_query)(void* stream);
  int (*event_create)(void** event, unsigned flags);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_elapsed)(float* milliseconds, void* start, void* stop);
  int (*memory_allocate)(void** pointer, std::size_t bytes);
  int (*memory_free)(void* pointer);
  int (*memory_fill)(void* pointer, int value, std::size_t bytes, void* stream);
  int (*host_allocate)(void** pointer, std::size_t bytes, unsigned flags);
  int (*host_free)(void* pointer);
  int (*host_address)(void** address, void* pointer, unsigned flags);

  // Null in older runtimes.
  int (*stream_device)(void* stream, int* device);
  int (*stream_wait)(void* stream, void* address, std::uint32_t value, unsigned flags,
                     std::uint32_t mask);
  int (*host_function)(void* stream, void (*function)(void*), void* argument);
  int (*capture_status)(void* stream, int* status);
  int (*capture_begin)(void* stream, int mode);
  int (*capture_end)(void* stream, void** graph);
  int (*graph_instantiate)(void** executable, void* graph, unsigned long long flags);
  int (*graph_launch)(void* executable, void* stream);
  int (*executable_destroy)(void* executable);
  int (*graph_destroy)(void* graph);
};

/// Resolves all of them; throws Error naming the first that is missing and needed.
[[nodiscard]] HipFunctions resolve_hip(const DriverLibrary& library);

}  // namespace disttune::devices
