"""The device that a call's work runs on, found from its tensors.

Where disttune has a device of its own for the hardware (CUDA, HIP, Ascend) that one is used, on
torch's current stream; it can hold a stream closed and is the same from C++. For any other torch
device module its events are used as they are.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import _core

__all__ = ["TorchDevice", "TorchTimer", "current_device_index", "stream_of"]

#: Bytes written to flush a cache whose size is unknown: larger than any device's last level.
_FLUSH_BYTES = 256 << 20
#: Streams that are remembered; torch's pool has 32 a device.
_MOST_STREAMS = 256


def stream_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, int] | None:
    """Find the device and stream of a call.

    The device is that of the first tensor that lies on an accelerator, among the positional and
    then the keyword arguments. Calls with tensors in host memory only run on the host; calls
    without tensors use the current device of the accelerator that the process uses, if any.

    Returns
    -------
    (Device, int) or None
        The device and the handle of torch's current stream on it; nothing for the host.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return None
    seen = False
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            seen = True
            if value.device.type not in ("cpu", "meta"):
                return _stream_on(torch, value.device.type, value.device.index)
    if seen:
        return None
    kind = _accelerator_in_use(torch)
    return None if kind is None else _stream_on(torch, kind, None)


def current_device_index() -> int:
    """Return the index of the device that a call without tensors uses; -1 for the host."""
    torch = sys.modules.get("torch")
    kind = None if torch is None else _accelerator_in_use(torch)
    return -1 if kind is None else int(getattr(torch, kind).current_device())


def _accelerator_in_use(torch: Any) -> str | None:
    """Name the accelerator that this process has begun to use; asking must not initialise one."""
    names = ["cuda", "npu", "xpu", "hpu", "musa", "mlu"]
    with contextlib.suppress(AttributeError, RuntimeError):
        current = torch.accelerator.current_accelerator()
        if current is not None:
            names.insert(0, current.type)
    for name in names:
        module = getattr(torch, name, None)
        initialised = getattr(module, "is_initialized", None)
        if initialised is not None and hasattr(module, "Event") and initialised():
            return name
    return None


def _stream_on(torch: Any, kind: str, index: int | None) -> tuple[Any, int] | None:
    module = getattr(torch, kind, None)
    if module is None or not hasattr(module, "Event") or not hasattr(module, "current_stream"):
        return None
    if index is None:
        index = int(module.current_device())
    _notice_devices(kind, module)
    stream = module.current_stream(index)
    handle = _handle(stream)
    # The default stream is that of the current device: it must be the tensors' while it is named.
    with _current(module, index):
        native = _native(torch, kind, index, stream, handle)
    return (native or _device(kind, index)), handle


def _handle(stream: Any) -> int:
    """Return the driver's handle of a torch stream.

    On Ascend the read also drains torch's task queue, so that what is put straight on the stream
    afterwards does not overtake commands that another thread has still to issue.
    """
    for name in ("cuda_stream", "npu_stream", "sycl_queue", "stream_id"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    return 0


def _native(torch: Any, kind: str, index: int, stream: Any, handle: int) -> Any:
    """Return disttune's own device for a stream, where it has one that works here."""
    if kind == "cuda":
        hip = bool(getattr(torch.version, "hip", None))
        return _core.hip(handle) if hip else _core.cuda(handle)
    if kind == "npu":
        return _ascend(functools.partial(_handle, stream), index, handle)
    return None


#: By device and stream: what a tuning knows of a stream, it knows by its device object.
_drained: dict[tuple[int, int], Any] = {}


def _ascend(drain: Callable[[], int], index: int, handle: int) -> Any:
    device = _drained.get((index, handle))
    if device is None:
        try:
            device = _core.ascend(handle, drain)
            _core.device_fingerprint(device)  # the first use of the runtime library
        except _core.Error:
            return None  # torch's own events remain
        if len(_drained) >= _MOST_STREAMS:
            _drained.clear()
        _drained[index, handle] = device
    return device


@functools.cache
def _device(kind: str, index: int) -> TorchDevice:
    return TorchDevice(kind, index)


@functools.cache
def _notice_devices(kind: str, module: Any) -> None:
    """Let warm calls ask where their tensors lie, if that can make a difference."""
    count = int(module.device_count())
    if count > 1 and len({str(_hardware(kind, module, i)) for i in range(count)}) > 1:
        _core.set_devices_differ(True, current_device_index)


def _hardware(kind: str, module: Any, index: int) -> dict[str, Any]:
    """Describe a device without versions, clocks or addresses."""
    found: dict[str, Any] = {"device": f"torch.{kind}", "name": "unknown"}
    with contextlib.suppress(AttributeError, RuntimeError):
        found["name"] = str(module.get_device_name(index))
    try:
        properties = module.get_device_properties(index)
    except (AttributeError, RuntimeError):
        return found
    memory = getattr(properties, "total_memory", None)
    if isinstance(memory, int):
        found["memory_gib"] = round(memory / 2**30)
    for name in ("multi_processor_count", "cube_core_num", "vector_core_num", "gpu_eu_count",
                 "max_compute_units", "warp_size"):  # fmt: skip
        value = getattr(properties, name, None)
        if isinstance(value, int):
            found[name] = value
    return found


@contextlib.contextmanager
def _current(module: Any, index: int) -> Iterator[None]:
    """Make a device current, and the one before it afterwards, also after an error."""
    before = int(module.current_device())
    if before == index:
        yield
        return
    module.set_device(index)
    try:
        yield
    finally:
        module.set_device(before)


class TorchDevice(_core.Device):
    """A device made from a torch device module (``torch.npu``, ``torch.xpu`` …) and its events.

    Parameters
    ----------
    kind
        The name of the module in ``torch``.
    index
        The device's index.
    """

    def __init__(self, kind: str, index: int) -> None:
        super().__init__()
        self._kind = kind
        self._index = index

    @property
    def _module(self) -> Any:
        return getattr(sys.modules["torch"], self._kind)

    @property
    def kind(self) -> str:
        """What messages call the device."""
        return f"torch.{self._kind}"

    def index(self) -> int:
        """Which of the process's devices this is."""
        return self._index

    def fingerprint(self) -> dict[str, Any]:
        """Hardware of the device, as in keys."""
        return _hardware(self._kind, self._module, self._index)

    def uniform(self) -> bool:
        """Whether all visible devices have the same fingerprint."""
        module = self._module
        count = int(module.device_count())
        return len({str(_hardware(self._kind, module, i)) for i in range(count)}) <= 1

    def capturing(self, stream: int) -> bool:
        """Whether the current stream is being captured into a graph."""
        del stream  # torch asks about its current one, which this is
        ask = getattr(self._module, "is_current_stream_capturing", None)
        return bool(ask()) if ask is not None else False

    def open(self, stream: int, samples: int) -> TorchTimer:
        """Make a timer on torch's current stream of this device."""
        del stream  # a handle; torch's events want torch's stream
        return TorchTimer(self._module, self._index, samples)


class TorchTimer:
    """Marks on torch's current stream, as torch's own events.

    Events go through whatever queue torch has in front of the stream (torch_npu's task queue), in
    order with its kernels, so nothing needs to be drained. There is no gate.
    """

    gate = "none"

    def __init__(self, module: Any, index: int, samples: int) -> None:
        self._module = module
        self._index = index
        self._stream = module.current_stream(index)
        self._marks: list[tuple[Any, Any] | None] = [None] * samples
        self._flushed: Any = None

    def _mark(self) -> Any:
        with _current(self._module, self._index):
            event = self._module.Event(enable_timing=True)
            event.record(self._stream)
        return event

    def start(self, sample: int) -> None:
        """Queue the first mark of a sample."""
        self._marks[sample] = (self._mark(), None)

    def stop(self, sample: int) -> None:
        """Queue the second mark of a sample."""
        pair = self._marks[sample]
        if pair is not None:
            self._marks[sample] = (pair[0], self._mark())

    def elapsed_ns(self, sample: int) -> int:
        """Nanoseconds between the marks; 0, which is no time, where they were not both set."""
        pair = self._marks[sample]
        if pair is None or pair[1] is None:
            return 0
        milliseconds = float(pair[0].elapsed_time(pair[1]))
        # A clock gone wrong is the caller's to see, as a time that is none.
        return round(milliseconds * 1e6) if 0 < milliseconds < 1e12 else 0

    def flush(self) -> None:
        """Queue a write of more bytes than the device's cache holds."""
        torch = sys.modules["torch"]
        with _current(self._module, self._index):
            if self._flushed is None:
                properties = self._module.get_device_properties(self._index)
                size = getattr(properties, "L2_cache_size", 0) or _FLUSH_BYTES
                device = torch.device(self._module.__name__.split(".")[-1], self._index)
                self._flushed = torch.empty(int(size), dtype=torch.int8, device=device)
            with self._module.stream(self._stream):
                self._flushed.zero_()

    def synchronize(self, deadline: float) -> bool:
        """Wait for all queued work until ``deadline`` (seconds of ``time.monotonic``)."""
        try:
            last = self._mark()
            pause = 20e-6
            while not last.query():
                if time.monotonic() > deadline:
                    return False
                time.sleep(pause)
                pause = min(pause * 1.3, 1e-3)
        except RuntimeError as error:
            raise _core.DeviceLost(
                f"disttune: the device failed while its work was waited for: {error}"
            ) from error
        return True
