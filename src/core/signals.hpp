// Threads of our own and the caller's signals.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace disttune::core {

/// Signals belong to the caller's threads: a handler (Python's, MPI's) must not run in ours. A new
/// thread inherits the mask of the one that makes it, so this lives while a thread is made. Not for
/// threads that run the caller's code: a program that it starts would inherit the mask too.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &m_before);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &m_before, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t m_before{};
};

}  // namespace disttune::core
