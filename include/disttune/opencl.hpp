// OpenCL command queues. No OpenCL header is needed, and the loader is opened at first use.
#pragma once

#include "disttune/device.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// Work goes to this `cl_command_queue`, in order or out of order. Make it with
/// CL_QUEUE_PROFILING_ENABLE: only then has OpenCL device times, and only then is the queue held
/// while a sample is queued. Without the flag samples are taken with the host's clock, ungated; the
/// policy of the record says "host".
///
/// The queue must be alive, and stay so during the call; a released queue cannot be recognised.
/// Without a loader or a device only the use of the stream throws Error. Throws Error for null.
/// Thread-safe.
[[nodiscard]] Stream opencl(void* queue);

DISTTUNE_NAMESPACE_END
