#include "core/fork.hpp"

#include <pthread.h>

namespace disttune::core {

std::uint64_t fork_count() noexcept {
  static std::atomic<std::uint64_t> count{1};
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;  // it fails for want of memory only
  return count.load(std::memory_order_relaxed);
}

}  // namespace disttune::core
