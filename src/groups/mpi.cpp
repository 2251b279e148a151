#include "disttune/mpi.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "disttune/error.hpp"
#include "groups/mpi_side_channel.hpp"
#include "groups/roll_call.hpp"

namespace disttune::groups {

namespace {

/// Every collective begins with a block of fixed length, so that ranks which are out of step can
/// never hand MPI different lengths: header pairs, then the first words of the payload.
constexpr std::size_t k_block_words = 128;
constexpr std::size_t k_header_words = 6;
constexpr std::size_t k_payload_words = k_block_words - k_header_words;
constexpr std::string_view k_abort_is_due =
    "; collectives of MPI are left open by this: end the program with MPI_Abort";

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw GroupTimeout(fmt::format("disttune::mpi: {} failed: {}", call, text));
}

bool finalized() {
  int yes = 0;
  MPI_Finalized(&yes);
  return yes != 0;
}

/// Nine letters of seven bits: phases compare as numbers inside a MAX, and can be read afterwards.
std::int64_t phase_word(std::string_view phase) {
  std::int64_t word = 0;
  for (std::size_t i = 0; i < 9; ++i) word = (word << 7) | (i < phase.size() ? phase[i] & 0x7F : 0);
  return word;
}
std::string phase_text(std::int64_t word) {
  std::string text;
  for (int shift = 56; shift >= 0; shift -= 7)
    if (const auto c = static_cast<char>((word >> shift) & 0x7F); c != '\0') text += c;
  return text;
}

/// One non-blocking reduction under way. Where it cannot be waited for, it stays for ever: MPI goes
/// on writing to it.
struct Reduction {
  std::vector<std::int64_t> send, receive;
  MPI_Request request = MPI_REQUEST_NULL;
};

class MpiGroup final : public ProcessGroup {
 public:
  MpiGroup(MPI_Comm collectives, MPI_Comm side, int rank, int size, std::vector<int> per_node)
      : ProcessGroup(rank, size, std::move(per_node)),
        m_collectives(collectives),
        m_side_comm(side),
        m_side(side, rank, size) {
    MPI_Query_thread(&m_level);
  }
  ~MpiGroup() override;

  void all_reduce_max(std::span<std::int64_t> values, const Wait& wait) override;
  void abandon(std::uint64_t sequence, std::string_view why) noexcept override;
  void withdraw(std::uint64_t sequence) noexcept override;
  void alive() noexcept override;
  void poll(const Wait& wait) override;
  void note(std::uint64_t sequence, std::uint64_t what) noexcept override;
  [[nodiscard]] std::optional<int> noted(std::uint64_t sequence, std::uint64_t what) override;

 private:
  /// MPI may be called from here and now.
  [[nodiscard]] bool may_call() const;
  void require_mpi() const;
  template <class F>
  void tell(F&& send) noexcept;
  void reduce_in_step(std::span<std::int64_t> values, const Wait& wait);
  std::vector<std::int64_t> reduce(std::vector<std::int64_t> words, const Wait& wait);
  void await(Reduction& reduction, const Wait& wait);
  [[noreturn]] void out_of_step(std::size_t words, const Wait& wait);

  MPI_Comm m_collectives;
  MPI_Comm m_side_comm;
  int m_level = MPI_THREAD_SINGLE;
  std::atomic<std::thread::id> m_caller;  ///< of the last collective
  std::mutex m_mutex;  ///< the side channel: signs of life come from another thread
  MpiSideChannel m_side;
  std::uint64_t m_collective = 0;  ///< how many this rank has begun
  bool m_left_open = false;
};

MpiGroup::~MpiGroup() {
  if (finalized()) return;
  const std::lock_guard lock(m_mutex);
  m_side.progress();
  m_side.leave();
  if (m_left_open) return;  // MPI still owns what runs on them
  MPI_Comm_free(&m_collectives);
  MPI_Comm_free(&m_side_comm);
}

bool MpiGroup::may_call() const {
  if (finalized()) return false;
  if (m_level == MPI_THREAD_MULTIPLE || m_level == MPI_THREAD_SERIALIZED) return true;
  int main_thread = 0;
  MPI_Is_thread_main(&main_thread);
  return main_thread != 0;
}

void MpiGroup::require_mpi() const {
  if (finalized())
    throw Error(
        "disttune::mpi: MPI was finalised before the last cold call on this group; finalise it "
        "after "
        "the last call that may have to tune");
  if (may_call()) return;
  throw Error(
      "disttune::mpi: a cold call from a thread that did not initialise MPI, which was initialised "
      "with MPI_THREAD_FUNNELED; ask MPI_Init_thread for MPI_THREAD_MULTIPLE");
}

/// Somewhere a collective is left open now, on this rank or another.
std::string with_advice(const char* why) {
  std::string text = why;
  return text.find(k_abort_is_due) == std::string::npos ? text.append(k_abort_is_due) : text;
}

void MpiGroup::all_reduce_max(std::span<std::int64_t> values, const Wait& wait) {
  require_mpi();
  m_caller = std::this_thread::get_id();
  try {
    reduce_in_step(values, wait);
  } catch (const GroupTimeout& e) {
    throw GroupTimeout(with_advice(e.what()));
  } catch (const PeerFailed& e) {
    throw PeerFailed(with_advice(e.what()));
  }
}

void MpiGroup::reduce_in_step(std::span<std::int64_t> values, const Wait& wait) {
  std::vector<std::int64_t> block(k_block_words, 0);
  const auto pair = [&](std::size_t at, std::int64_t word) {
    block[at] = word;
    block[at + 1] = ~word;
  };
  pair(0, static_cast<std::int64_t>(wait.sequence));
  pair(2, phase_word(wait.phase));
  pair(4, static_cast<std::int64_t>(values.size()));
  const auto head = values.first(std::min(values.size(), k_payload_words));
  std::ranges::copy(head, block.begin() + k_header_words);
  const auto first = reduce(std::move(block), wait);
  for (const std::size_t at : {0u, 2u, 4u})
    if (first[at] != ~first[at + 1]) out_of_step(values.size(), wait);
  std::copy_n(first.begin() + k_header_words, head.size(), values.begin());
  if (values.size() == head.size()) return;
  const auto tail = values.subspan(head.size());
  const auto rest = reduce({tail.begin(), tail.end()}, wait);
  std::ranges::copy(rest, tail.begin());
}

std::vector<std::int64_t> MpiGroup::reduce(std::vector<std::int64_t> words, const Wait& wait) {
  auto reduction = std::make_unique<Reduction>();
  reduction->send = std::move(words);
  reduction->receive.resize(reduction->send.size());
  try {
    {
      const std::lock_guard lock(m_mutex);
      m_side.progress();
      const Deadline now = std::chrono::steady_clock::now();
      const std::vector<bool> all(static_cast<std::size_t>(size()), true);
      // Whoever cannot be waited for is not joined; what may be taken back is looked at again
      // below.
      static_cast<void>(m_side.roll().check(rank(), wait, all, now, now));
    }
    ++m_collective;
    check(MPI_Iallreduce(reduction->send.data(), reduction->receive.data(),
                         static_cast<int>(reduction->send.size()), MPI_INT64_T, MPI_MAX,
                         m_collectives, &reduction->request),
          "MPI_Iallreduce");
    await(*reduction, wait);
  } catch (...) {
    if (reduction->request != MPI_REQUEST_NULL) {
      m_left_open = true;
      static_cast<void>(reduction.release());
    }
    throw;
  }
  return std::move(reduction->receive);
}

void MpiGroup::await(Reduction& reduction, const Wait& wait) {
  using namespace std::chrono_literals;
  const Deadline entered = std::chrono::steady_clock::now();
  const auto grace = std::min<std::chrono::nanoseconds>(1s, wait.patience / 4);
  Deadline next_look = entered;
  bool told = false;
  for (int turns = 0;; ++turns) {
    int done = 0;
    check(MPI_Test(&reduction.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= next_look) {
      next_look = now + 2ms;
      const std::lock_guard lock(m_mutex);
      m_side.progress();
      if (!told && (now - entered >= grace || m_side.wondered(m_collective))) {
        m_side.arrive(m_collective);
        told = true;
      }
      static_cast<void>(
          m_side.roll().check(rank(), wait, m_side.arrived(m_collective), entered, now));
    }
    // Ranks often share cores: let the others run, and stop spinning when this takes long.
    if (now - entered < 5ms)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(now - entered < 1s ? 100us : 1ms);
  }
}

void MpiGroup::out_of_step(std::size_t words, const Wait& wait) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> all(3 * ranks, std::numeric_limits<std::int64_t>::min());
  const auto me = 3 * static_cast<std::size_t>(rank());
  all[me] = static_cast<std::int64_t>(wait.sequence);
  all[me + 1] = phase_word(wait.phase);
  all[me + 2] = static_cast<std::int64_t>(words);
  all = reduce(std::move(all), wait);
  std::vector<std::pair<Header, std::vector<int>>> sides;
  for (std::size_t r = 0; r < ranks; ++r) {
    const Header header{static_cast<std::uint64_t>(all[3 * r]), phase_text(all[3 * r + 1]),
                        static_cast<std::size_t>(all[3 * r + 2])};
    const auto at = std::ranges::find(sides, header, [](const auto& s) { return s.first; });
    if (at == sides.end())
      sides.push_back({header, {static_cast<int>(r)}});
    else
      at->second.push_back(static_cast<int>(r));
  }
  throw Disagreement(groups::out_of_step(std::move(sides)));
}

void MpiGroup::poll(const Wait& wait) {
  if (!may_call()) return;
  const std::lock_guard lock(m_mutex);
  m_side.progress();
  m_side.alive();
  const Deadline now = std::chrono::steady_clock::now();
  static_cast<void>(m_side.roll().check(rank(), wait, m_side.arrived(m_collective + 1), now, now));
}

template <class F>
void MpiGroup::tell(F&& send) noexcept {
  if (!may_call()) return;
  try {
    const std::lock_guard lock(m_mutex);
    std::forward<F>(send)();
  } catch (...) {  // out of memory: the others' deadline remains
  }
}

void MpiGroup::abandon(std::uint64_t sequence, std::string_view why) noexcept {
  tell([&] { m_side.abandon(sequence, why); });
}
void MpiGroup::withdraw(std::uint64_t sequence) noexcept {
  tell([&] { m_side.withdraw(sequence); });
}
void MpiGroup::alive() noexcept {
  // The caller has promised to make one call of MPI at a time, and knows nothing of our thread.
  if (m_level == MPI_THREAD_SERIALIZED && m_caller.load() != std::this_thread::get_id()) return;
  tell([&] { m_side.alive(); });
}
void MpiGroup::note(std::uint64_t sequence, std::uint64_t what) noexcept {
  tell([&] { m_side.note(sequence, what); });
}
std::optional<int> MpiGroup::noted(std::uint64_t sequence, std::uint64_t what) {
  const std::lock_guard lock(m_mutex);
  return m_side.roll().noted(rank(), sequence, what);
}

/// Sizes of the nodes, from the ranks that can share memory.
std::vector<int> ranks_per_node(MPI_Comm comm, int size) {
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  int place = 0;
  int ranks = 0;
  MPI_Comm_rank(node, &place);
  MPI_Comm_size(node, &ranks);
  MPI_Comm_free(&node);
  const int mine = place == 0 ? ranks : 0;
  std::vector<int> all(static_cast<std::size_t>(size));
  check(MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, comm), "MPI_Allgather");
  std::erase(all, 0);
  return all;
}

void require_ready_mpi() {
  int ready = 0;
  MPI_Initialized(&ready);
  if (ready == 0)
    throw Error(
        "disttune::mpi: MPI is not initialised; call MPI_Init_thread first (disttune leaves "
        "starting "
        "and ending MPI to the program)");
  if (finalized()) throw Error("disttune::mpi: MPI has been finalised already");
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_FUNNELED)
    throw Error(
        "disttune::mpi: MPI was initialised with MPI_THREAD_SINGLE, but disttune has helper "
        "threads; "
        "call MPI_Init_thread and ask for MPI_THREAD_MULTIPLE (MPI_THREAD_FUNNELED at least)");
}

}  // namespace

}  // namespace disttune::groups

DISTTUNE_NAMESPACE_BEGIN
namespace detail {

std::shared_ptr<ProcessGroup> mpi_group(const void* communicator, std::size_t size) {
  groups::require_ready_mpi();
  MPI_Comm comm = MPI_COMM_WORLD;
  if (communicator != nullptr) {
    if (size != sizeof(MPI_Comm))
      throw Error(
          "disttune::mpi: this is not a communicator of the MPI that disttune::mpi was built for");
    std::memcpy(&comm, communicator, size);
  }
  if (comm == MPI_COMM_NULL) throw Error("disttune::mpi: MPI_COMM_NULL is not a group");
  int inter = 0;
  groups::check(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  if (inter != 0) throw Error("disttune::mpi: an inter-communicator is not a group");
  MPI_Comm collectives = MPI_COMM_NULL;
  MPI_Comm side = MPI_COMM_NULL;
  groups::check(MPI_Comm_dup(comm, &collectives), "MPI_Comm_dup");
  groups::check(MPI_Comm_dup(comm, &side), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(collectives, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(side, MPI_ERRORS_RETURN);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(collectives, &rank);
  MPI_Comm_size(collectives, &ranks);
  return std::make_shared<groups::MpiGroup>(collectives, side, rank, ranks,
                                            groups::ranks_per_node(collectives, ranks));
}

}  // namespace detail
DISTTUNE_NAMESPACE_END
