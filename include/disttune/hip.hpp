// HIP streams. No HIP header is needed, and the runtime is opened when a stream is first used.
#pragma once

#include "disttune/device.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// Work goes to this HIP stream (a `hipStream_t`). Null is the default stream of the calling
/// thread's device. The device is the stream's, whatever device is current.
///
/// Making a Stream needs no driver. Using it without one (or with one that is too old) throws Error
/// that says what is missing. With several visible devices a stream that was destroyed throws Error
/// here; with one, when the stream is used. Thread-safe; with one visible device it makes no driver
/// call.
[[nodiscard]] Stream hip(void* stream);

DISTTUNE_NAMESPACE_END
