#include "groups/mpi_side_channel.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace disttune::groups {

namespace {

constexpr std::size_t k_head_bytes = 3 * sizeof(std::uint64_t);

/// A rank tells every other one, so the interval grows with them: at most 200 messages a second.
std::chrono::nanoseconds sign_interval(int size) {
  return std::max<std::chrono::nanoseconds>(std::chrono::milliseconds(4500),
                                            std::chrono::milliseconds(5) * size);
}

}  // namespace

MpiSideChannel::MpiSideChannel(MPI_Comm comm, int rank, int size)
    : m_comm(comm),
      m_rank(rank),
      m_size(size),
      m_roll(size),
      m_arrived(static_cast<std::size_t>(size), 0) {}

void MpiSideChannel::progress() {
  const Deadline now = std::chrono::steady_clock::now();
  while (true) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, 0, m_comm, &there, &status) != MPI_SUCCESS || there == 0) break;
    Message message;
    if (MPI_Recv(&message, static_cast<int>(sizeof message), MPI_BYTE, status.MPI_SOURCE, 0, m_comm,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
      break;
    message.text[sizeof message.text - 1] = '\0';
    take(status.MPI_SOURCE, message, now);
  }
  m_sending.remove_if([](Sending& s) {
    int done = 0;
    return MPI_Testall(static_cast<int>(s.requests.size()), s.requests.data(), &done,
                       MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
           done != 0;
  });
}

void MpiSideChannel::take(int from, const Message& message, Deadline now) {
  m_roll.sign(from, now);
  switch (static_cast<Kind>(message.kind)) {
    case Kind::arrived: {
      auto& last = m_arrived[static_cast<std::size_t>(from)];
      last = std::max(last, message.first);
      break;
    }
    case Kind::abandoned:
      m_roll.announce(from, message.first, message.text, now);
      break;
    case Kind::withdrawn:
      m_roll.withdraw(from, message.first);
      break;
    case Kind::noted:
      m_roll.note(from, message.first, message.second);
      break;
    case Kind::alive:
      break;
  }
}

void MpiSideChannel::tell_all(Kind kind, std::uint64_t first, std::uint64_t second,
                              std::string_view text) {
  Sending& sending = m_sending.emplace_back();
  sending.message.kind = static_cast<std::int64_t>(kind);
  sending.message.first = first;
  sending.message.second = second;
  text.copy(sending.message.text, sizeof sending.message.text - 1);
  const auto bytes = static_cast<int>(text.empty() ? k_head_bytes : sizeof(Message));
  for (int r = 0; r < m_size; ++r) {
    if (r == m_rank) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(&sending.message, bytes, MPI_BYTE, r, 0, m_comm, &request) == MPI_SUCCESS)
      sending.requests.push_back(request);
  }
  m_last_sign = std::chrono::steady_clock::now();
}

void MpiSideChannel::arrive(std::uint64_t collective) { tell_all(Kind::arrived, collective, 0); }

void MpiSideChannel::abandon(std::uint64_t sequence, std::string_view why) {
  m_roll.announce(m_rank, sequence, why, std::chrono::steady_clock::now());
  tell_all(Kind::abandoned, sequence, 0, why.empty() ? "no reason given" : why);
}

void MpiSideChannel::withdraw(std::uint64_t sequence) {
  // Nearly every call withdraws; only one that had announced something has to say so.
  if (m_roll.ended(m_rank) != sequence) return;
  m_roll.withdraw(m_rank, sequence);
  tell_all(Kind::withdrawn, sequence, 0);
}

void MpiSideChannel::note(std::uint64_t sequence, std::uint64_t what) {
  tell_all(Kind::noted, sequence, what);
}

void MpiSideChannel::alive() {
  if (std::chrono::steady_clock::now() - m_last_sign >= sign_interval(m_size))
    tell_all(Kind::alive, 0, 0);
}

std::vector<bool> MpiSideChannel::arrived(std::uint64_t collective) const {
  std::vector<bool> there(m_arrived.size());
  for (std::size_t r = 0; r < there.size(); ++r) there[r] = m_arrived[r] >= collective;
  return there;
}

bool MpiSideChannel::wondered(std::uint64_t collective) const {
  return std::ranges::any_of(m_arrived, [&](std::uint64_t c) { return c >= collective; });
}

void MpiSideChannel::leave() noexcept {
  if (!m_sending.empty()) static_cast<void>(new std::list<Sending>(std::move(m_sending)));
}

}  // namespace disttune::groups
