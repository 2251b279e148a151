// The low-level entries that torch_npu links and that triton-ascend's driver and launchers call. A
// "device binary" is a host shared object; a kernel is
// `void name(uint32_t block, uint32_t blocks, const void *args)` and runs block after block in the
// stream's worker. No header in the wheel declares these; native/rt.h does.
#include "runtime.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

namespace contract {
namespace {

struct DeviceBinary {
  uint32_t magic;
  uint32_t version;
  const void* data;
  uint64_t length;
};

using Kernel = void (*)(uint32_t block, uint32_t blocks, const void* args);

struct Kernels {
  std::mutex mutex;
  std::map<const void*, Kernel> by_stub;
};
Kernels& kernels() {
  static Kernels* instance = new Kernels;
  return *instance;
}

}  // namespace
}  // namespace contract

using namespace contract;

CONTRACT_API int rtDevBinaryRegister(const DeviceBinary* binary, void** handle) {
  CONTRACT_ENTER();
  // The loader wants a file name; this one lives as long as the mapping. The descriptor stays
  // open: the loader tells objects apart by path, and a reused number would name the first one.
  const int file = memfd_create("npu-kernel", MFD_CLOEXEC);
  if (file < 0 || write(file, binary->data, binary->length) != static_cast<ssize_t>(binary->length))
    return fail(ACL_ERROR_RT_INTERNAL_ERROR, "cannot stage the kernel: %s", strerror(errno));
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (*handle == nullptr) return fail(ACL_ERROR_RT_PARAM_INVALID, "not a kernel: %s", dlerror());
  return ACL_SUCCESS;
}

CONTRACT_API int rtFunctionRegister(void* binary, const void* stub, const char*, const void* name,
                                    uint32_t) {
  CONTRACT_ENTER();
  const char* symbol = static_cast<const char*>(name);
  const auto kernel = reinterpret_cast<Kernel>(dlsym(binary, symbol));
  if (kernel == nullptr)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "no kernel %s in the binary", symbol);
  const std::lock_guard lock(kernels().mutex);
  kernels().by_stub[stub] = kernel;
  return ACL_SUCCESS;
}

CONTRACT_API int rtKernelLaunch(const void* stub, uint32_t blocks, void* args, uint32_t bytes,
                                void*, aclrtStream stream) {
  CONTRACT_ENTER();
  Kernel kernel = nullptr;
  {
    const std::lock_guard lock(kernels().mutex);
    const auto found = kernels().by_stub.find(stub);
    if (found == kernels().by_stub.end())
      return fail(ACL_ERROR_RT_PARAM_INVALID, "kernel not registered");
    kernel = found->second;
  }
  // The caller's block is on its stack and gone before the task runs.
  const std::string packed(static_cast<const char*>(args), bytes);
  return enqueue(stream, [kernel, blocks, packed] {
    for (uint32_t block = 0; block < blocks; ++block) kernel(block, blocks, packed.data());
  });
}

CONTRACT_API int rtGetC2cCtrlAddr(uint64_t* address, uint32_t* bytes) {
  CONTRACT_ENTER();
  static uint64_t control[8];
  *address = reinterpret_cast<uintptr_t>(control);
  *bytes = sizeof control;
  return ACL_SUCCESS;
}

CONTRACT_API int rtSetDevice(int32_t device) { return aclrtSetDevice(device); }

CONTRACT_API int rtGetSocVersion(char* name, uint32_t room) {
  CONTRACT_ENTER();
  snprintf(name, room, "%s", aclrtGetSocName());
  return ACL_SUCCESS;
}

CONTRACT_API int rtGetAiCoreCount(uint32_t* count) {
  CONTRACT_ENTER();
  int64_t cores = 0;
  const aclError error = aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, &cores);
  *count = static_cast<uint32_t>(cores);
  return error;
}

CONTRACT_API int rtStreamCreate(aclrtStream* stream, int32_t) { return aclrtCreateStream(stream); }

CONTRACT_API int rtStreamDestroy(aclrtStream stream) { return aclrtDestroyStream(stream); }

CONTRACT_API int rtStreamSynchronize(aclrtStream stream) { return aclrtSynchronizeStream(stream); }

CONTRACT_API int rtMalloc(void** pointer, uint64_t bytes, uint32_t, uint16_t) {
  return aclrtMalloc(pointer, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
}

CONTRACT_API int rtFree(void* pointer) { return aclrtFree(pointer); }

CONTRACT_API int rtMallocHost(void** pointer, uint64_t bytes, uint16_t) {
  return aclrtMallocHost(pointer, bytes);
}

CONTRACT_API int rtFreeHost(void* pointer) { return aclrtFreeHost(pointer); }

CONTRACT_API int rtMemcpy(void* to, uint64_t room, const void* from, uint64_t bytes, int kind) {
  return aclrtMemcpy(to, room, from, bytes, static_cast<aclrtMemcpyKind>(kind));
}

CONTRACT_API int rtDeviceSetLimit(int32_t, int, uint32_t) {
  CONTRACT_ENTER();
  return ACL_SUCCESS;
}
