// CUDA streams. No CUDA header is needed, and the driver is opened when a stream is first used.
#pragma once

#include "disttune/device.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// Work goes to this CUDA stream: a `cudaStream_t` or `CUstream`. Null is the legacy default stream
/// of the context that is current in the calling thread; for the per-thread default stream pass
/// `cudaStreamPerThread`. The device is the stream's, whatever device is current.
///
/// Making a Stream needs no driver. Using it without one (or with one that is too old) throws Error
/// that says what is missing. With several visible devices a stream that was destroyed, or a
/// default stream on a thread without a current context, throws Error here; with one, when the
/// stream is used. Thread-safe; with one visible device it makes no driver call.
[[nodiscard]] Stream cuda(void* stream);

DISTTUNE_NAMESPACE_END
