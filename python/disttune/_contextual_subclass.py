"""Subclasses of Triton's tuner that have a ``run`` of their own.

Some change a launch and go on to their base's ``run``; some are whole tuners, whose own measuring
would make no sense inside a contextual call; which one cannot be told from the code. So the first
launch of a kernel runs the subclass's ``run`` and sees where it gets to: to the base, where the
launch is met with all that the subclass did to it, or to the beginning of a tuning of its own,
where it is stopped and the launch is answered in its place. One that gets to neither has made the
launch as it likes: that is said, and stays so.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _core
from ._contextual_kernel import generates_configs, kernel_name

if TYPE_CHECKING:
    from ._contextual_call import ContextualCall

__all__ = ["meeting_in_subclass", "stop_watching"]

_MISSING = object()
#: Where a tuner begins to tune, in all versions and forks.
_TUNING = ("prune_configs", "_bench")

#: What is known of a kernel: for each `run` that it inherits, what becomes of launches in there.
_PASSES_ON, _TUNES, _STANDS_ALONE = "passes on", "tunes", "stands alone"
_kinds: weakref.WeakKeyDictionary[Any, dict[Any, str]] = weakref.WeakKeyDictionary()
_said: weakref.WeakSet[type] = weakref.WeakSet()


class _Watching(threading.local):
    """The kernels whose `run` is being watched in this thread, innermost last."""

    def __init__(self) -> None:
        self.stack: list[_Watch] = []


_watching = _Watching()


class _Stopped(BaseException):
    """Ends a tuner's own ``run`` where it would begin to tune."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.watch = watch


class _Watch:
    """One launch of a kernel, until it is seen where its ``run`` gets to."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.reached = False
        self._thread = threading.get_ident()
        self._before = {n: vars(kernel).get(n, _MISSING) for n in (*_TUNING, "cache", "nargs")}
        # What it has chosen before is not for it to launch: the ranks may not agree.
        self._hidden: dict[Any, Any] = {}
        self._real: dict[str, Any] = {name: getattr(kernel, name, None) for name in _TUNING}
        for name in _TUNING:
            setattr(kernel, name, functools.partial(self._begins_to_tune, name))
        kernel.cache = self._hidden

    def _begins_to_tune(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != self._thread:  # its own launch
            return self._real[name](*args, **kwargs)
        raise _Stopped(self)

    def end(self) -> bool:
        """Leave the kernel as it was; return whether its ``run`` has put a choice of its own."""
        if self not in _watching.stack:
            return False
        _watching.stack.remove(self)
        for name, value in self._before.items():
            if value is _MISSING:
                vars(self.kernel).pop(name, None)
            else:
                setattr(self.kernel, name, value)
        self.kernel.cache.update(self._hidden)
        return bool(self._hidden)


def stop_watching(kernel: Any) -> None:
    """Take note that a launch of the kernel is met here."""
    for watch in reversed(_watching.stack):
        if watch.kernel is kernel:
            watch.reached = True
            watch.end()


class _Own:
    """A class's own ``run``, and what answers launches of whole tuners without it.

    Lies on the class, so that nobody else keeps the class alive: most such functions refer to it.
    """

    ATTRIBUTE = "_disttune_own_run"

    def __init__(self, run: Any, direct: Any) -> None:
        self.run = run
        self.direct = direct


def meeting_in_subclass(
    cls: type, original: Any, direct: Any, call_of_this_thread: Callable[[], ContextualCall | None]
) -> Any:
    """Make what stands in the place of a subclass's ``run``.

    ``direct`` answers launches of tuners without their ``run``.
    """
    kept = _Own(original, direct)
    setattr(cls, _Own.ATTRIBUTE, kept)
    found = weakref.ref(kept)

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        own: Any = found()
        kind = _kinds.get(self, {}).get(own.run)
        if kind is _TUNES:
            return own.direct(self, *args, **kwargs)
        undecided = kind is None and (len(self.configs) > 1 or generates_configs(self))
        if undecided and not kwargs.get("warmup"):
            call = call_of_this_thread()
            if call is not None:
                return _first(call, self, own.run, args, kwargs)
        return own.run(self, *args, **kwargs)

    functools.update_wrapper(run, original, updated=())
    del vars(run)["__wrapped__"]
    return run


def _first(
    call: ContextualCall, kernel: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    stop_watching(kernel)  # of a subclass of this one, which has passed it on to here
    kinds = _kinds.setdefault(kernel, {})
    watch = _Watch(kernel)
    _watching.stack.append(watch)
    try:
        result = original(kernel, *args, **kwargs)
    except _Stopped as stopped:
        if stopped.watch is not watch:
            raise
        kinds[original] = _TUNES
    finally:
        chose = watch.end()
        if watch.reached:
            kinds[original] = _PASSES_ON
    if kinds.get(original) is _TUNES:
        return call.launch(kernel, original, args, kwargs)
    if not watch.reached:
        if chose:
            kinds[original] = _STANDS_ALONE
        _say(kernel)
    return result


def _say(kernel: Any) -> None:
    kind = type(kernel)
    if kind in _said:
        return
    _said.add(kind)
    warnings.warn(
        f"disttune: kernel '{kernel_name(kernel)}': {kind.__qualname__}.run made a launch without "
        "going on to Autotuner.run and without tuning by itself; contextual calls leave such "
        "launches as they are",
        _core.DisttuneWarning,
        stacklevel=4,
    )
