"""Interception: while a contextual call is active, launches of Triton's autotuners come to it.

Every launch of an autotuned kernel goes through ``run`` of its class. It is replaced on Triton's
``Autotuner`` and on every subclass that has a ``run`` of its own, and put back when the call ends,
however it ends. Nothing of Triton is imported here.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from ._contextual_call import ContextualCall

__all__ = ["enter", "leave", "tuner_class", "watch_new_classes"]

_lock = threading.Lock()
_active: ContextualCall | None = None
#: Class, its own ``run``, ours.
_replaced: list[tuple[type, Any, Any]] = []


def enter(call: ContextualCall) -> None:
    """Make a call the active one and intercept launches.

    Raises
    ------
    NestedContext
        Another call is active, in this thread or in another one.
    """
    global _active
    with _lock:
        if _active is not None:
            where = "inside" if _active.owner == call.owner else "while another thread is in"
            raise _core.NestedContext(
                f"disttune: contextual call '{call.name}' {where} contextual call "
                f"'{_active.name}'; only one can be active: call one after the other"
            )
        _active = call
        try:
            watch_new_classes()
        except BaseException:
            _put_back()
            _active = None
            raise
        _core.intercept(call.owner, call.seat)


def leave() -> None:
    """Put everything back."""
    global _active
    with _lock:
        _core.intercept()
        _active = None
        _put_back()


def _put_back() -> None:
    while _replaced:
        cls, original, ours = _replaced.pop()
        # Whoever wrapped ours meanwhile still reaches Triton's through it.
        if cls.__dict__.get("run") is ours:
            cls.run = original  # type: ignore[attr-defined]


def tuner_class() -> type | None:
    """Return Triton's ``Autotuner``, if Triton has been imported."""
    module = sys.modules.get("triton.runtime.autotuner")
    found = getattr(module, "Autotuner", None)
    return found if isinstance(found, type) else None


def watch_new_classes() -> None:
    """Replace ``run`` where it is not ours yet; classes may be made while a call is active."""
    top = tuner_class()
    if top is None:
        return
    for cls in _with_subclasses(top):
        own = cls.__dict__.get("run")
        if own is None or any(own is ours for _, _, ours in _replaced):
            continue
        if cls is not top and _goes_on_to_base(own):
            continue  # the launch is met there
        ours = _intercepting(own)
        _replaced.append((cls, own, ours))
        cls.run = ours  # type: ignore[attr-defined]


def _with_subclasses(top: type) -> Iterator[type]:
    seen = {top}
    waiting = [top]
    while waiting:
        cls = waiting.pop()
        yield cls
        for below in cls.__subclasses__():
            if below not in seen:
                seen.add(below)
                waiting.append(below)


def _goes_on_to_base(run: Any) -> bool:
    """Whether a subclass's ``run`` calls its base's."""
    code = getattr(run, "__code__", None)
    return code is not None and ("super" in code.co_names or "__class__" in code.co_freevars)


def _intercepting(original: Any) -> Any:
    """Make what stands in the place of ``run``: known launches go their short way in there."""

    def met(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = _active
        if call is None or kwargs.get("warmup") or not _belongs(call):
            return original(self, *args, **kwargs)
        return call.launch(self, original, args, kwargs)

    return functools.update_wrapper(_core.InterceptedRun(original, met), original, updated=())


def _belongs(call: ContextualCall) -> bool:
    """Whether this thread's launches are the call's: its own thread's, and those of threads that
    Python did not start (autograd's), which only work for it."""
    if threading.get_ident() == call.owner:
        return True
    return isinstance(threading.current_thread(), threading._DummyThread)


def _forget() -> None:
    """After a fork the child has the parent's patches, but not its call."""
    global _active, _lock
    _lock = threading.Lock()
    _core.intercept()
    _active = None
    _put_back()


os.register_at_fork(after_in_child=_forget)
