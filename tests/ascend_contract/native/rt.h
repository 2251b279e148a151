// Our own minimal declarations of the low-level entries that triton-ascend 3.2.0's driver and
// generated launchers call (src/low_level.cpp defines them). The profiling record types come from
// the headers that the torch_npu wheel ships.
#pragma once

#include <profiling/aprof_pub.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdexcept>

// Task kinds that are newer than the wheel's header; only passed back to the contract library.
#define MSPROF_GE_TASK_TYPE_AIV 10
#define MSPROF_GE_TASK_TYPE_MIX_AIC 11
#define MSPROF_GE_TASK_TYPE_MIX_AIV 12

#define RT_ERROR_NONE 0
#define RT_DEV_BINARY_MAGIC_ELF 1u
#define RT_DEV_BINARY_MAGIC_ELF_AIVEC 2u
#define RT_MEMORY_HBM 2u
#define RT_MEMORY_HOST 129u

extern "C" {
typedef int32_t rtError_t;
typedef void* rtStream_t;
typedef struct {
  uint32_t magic, version;
  const void* data;
  uint64_t length;
} rtDevBinary_t;
typedef enum {
  RT_MEMCPY_HOST_TO_HOST,
  RT_MEMCPY_HOST_TO_DEVICE,
  RT_MEMCPY_DEVICE_TO_HOST,
  RT_MEMCPY_DEVICE_TO_DEVICE
} rtMemcpyKind_t;
typedef enum {
  RT_LIMIT_TYPE_LOW_POWER_TIMEOUT,
  RT_LIMIT_TYPE_SIMT_WARP_STACK_SIZE,
  RT_LIMIT_TYPE_SIMT_DVG_WARP_STACK_SIZE,
  RT_LIMIT_TYPE_STACK_SIZE
} rtLimitType_t;

rtError_t rtSetDevice(int32_t);
rtError_t rtGetSocVersion(char*, uint32_t);
rtError_t rtGetAiCoreCount(uint32_t*);
rtError_t rtStreamCreate(rtStream_t*, int32_t);
rtError_t rtStreamDestroy(rtStream_t);
rtError_t rtStreamSynchronize(rtStream_t);
rtError_t rtMalloc(void**, uint64_t, uint32_t, uint16_t);
rtError_t rtFree(void*);
rtError_t rtMallocHost(void**, uint64_t, uint16_t);
rtError_t rtFreeHost(void*);
rtError_t rtMemcpy(void*, uint64_t, const void*, uint64_t, rtMemcpyKind_t);
rtError_t rtDeviceSetLimit(int32_t, rtLimitType_t, uint32_t);
rtError_t rtDevBinaryRegister(const rtDevBinary_t*, void**);
rtError_t rtFunctionRegister(void*, const void*, const char*, const void*, uint32_t);
rtError_t rtKernelLaunch(const void*, uint32_t, void*, uint32_t, void*, rtStream_t);
rtError_t rtGetC2cCtrlAddr(uint64_t*, uint32_t*);
}
