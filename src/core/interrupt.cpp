#include "core/interrupt.hpp"

#include <functional>
#include <mutex>
#include <utility>

#include "disttune/detail/attempt.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace detail {
namespace {

struct Hook {
  std::mutex mutex;
  std::function<void()> call;
};
// Never destroyed: threads may still wait while the process ends.
Hook& hook() {
  static auto& it = *new Hook;
  return it;
}

}  // namespace

void set_interrupt_hook(std::function<void()> call) {
  const std::lock_guard lock(hook().mutex);
  hook().call = std::move(call);
}

}  // namespace detail
DISTTUNE_NAMESPACE_END

namespace disttune::core {

void check_for_interrupt() {
  std::function<void()> call;
  {
    const std::lock_guard lock(detail::hook().mutex);
    call = detail::hook().call;
  }
  if (call) call();
}

}  // namespace disttune::core
