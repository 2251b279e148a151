"""Timing a launcher in the steady state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _core
from ._groups import resolve_group
from ._options import only_starts_work
from ._torch_device import stream_of

__all__ = ["measure"]


def measure(
    fn: Callable[..., Any],
    *args: Any,
    warmup: int = 5,
    repeat: int = 50,
    group: Any = None,
    cache: str = "hot",
    timer: str = "auto",
    **kwargs: Any,
) -> _core.Measurement:
    """Time ``fn(*args, **kwargs)`` in the steady state.

    A tuned launcher is tuned first if its key is new; what is timed are calls of its winner. The
    stream is held closed while runs are queued, where the device can do that, so host launch time
    is not in the samples. With a group each sample is the maximum over the ranks.

    Parameters
    ----------
    fn
        A launcher.
    *args, **kwargs
        Its arguments. The keywords named here are `measure`'s own.
    warmup, repeat
        Untimed and timed runs.
    group
        The ranks that run it together, as ``autotune_pg``; ``None`` is the default group.
    cache
        ``"hot"``, or ``"cold"``: the device's cache is flushed before each timed run.
    timer
        ``"auto"``, ``"device"``, ``"host"`` or ``"graph"``.

    Returns
    -------
    Measurement
        Samples, median, spread, per-rank medians and the slowest rank, in nanoseconds.

    Raises
    ------
    TypeError, ValueError
        An argument of `measure` that cannot be right.
    """
    if not callable(fn):
        raise TypeError(f"disttune: measure() times a callable, not {fn!r}")
    if only_starts_work(fn):
        raise TypeError(
            f"disttune: measure(): {fn!r} only starts its work when it is awaited or iterated; "
            "give the function that does the work"
        )
    for name, count, least in (("warmup", warmup, 0), ("repeat", repeat, 1)):
        if isinstance(count, bool) or not isinstance(count, int) or count < least:
            raise ValueError(f"disttune: measure({name}={count!r}): a number from {least} on")
    for name, value, known in (
        ("cache", cache, ("hot", "cold")),
        ("timer", timer, ("auto", "device", "host", "graph")),
    ):
        if value not in known:
            raise ValueError(f"disttune: measure({name}={value!r}): one of {', '.join(known)}")
    seat = resolve_group(group)
    found = stream_of(args, kwargs)
    device, stream = (None, 0) if found is None else found
    if isinstance(fn, _core.Tuned):
        fn(*args, **_with_group(kwargs, group))  # a miss is tuned outside the measurement
        kwargs = _with_group(kwargs, group)
    return _core.measure(
        lambda: fn(*args, **kwargs),
        warmup=warmup,
        repeat=repeat,
        cache=cache,
        timer=timer,
        device=device,
        stream=stream,
        group=seat,
    )


def _with_group(kwargs: dict[str, Any], group: Any) -> dict[str, Any]:
    return kwargs if group is None else {"autotune_pg": group, **kwargs}
