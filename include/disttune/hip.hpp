// HIP streams. No HIP header is needed, and the runtime is opened when a stream is first used.
#pragma once

#include "disttune/device.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// Work goes to this HIP stream (a `hipStream_t`). Null is the default stream of the calling
/// thread's device. The device is the stream's, whatever device is current.
///
/// Making a Stream needs no driver. Using it without one (or with one that is too old) throws Error
/// that says what is missing. The stream must be alive: HIP before 7 answers for a destroyed one
/// with an error, which is thrown; HIP 7 may crash. Thread-safe; with one visible device it makes
/// no driver call.
///
/// This was written from the public interface and checked against a contract library; it has not
/// run on an AMD GPU.
[[nodiscard]] Stream hip(void* stream);

DISTTUNE_NAMESPACE_END
