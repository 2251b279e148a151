// Initialisation, devices, contexts, and the settings that torch_npu reads or writes.
#include "runtime.h"

#include <acl/acl_op_compiler.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace contract {
namespace {

// Any SoC name that torch_npu knows will do; these are the counts it expects of an Ascend910B2.
constexpr int64_t k_cube_cores = 24;
constexpr int64_t k_vector_cores = 48;
constexpr int64_t k_l2_bytes = int64_t{192} << 20;
constexpr const char* k_cann_version = "8.5.0";

constexpr int k_max_devices = 64;
std::array<char, k_max_devices> g_contexts;  // a context is the address of its device's element
std::atomic<bool> g_initialized{false};
thread_local int t_device = -1;

int device_count() {
  static const int count = static_cast<int>(std::min<int64_t>(knob("DEVICES", 2), k_max_devices));
  return count;
}

Status check_device(int device) {
  if (device >= 0 && device < device_count()) return {};
  return fail(ACL_ERROR_RT_INVALID_DEVICEID, "no device %d", device);
}

struct Settings {
  std::mutex mutex;
  std::map<int, int64_t> values;
};
Settings& settings() {
  static Settings* instance = new Settings;
  return *instance;
}

}  // namespace

int current_device() { return t_device; }

Status require_device(int& device) {
  device = t_device;
  if (device >= 0) return {};
  note_misuse(Misuse::no_current_device);
  return fail(ACL_ERROR_RT_CONTEXT_NULL, "the calling thread has no current device");
}

}  // namespace contract

using namespace contract;

CONTRACT_API aclError aclInit(const char*) {
  CONTRACT_ENTER();
  return g_initialized.exchange(true) ? ACL_ERROR_REPEAT_INITIALIZE : ACL_SUCCESS;
}

CONTRACT_API aclError aclFinalize() {
  CONTRACT_ENTER();
  g_initialized = false;
  snapshot_usage();
  return ACL_SUCCESS;
}

CONTRACT_API void aclAppLog(aclLogLevel level, const char* function, const char*, uint32_t,
                            const char* format, ...) {
  static const int64_t lowest = knob("LOG", 99);
  if (level < lowest) return;
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "[acl-log %d] %s: ", static_cast<int>(level), function);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

CONTRACT_API const char* aclrtGetSocName() {
  CONTRACT_COUNT();
  static const std::string name = knob("SOC", "Ascend910B2");
  return name.c_str();
}

CONTRACT_API aclError aclsysGetCANNVersion(aclCANNPackageName, aclCANNPackageVersion* version) {
  CONTRACT_ENTER();
  *version = {};
  strcpy(version->version, k_cann_version);
  strcpy(version->majorVersion, "8");
  strcpy(version->minorVersion, "5");
  strcpy(version->releaseVersion, "0");
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclsysGetVersionStr(char*, char* version) {
  CONTRACT_ENTER();
  strcpy(version, k_cann_version);
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtGetDeviceCount(uint32_t* count) {
  CONTRACT_ENTER();
  *count = static_cast<uint32_t>(device_count());
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtSetDevice(int32_t device) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_device(device));
  t_device = device;
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtResetDevice(int32_t device) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_device(device));
  if (t_device == device) t_device = -1;
  return ACL_SUCCESS;
}

// torch_npu asks this to learn whether a device was set: a failure here is an answer, not misuse.
CONTRACT_API aclError aclrtGetDevice(int32_t* device) {
  CONTRACT_ENTER();
  if (t_device < 0)
    return fail(ACL_ERROR_RT_CONTEXT_NULL, "the calling thread has no current device");
  *device = t_device;
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtGetCurrentContext(aclrtContext* context) {
  CONTRACT_ENTER();
  if (t_device < 0)
    return fail(ACL_ERROR_RT_CONTEXT_NULL, "the calling thread has no current device");
  *context = &g_contexts[static_cast<size_t>(t_device)];
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtSetCurrentContext(aclrtContext context) {
  CONTRACT_ENTER();
  for (int device = 0; device < device_count(); ++device) {
    if (context == &g_contexts[static_cast<size_t>(device)]) {
      t_device = device;
      return ACL_SUCCESS;
    }
  }
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%p is not a context", context);
}

CONTRACT_API aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_device(device));
  if (flags != nullptr) *flags = 0;
  *active = 1;
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t device, int32_t peer) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_device(device));
  CONTRACT_TRY(check_device(peer));
  *can = 1;
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo info, int64_t* value) {
  CONTRACT_ENTER();
  switch (info) {
    case ACL_DEVICE_INFO_AI_CORE_NUM:
      *value = k_cube_cores;
      return ACL_SUCCESS;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
      *value = k_vector_cores;
      return ACL_SUCCESS;
    case ACL_DEVICE_INFO_L2_SIZE:
      *value = k_l2_bytes;
      return ACL_SUCCESS;
    default:
      return fail(ACL_ERROR_INVALID_PARAM, "unknown capability %d", static_cast<int>(info));
  }
}

CONTRACT_API aclError aclrtSetOpExecuteTimeOutV2(uint64_t requested, uint64_t* actual) {
  CONTRACT_ENTER();
  if (actual != nullptr) *actual = requested;
  return ACL_SUCCESS;
}

// Failing or missing, this one ends torch_npu's device initialisation with error 500000.
CONTRACT_API aclError aclrtGetSysParamOpt(aclSysParamOpt option, int64_t* value) {
  CONTRACT_ENTER();
  const std::lock_guard lock(settings().mutex);
  *value = settings().values[option];
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtSetSysParamOpt(aclSysParamOpt option, int64_t value) {
  CONTRACT_ENTER();
  const std::lock_guard lock(settings().mutex);
  settings().values[option] = value;
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtCtxSetSysParamOpt(aclSysParamOpt option, int64_t value) {
  CONTRACT_ENTER();
  return aclrtSetSysParamOpt(option, value);
}

CONTRACT_API size_t aclGetCompileoptSize(aclCompileOpt) {
  CONTRACT_COUNT();
  return 16;
}

CONTRACT_API aclError aclGetCompileopt(aclCompileOpt, char* value, size_t length) {
  CONTRACT_ENTER();
  if (length > 0) *value = '\0';
  return ACL_SUCCESS;
}

// torch_npu takes this legacy road when any aclnn name that an operator asks for is missing. Saying
// which operator it was is what makes the gap diagnosable.
CONTRACT_API aclError aclopCompileAndExecute(const char* op, int, const aclTensorDesc* const[],
                                             const aclDataBuffer* const[], int,
                                             const aclTensorDesc* const[], aclDataBuffer* const[],
                                             const aclopAttr*, aclopEngineType, aclopCompileType,
                                             const char*, aclrtStream) {
  CONTRACT_ENTER();
  fprintf(stderr, "[npu-contract] operator %s is not part of the contract library\n", op);
  if (knob("ABORT", int64_t{0}) != 0) abort();
  return fail(ACL_ERROR_OP_NOT_FOUND, "operator %s is not part of the contract library", op);
}

// Settings without an effect that a program could observe.
CONTRACT_ACCEPT(aclrtDeviceEnablePeerAccess, int32_t, uint32_t)
CONTRACT_ACCEPT(aclrtSetDeviceSatMode, aclrtFloatOverflowMode)
CONTRACT_ACCEPT(aclrtSetOpExecuteTimeOut, uint32_t)
CONTRACT_ACCEPT(aclrtSetOpWaitTimeout, uint32_t)
CONTRACT_ACCEPT(aclrtPeekAtLastError, aclrtLastErrLevel)
CONTRACT_ACCEPT(aclrtGetLastError, aclrtLastErrLevel)
CONTRACT_ACCEPT(aclSetCompileopt, aclCompileOpt, const char*)
CONTRACT_ACCEPT(aclopSetCompileFlag, aclOpCompileFlag)
