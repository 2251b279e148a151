// Ranks of an MPI job as a group. Target disttune::mpi, built against one MPI; this header needs no
// mpi.h.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
//   auto group = disttune::mpi();                 // or disttune::mpi(communicator)
//   launcher.with({.group = group.get()})(x, y);
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "disttune/group.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {
[[nodiscard]] std::shared_ptr<ProcessGroup> mpi_group(const void* communicator, std::size_t size);
}  // namespace detail

/// All ranks of MPI_COMM_WORLD. Collective: every rank calls it. Control traffic runs on private
/// duplicates of the communicator, so it never meets the program's own messages.
///
/// disttune neither initialises nor finalises MPI. Throws Error when MPI is not initialised, has
/// been finalised, or was initialised with MPI_THREAD_SINGLE (the library has helper threads). With
/// MPI_THREAD_FUNNELED cold calls must come from the thread that initialised MPI; signs of life
/// then go out between visits only, so TIMEOUT must be longer than the longest preparation. With
/// MPI_THREAD_MULTIPLE they go out all the time. The interval of signs is five seconds, or five
/// milliseconds a rank where that is more.
///
/// A wait starts to count when this rank arrives. After GroupTimeout or PeerFailed a collective is
/// left open, which MPI cannot take back: the program should end with MPI_Abort. A rank that dies
/// makes most launchers end the whole job before anybody can raise anything.
///
/// The group must be destroyed before MPI_Finalize, on all ranks; later it leaves its communicators
/// alone.
[[nodiscard]] inline std::shared_ptr<ProcessGroup> mpi() { return detail::mpi_group(nullptr, 0); }

/// The ranks of an intra-communicator (an `MPI_Comm` of the MPI that disttune::mpi was built for).
template <class Comm>
[[nodiscard]] std::shared_ptr<ProcessGroup> mpi(const Comm& communicator) {
  static_assert(std::is_trivially_copyable_v<Comm>, "disttune::mpi: give it an MPI_Comm");
  return detail::mpi_group(&communicator, sizeof(communicator));
}

DISTTUNE_NAMESPACE_END
