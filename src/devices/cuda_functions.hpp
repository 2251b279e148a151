// The functions of the CUDA driver that timing needs, each with the ABI it is asked for by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "devices/driver_library.hpp"

namespace disttune::devices {

using CuPointer = unsigned long long;  // CUdeviceptr

/// Handles are opaque pointers; CUresult, CUdevice and all enumerations are ints.
struct CudaFunctions {
  int (*init)(unsigned flags);
  int (*driver_version)(int* version);
  int (*error_name)(int code, const char** text);
  int (*error_text)(int code, const char** text);
  int (*device_count)(int* count);
  int (*device_get)(int* device, int ordinal);
  int (*device_name)(char* name, int length, int device);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*device_memory)(std::size_t* bytes, int device);
  int (*primary_retain)(void** context, int device);
  int (*primary_release)(int device);
  int (*context_current)(void** context);
  int (*context_push)(void* context);
  int (*context_pop)(void** context);
  int (*context_device)(int* device);
  int (*stream_context)(void* stream, void** context);
  int (*stream_query)(void* stream);
  int (*event_create)(void** event, unsigned flags);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_elapsed)(float* milliseconds, void* start, void* stop);
  int (*memory_allocate)(CuPointer* address, std::size_t bytes);
  int (*memory_free)(CuPointer address);
  int (*memory_fill)(CuPointer address, unsigned char value, std::size_t bytes, void* stream);
  int (*host_allocate)(void** pointer, std::size_t bytes, unsigned flags);
  int (*host_free)(void* pointer);
  int (*host_address)(CuPointer* address, void* pointer, unsigned flags);

  // Null in older drivers.
  int (*stream_wait)(void* stream, CuPointer address, std::uint32_t value, unsigned flags);
  bool stream_wait_is_v1;  ///< the first ABI, off by default in the kernel driver
  int (*device_bus_id)(char* text, int length, int device);
  int (*pointer_attribute)(void* value, int attribute, CuPointer address);
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
[[nodiscard]] CudaFunctions resolve_cuda(const DriverLibrary& library);

}  // namespace disttune::devices
