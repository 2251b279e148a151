// Small messages between ranks beside the collectives: who has arrived, announcements, signs of
// life, notes. Point to point on a communicator of its own, so nothing here ever waits for anybody.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <string_view>
#include <vector>

#include "groups/roll_call.hpp"

namespace disttune::groups {

/// Whoever owns it serialises its use.
class MpiSideChannel {
 public:
  MpiSideChannel(MPI_Comm comm, int rank, int size);

  /// Takes what has come in and clears away what has gone out.
  void progress();
  void arrive(std::uint64_t collective);
  void abandon(std::uint64_t sequence, std::string_view why);
  void withdraw(std::uint64_t sequence);
  void note(std::uint64_t sequence, std::uint64_t what);
  /// A sign of life, unless one went out shortly before.
  void alive();

  [[nodiscard]] const RollCall& roll() const noexcept { return m_roll; }
  /// By rank: whether it is known to have reached `collective`.
  [[nodiscard]] std::vector<bool> arrived(std::uint64_t collective) const;
  /// Some rank has said that it waits in `collective`.
  [[nodiscard]] bool wondered(std::uint64_t collective) const;
  /// Gives up what is still under way: MPI may keep reading the buffers, so these stay for ever.
  void leave() noexcept;

 private:
  enum class Kind : std::int64_t { arrived, abandoned, withdrawn, noted, alive };
  struct Message {
    std::int64_t kind = 0;
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    char text[1000] = {};
  };
  struct Sending {
    Message message;
    std::vector<MPI_Request> requests;
  };
  void tell_all(Kind kind, std::uint64_t first, std::uint64_t second, std::string_view text = {});
  void take(int from, const Message& message, Deadline now);

  MPI_Comm m_comm;
  int m_rank;
  int m_size;
  RollCall m_roll;
  std::vector<std::uint64_t> m_arrived;
  std::list<Sending> m_sending;
  Deadline m_last_sign;
};

}  // namespace disttune::groups
