// Collectives. Ranks are processes (or threads) of one host that meet in a POSIX shared-memory
// segment named by the root info. Each ordered pair of ranks has one mailbox; every collective is a
// list of transfers through mailboxes, carried out in the caller's stream, and perhaps a reduction.
#include "contract.h"
#include "element.h"

#include <hccl/hccl.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace contract {
namespace {

constexpr uint32_t k_max_ranks = 16;
constexpr size_t k_mailbox_bytes = size_t{1} << 18;
constexpr std::chrono::microseconds k_poll{50};

// Full when written == read + 1, empty when they are equal.
struct Mailbox {
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> read;
  char data[k_mailbox_bytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "the counters are shared by processes");

// A fresh segment is all zeroes, which is the right first state.
struct Segment {
  std::atomic<uint32_t> attached;
  Mailbox mailbox[k_max_ranks][k_max_ranks];  // [sender][receiver]; untouched pages cost nothing
};

using Clock = std::chrono::steady_clock;

Clock::time_point deadline() {
  static const auto seconds = std::chrono::seconds(knob("HCCL_TIMEOUT", int64_t{60}));
  return Clock::now() + seconds;
}

struct Communicator {
  uint32_t ranks = 0;
  uint32_t rank = 0;
  std::string name;
  Segment* segment = nullptr;
  std::atomic<int> error{HCCL_SUCCESS};

  ~Communicator() {
    if (segment != nullptr) munmap(segment, sizeof(Segment));
  }
};
using Shared = std::shared_ptr<Communicator>;  // an HcclComm is the address of one on the heap

const Shared& shared(HcclComm handle) { return *static_cast<Shared*>(handle); }

struct Transfer {
  HcclSendRecvType direction;
  char* buffer;
  size_t bytes;
  uint32_t peer;
  size_t done = 0;
};

/// Moves one piece; false if the mailbox is not ready.
bool move_piece(Communicator& comm, Transfer& transfer) {
  const bool send = transfer.direction == HCCL_SEND;
  Mailbox& box = send ? comm.segment->mailbox[comm.rank][transfer.peer]
                      : comm.segment->mailbox[transfer.peer][comm.rank];
  if ((box.written == box.read) != send) return false;
  const size_t piece = std::min(transfer.bytes - transfer.done, k_mailbox_bytes);
  if (send) {
    memcpy(box.data, transfer.buffer + transfer.done, piece);
    ++box.written;
  } else {
    memcpy(transfer.buffer + transfer.done, box.data, piece);
    ++box.read;
  }
  transfer.done += piece;
  return true;
}

// Round robin, so that no order of sends and receives can deadlock. A pair's mailbox serves its
// transfers in list order.
void carry_out(Communicator& comm, std::vector<Transfer> transfers) {
  auto give_up = deadline();
  for (;;) {
    bool finished = true;
    bool progress = false;
    bool occupied[2][k_max_ranks] = {};
    for (Transfer& transfer : transfers) {
      bool& turn_taken = occupied[transfer.direction][transfer.peer];
      if (transfer.done == transfer.bytes || turn_taken) continue;
      turn_taken = true;
      finished = false;
      progress = move_piece(comm, transfer) || progress;
    }
    if (finished || comm.error != HCCL_SUCCESS) return;
    if (progress) {
      give_up = deadline();
    } else if (Clock::now() > give_up) {
      comm.error = HCCL_E_TIMEOUT;
      return;
    } else {
      std::this_thread::sleep_for(k_poll);
    }
  }
}

aclDataType acl_type(HcclDataType type) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8:
      return ACL_INT8;
    case HCCL_DATA_TYPE_INT16:
      return ACL_INT16;
    case HCCL_DATA_TYPE_INT32:
      return ACL_INT32;
    case HCCL_DATA_TYPE_INT64:
      return ACL_INT64;
    case HCCL_DATA_TYPE_UINT8:
      return ACL_UINT8;
    case HCCL_DATA_TYPE_UINT16:
      return ACL_UINT16;
    case HCCL_DATA_TYPE_UINT32:
      return ACL_UINT32;
    case HCCL_DATA_TYPE_UINT64:
      return ACL_UINT64;
    case HCCL_DATA_TYPE_FP16:
      return ACL_FLOAT16;
    case HCCL_DATA_TYPE_FP32:
      return ACL_FLOAT;
    case HCCL_DATA_TYPE_FP64:
      return ACL_DOUBLE;
    case HCCL_DATA_TYPE_BFP16:
      return ACL_BF16;
    default:
      return ACL_DT_UNDEFINED;
  }
}

size_t size_of(HcclDataType type) { return element_size(acl_type(type)); }

Number reduced(Number a, Number b, HcclReduceOp op) {
  switch (op) {
    case HCCL_REDUCE_SUM:
      return add(a, b);
    case HCCL_REDUCE_PROD:
      return multiply(a, b);
    case HCCL_REDUCE_MAX:
      return maximum(a, b);
    default:
      return minimum(a, b);
  }
}

// Reduces the ranks' contributions, which lie one after the other, in rank order: every rank gets
// the same bits.
void reduce_parts(const std::vector<char>& parts, uint32_t ranks, size_t bytes, HcclDataType type,
                  HcclReduceOp op, void* result) {
  const aclDataType element = acl_type(type);
  for (size_t at = 0; at < bytes; at += element_size(element)) {
    Number value = load(parts.data() + at, element);
    for (uint32_t rank = 1; rank < ranks; ++rank)
      value = reduced(value, load(parts.data() + rank * bytes + at, element), op);
    store(static_cast<char*>(result) + at, element, value);
  }
}

char* bytes_at(const void* base, size_t offset) {
  return static_cast<char*>(const_cast<void*>(base)) + offset;
}

HcclResult start(const Shared& comm, aclrtStream stream,
                 const std::function<void(Communicator&)>& body) {
  CONTRACT_TRY(enqueue(stream, [comm, body] { body(*comm); }));
  return static_cast<HcclResult>(comm->error.load());
}

// Every rank sends `bytes` to every rank, itself included: from send + peer * stride to
// receive + peer * bytes.
std::vector<Transfer> all_to_all(const Communicator& comm, const void* send, size_t stride,
                                 const void* receive, size_t bytes) {
  std::vector<Transfer> transfers;
  for (uint32_t peer = 0; peer < comm.ranks; ++peer) {
    transfers.push_back({HCCL_SEND, bytes_at(send, peer * stride), bytes, peer});
    transfers.push_back({HCCL_RECV, bytes_at(receive, peer * bytes), bytes, peer});
  }
  return transfers;
}

// The root sends `bytes` to every rank, from send + peer * stride.
std::vector<Transfer> from_root(const Communicator& comm, uint32_t root, const void* send,
                                size_t stride, void* receive, size_t bytes) {
  std::vector<Transfer> transfers{{HCCL_RECV, bytes_at(receive, 0), bytes, root}};
  if (comm.rank == root)
    for (uint32_t peer = 0; peer < comm.ranks; ++peer)
      transfers.push_back({HCCL_SEND, bytes_at(send, peer * stride), bytes, peer});
  return transfers;
}

constexpr uint32_t k_everyone = k_max_ranks;

// Gathers every rank's contribution to this rank, from send + rank * stride there, and reduces
// them; the result is stored on the root alone or on everyone.
HcclResult start_reduction(const Shared& comm, aclrtStream stream, const void* send, size_t stride,
                           void* result, size_t bytes, HcclDataType type, HcclReduceOp op,
                           uint32_t root) {
  return start(comm, stream, [=](Communicator& c) {
    std::vector<char> parts(c.ranks * bytes);
    carry_out(c, all_to_all(c, send, stride, parts.data(), bytes));
    if (root == k_everyone || root == c.rank) reduce_parts(parts, c.ranks, bytes, type, op, result);
  });
}

HcclResult join(uint32_t ranks, const HcclRootInfo* info, uint32_t rank, HcclComm* handle) {
  if (ranks > k_max_ranks || rank >= ranks) return HCCL_E_PARA;
  auto comm = std::make_shared<Communicator>();
  comm->ranks = ranks;
  comm->rank = rank;
  comm->name = info->internal;
  const int file = shm_open(info->internal, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(Segment)) != 0) return HCCL_E_SYSCALL;
  void* base = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (base == MAP_FAILED) return HCCL_E_MEMORY;
  comm->segment = static_cast<Segment*>(base);
  ++comm->segment->attached;
  const auto give_up = deadline();
  while (comm->segment->attached < ranks && Clock::now() < give_up)
    std::this_thread::sleep_for(k_poll);
  if (rank == 0)
    shm_unlink(info->internal);  // all are attached, or none will be: the name has done its work
  if (comm->segment->attached < ranks) return HCCL_E_TIMEOUT;
  *handle = new Shared(std::move(comm));
  return HCCL_SUCCESS;
}

}  // namespace
}  // namespace contract

using namespace contract;

CONTRACT_API HcclResult HcclGetRootInfo(HcclRootInfo* info) {
  CONTRACT_ENTER();
  static std::atomic<int> serial{0};
  *info = {};
  const auto now = Clock::now().time_since_epoch().count();
  const std::string name = "/npu_contract_" + std::to_string(getpid()) + '_' +
                           std::to_string(serial++) + '_' + std::to_string(now);
  name.copy(info->internal, sizeof info->internal - 1);
  return HCCL_SUCCESS;
}

CONTRACT_API HcclResult HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRootInfo* info,
                                                   uint32_t rank, const HcclCommConfig*,
                                                   HcclComm* comm) {
  CONTRACT_ENTER();
  return join(ranks, info, rank, comm);
}

CONTRACT_API HcclResult HcclCommDestroy(HcclComm comm) {
  CONTRACT_ENTER();
  delete static_cast<Shared*>(comm);  // queued collectives keep their own reference
  return HCCL_SUCCESS;
}

CONTRACT_API HcclResult HcclGetCommName(HcclComm comm, char* name) {
  CONTRACT_ENTER();
  name[shared(comm)->name.copy(name, COMM_NAME_MAX_LENGTH - 1)] = '\0';
  return HCCL_SUCCESS;
}

CONTRACT_API HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* error) {
  CONTRACT_ENTER();
  *error = static_cast<HcclResult>(shared(comm)->error.load());
  return HCCL_SUCCESS;
}

// No optional feature.
CONTRACT_API uint32_t HcclGetCommConfigCapability() {
  CONTRACT_COUNT();
  return 0;
}

CONTRACT_API HcclResult HcclSetConfig(HcclConfig, HcclConfigValue) {
  CONTRACT_ENTER();
  return HCCL_SUCCESS;
}

CONTRACT_API const char* HcclGetErrorString(HcclResult) {
  CONTRACT_COUNT();
  return "error of the contract library";
}

CONTRACT_API HcclResult HcclAllReduce(void* send, void* receive, uint64_t count, HcclDataType type,
                                      HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  CONTRACT_ENTER();
  const size_t bytes = count * size_of(type);
  return start_reduction(shared(comm), stream, send, 0, receive, bytes, type, op, k_everyone);
}

CONTRACT_API HcclResult HcclReduce(void* send, void* receive, uint64_t count, HcclDataType type,
                                   HcclReduceOp op, uint32_t root, HcclComm comm,
                                   aclrtStream stream) {
  CONTRACT_ENTER();
  const size_t bytes = count * size_of(type);
  return start_reduction(shared(comm), stream, send, 0, receive, bytes, type, op, root);
}

CONTRACT_API HcclResult HcclReduceScatter(void* send, void* receive, uint64_t count,
                                          HcclDataType type, HcclReduceOp op, HcclComm comm,
                                          aclrtStream stream) {
  CONTRACT_ENTER();
  const size_t bytes = count * size_of(type);
  return start_reduction(shared(comm), stream, send, bytes, receive, bytes, type, op, k_everyone);
}

CONTRACT_API HcclResult HcclBroadcast(void* buffer, uint64_t count, HcclDataType type,
                                      uint32_t root, HcclComm comm, aclrtStream stream) {
  CONTRACT_ENTER();
  return start(shared(comm), stream, [=, bytes = count * size_of(type)](Communicator& c) {
    carry_out(c, from_root(c, root, buffer, 0, buffer, bytes));
  });
}

CONTRACT_API HcclResult HcclScatter(void* send, void* receive, uint64_t count, HcclDataType type,
                                    uint32_t root, HcclComm comm, aclrtStream stream) {
  CONTRACT_ENTER();
  return start(shared(comm), stream, [=, bytes = count * size_of(type)](Communicator& c) {
    carry_out(c, from_root(c, root, send, bytes, receive, bytes));
  });
}

CONTRACT_API HcclResult HcclAllGather(void* send, void* receive, uint64_t count, HcclDataType type,
                                      HcclComm comm, aclrtStream stream) {
  CONTRACT_ENTER();
  return start(shared(comm), stream, [=, bytes = count * size_of(type)](Communicator& c) {
    carry_out(c, all_to_all(c, send, 0, receive, bytes));
  });
}

CONTRACT_API HcclResult HcclAlltoAll(const void* send, uint64_t count, HcclDataType type,
                                     const void* receive, uint64_t, HcclDataType, HcclComm comm,
                                     aclrtStream stream) {
  CONTRACT_ENTER();
  return start(shared(comm), stream, [=, bytes = count * size_of(type)](Communicator& c) {
    carry_out(c, all_to_all(c, send, bytes, receive, bytes));
  });
}

CONTRACT_API HcclResult HcclAlltoAllV(const void* send, const void* send_counts,
                                      const void* send_offsets, HcclDataType send_type,
                                      const void* receive, const void* receive_counts,
                                      const void* receive_offsets, HcclDataType receive_type,
                                      HcclComm comm, aclrtStream stream) {
  CONTRACT_ENTER();
  std::vector<Transfer> transfers;
  const auto append = [&](HcclSendRecvType direction, const void* base, const void* counts,
                          const void* offsets, size_t size) {
    for (uint32_t peer = 0; peer < shared(comm)->ranks; ++peer)
      transfers.push_back({direction,
                           bytes_at(base, static_cast<const uint64_t*>(offsets)[peer] * size),
                           static_cast<const uint64_t*>(counts)[peer] * size, peer});
  };
  append(HCCL_SEND, send, send_counts, send_offsets, size_of(send_type));
  append(HCCL_RECV, receive, receive_counts, receive_offsets, size_of(receive_type));
  return start(shared(comm), stream, [transfers](Communicator& c) { carry_out(c, transfers); });
}

CONTRACT_API HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t count, HcclComm comm,
                                          aclrtStream stream) {
  CONTRACT_ENTER();
  std::vector<Transfer> transfers;
  for (const HcclSendRecvItem* item = items; item != items + count; ++item)
    transfers.push_back({item->sendRecvType, static_cast<char*>(item->buf),
                         item->count * size_of(item->dataType), item->remoteRank});
  return start(shared(comm), stream, [transfers](Communicator& c) { carry_out(c, transfers); });
}

CONTRACT_API HcclResult HcclSend(void* buffer, uint64_t count, HcclDataType type, uint32_t peer,
                                 HcclComm comm, aclrtStream stream) {
  CONTRACT_ENTER();
  const Transfer transfer{HCCL_SEND, static_cast<char*>(buffer), count * size_of(type), peer};
  return start(shared(comm), stream, [transfer](Communicator& c) { carry_out(c, {transfer}); });
}

CONTRACT_API HcclResult HcclRecv(void* buffer, uint64_t count, HcclDataType type, uint32_t peer,
                                 HcclComm comm, aclrtStream stream) {
  CONTRACT_ENTER();
  const Transfer transfer{HCCL_RECV, static_cast<char*>(buffer), count * size_of(type), peer};
  return start(shared(comm), stream, [transfer](Communicator& c) { carry_out(c, {transfer}); });
}

// Everyone waits for a byte from everyone.
CONTRACT_API HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  CONTRACT_ENTER();
  return start(shared(comm), stream, [](Communicator& c) {
    const char token = 0;
    std::vector<char> tokens(c.ranks);
    carry_out(c, all_to_all(c, &token, 0, tokens.data(), 1));
  });
}
