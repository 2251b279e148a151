// Ascend streams. No CANN header is needed, and the runtime library is opened at first use.
#pragma once

#include "disttune/device.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// Work goes to this Ascend stream (an `aclrtStream`) of the context that is current in the calling
/// thread; null is that context's default stream. The program has called aclInit and aclrtSetDevice
/// before; disttune neither initialises nor finalises the runtime.
///
/// Samples are timing events. The stream is held by a value wait where the product has it (Atlas
/// A2, A3, 950), else by a host function, else not at all; the record says which. The flush fills a
/// buffer of the L2's size. This was written from the public interface and checked against a
/// contract library (tests/ascend_contract); it has not run on an NPU.
///
/// Without the runtime library only the use of the stream throws Error; a thread without a current
/// device throws here. Thread-safe.
[[nodiscard]] Stream ascend(void* stream);

DISTTUNE_NAMESPACE_END
