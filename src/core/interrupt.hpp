// How a thread that waits learns that its program wants to stop.
#pragma once

namespace disttune::core {

/// Calls the hook that the front end has set (detail::set_interrupt_hook); may throw. Not with a
/// lock held that the hook may need.
void check_for_interrupt();

}  // namespace disttune::core
