// Memory. Device memory is host memory that counts against its device's budget.
#include "runtime.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace contract {
namespace {

constexpr int k_host = -1;
constexpr size_t k_alignment = 4096;

struct Block {
  size_t bytes;
  int device;  // k_host: pinned host memory
};

struct Memory {
  std::mutex mutex;
  std::map<uintptr_t, Block> blocks;  // by first address
  std::map<int, size_t> used;         // bytes by device
};

Memory& memory() {
  static Memory* instance = new Memory;
  return *instance;
}

// The block that holds the byte at `address`; the caller holds the mutex.
const Block* find_block(uintptr_t address, uintptr_t& first) {
  auto next = memory().blocks.upper_bound(address);
  if (next == memory().blocks.begin()) return nullptr;
  --next;
  first = next->first;
  return address - first < next->second.bytes ? &next->second : nullptr;
}

Status allocate(void** pointer, size_t bytes, int device) {
  *pointer = nullptr;
  if (bytes == 0) return fail(ACL_ERROR_RT_PARAM_INVALID, "allocation of 0 bytes");
  const std::lock_guard lock(memory().mutex);
  size_t& used = memory().used[device];
  if (device != k_host && bytes > memory_capacity() - used)
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "device %d cannot hold %zu more bytes", device,
                bytes);
  if (posix_memalign(pointer, k_alignment, bytes) != 0)
    return fail(ACL_ERROR_BAD_ALLOC, "no host memory for %zu bytes", bytes);
  memory().blocks[reinterpret_cast<uintptr_t>(*pointer)] = {bytes, device};
  used += bytes;
  return {};
}

Status allocate_on_current(void** pointer, size_t bytes) {
  int device = -1;
  CONTRACT_TRY(require_device(device));
  return allocate(pointer, bytes, device);
}

Status release(void* pointer) {
  int device = k_host;
  {
    const std::lock_guard lock(memory().mutex);
    const auto found = memory().blocks.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == memory().blocks.end()) {
      note_misuse(Misuse::unknown_pointer);
      return fail(ACL_ERROR_RT_PARAM_INVALID, "%p was not allocated here or is free", pointer);
    }
    device = found->second.device;
    memory().used[device] -= found->second.bytes;
    memory().blocks.erase(found);
  }
  // Queued tasks may use the block. The wait is our choice: the real runtime's is not documented.
  if (device != k_host) CONTRACT_TRY(synchronize_device(device, -1));
  free(pointer);
  return {};
}

Status check_fits(const char* what, size_t bytes, size_t room) {
  if (bytes <= room) return {};
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %zu bytes into %zu", what, bytes, room);
}

}  // namespace

size_t memory_capacity() {
  static const auto bytes = static_cast<size_t>(knob("MEM", int64_t{4} << 30));
  return bytes;
}

Status check_value_word(const void* address) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (number % sizeof(uint64_t) != 0) {
    note_misuse(Misuse::bad_value_address);
    return fail(ACL_ERROR_RT_ADDR_UNALIGNED, "value word %p is not 8-byte aligned", address);
  }
  const std::lock_guard lock(memory().mutex);
  uintptr_t first = 0;
  const Block* block = find_block(number, first);
  const bool on_device = block != nullptr && block->device != k_host;
  if (on_device && number - first + sizeof(uint64_t) <= block->bytes) return {};
  note_misuse(Misuse::bad_value_address);
  return fail(ACL_ERROR_RT_PARAM_INVALID, "value word %p is not in device memory", address);
}

void add_memory_usage(Usage& usage) {
  const std::lock_guard lock(memory().mutex);
  for (const auto& [first, block] : memory().blocks) {
    if (block.device == k_host) {
      ++usage.host_allocations;
    } else {
      ++usage.device_allocations;
      usage.device_bytes += block.bytes;
    }
  }
}

}  // namespace contract

using namespace contract;

CONTRACT_API aclError aclrtMalloc(void** pointer, size_t bytes, aclrtMemMallocPolicy) {
  CONTRACT_ENTER();
  return allocate_on_current(pointer, bytes);
}

CONTRACT_API aclError aclrtMallocAlign32(void** pointer, size_t bytes, aclrtMemMallocPolicy) {
  CONTRACT_ENTER();
  return allocate_on_current(pointer, bytes);
}

CONTRACT_API aclError aclrtFree(void* pointer) {
  CONTRACT_ENTER();
  return release(pointer);
}

CONTRACT_API aclError aclrtMallocHost(void** pointer, size_t bytes) {
  CONTRACT_ENTER();
  return allocate(pointer, bytes, k_host);
}

CONTRACT_API aclError aclrtFreeHost(void* pointer) {
  CONTRACT_ENTER();
  return release(pointer);
}

CONTRACT_API aclError aclrtGetMemInfo(aclrtMemAttr, size_t* available, size_t* total) {
  CONTRACT_ENTER();
  // torch_npu asks this for device properties before any device is set.
  const int device = std::max(current_device(), 0);
  const std::lock_guard lock(memory().mutex);
  *total = memory_capacity();
  *available = *total - memory().used[device];
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes,
                                  aclrtMemcpyKind) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_fits("aclrtMemcpy", bytes, room));
  memmove(to, from, bytes);
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes,
                                       aclrtMemcpyKind, aclrtStream stream) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_fits("aclrtMemcpyAsync", bytes, room));
  return enqueue(stream, [to, from, bytes] { memmove(to, from, bytes); });
}

CONTRACT_API aclError aclrtMemset(void* to, size_t room, int32_t value, size_t bytes) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_fits("aclrtMemset", bytes, room));
  memset(to, value, bytes);
  return ACL_SUCCESS;
}

CONTRACT_API aclError aclrtMemsetAsync(void* to, size_t room, int32_t value, size_t bytes,
                                       aclrtStream stream) {
  CONTRACT_ENTER();
  CONTRACT_TRY(check_fits("aclrtMemsetAsync", bytes, room));
  return enqueue(stream, [to, value, bytes] { memset(to, value, bytes); });
}

CONTRACT_API aclError aclrtPointerGetAttributes(const void* pointer, aclrtPtrAttributes* result) {
  CONTRACT_ENTER();
  *result = {};
  result->location.type = ACL_MEM_LOCATION_TYPE_UNREGISTERED;
  const std::lock_guard lock(memory().mutex);
  uintptr_t first = 0;
  const Block* block = find_block(reinterpret_cast<uintptr_t>(pointer), first);
  if (block == nullptr) return ACL_SUCCESS;
  const bool host = block->device == k_host;
  result->location.type = host ? ACL_MEM_LOCATION_TYPE_HOST : ACL_MEM_LOCATION_TYPE_DEVICE;
  result->location.id = host ? 0 : static_cast<uint32_t>(block->device);
  return ACL_SUCCESS;
}
