"""Interception: while a contextual call is active, launches of Triton's autotuners come to it.

Every launch of an autotuned kernel goes through ``run`` of its class. It is replaced on Triton's
``Autotuner`` and on every subclass that has a ``run`` of its own, and put back when the call ends,
however it ends. Nothing of Triton is imported here. The replacing is done by the compiled part
(active_call.cpp), which also makes decided launches itself (fast_launch.cpp); the call's object is
made when a launch needs it.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core
from ._contextual_subclass import meeting_in_subclass, stop_watching

if TYPE_CHECKING:
    from ._contextual_call import ContextualCall

__all__ = ["refuse", "watch_new_classes"]

_lock = threading.Lock()


def refuse(name: str) -> NoReturn:
    """Raise NestedContext: another call is active, in this thread or in another one."""
    active = _core.active_call()
    other, owner = active if active is not None else (None, 0)
    where = "inside" if owner == threading.get_ident() else "while another thread is in"
    raise _core.NestedContext(
        f"disttune: contextual call '{name}' {where} contextual call "
        f"'{getattr(other, 'name', 'another')}'; only one can be active: call one after the other"
    )


def watch_new_classes() -> None:
    """Add the classes that are not watched yet; some are made while a call is active."""
    module = sys.modules.get("triton.runtime.autotuner")
    top = getattr(module, "Autotuner", None)
    if not isinstance(top, type):
        return
    watched = _core.watched_classes()
    for cls in _with_subclasses(top):
        if cls in watched:
            continue
        own = cls.__dict__.get("run")
        ours = None if own is None else _intercepting(own)
        if ours is not None and cls is not top:
            ours = meeting_in_subclass(cls, own, ours, _call_of_this_thread)
        _core.watch_class(cls, own, ours)


def _with_subclasses(top: type) -> Iterator[type]:
    seen: set[type] = {top}
    waiting: list[type] = [top]
    below: type
    while waiting:
        cls = waiting.pop()
        yield cls
        for below in cls.__subclasses__():
            if below not in seen:
                seen.add(below)
                waiting.append(below)


def _intercepting(original: Any) -> Any:
    """Make what stands in the place of ``run``: known launches go their short way in there."""

    def met(self: Any, *args: Any, **kwargs: Any) -> Any:
        stop_watching(self)
        call = None if kwargs.get("warmup") else _call_of_this_thread()
        if call is None:
            return original(self, *args, **kwargs)
        return call.launch(self, original, args, kwargs)

    return functools.update_wrapper(_core.InterceptedRun(original, met), original, updated=())


def _call_of_this_thread() -> ContextualCall | None:
    """Return the active call where this thread's launches are its own.

    Those are its thread's, and those of threads that Python did not start (autograd's), which only
    work for it.
    """
    active = _core.active_call()
    if active is None:
        return None
    outer, owner = active
    if threading.get_ident() != owner and not isinstance(
        threading.current_thread(), threading._DummyThread
    ):
        return None
    with _lock:
        call: ContextualCall | None = _core.made_call()
        if call is None:
            call = outer.new_call()
            _core.keep_call(call)
        return call


# A forked child has the patches of its parent's call, but not the call.
os.register_at_fork(after_in_child=_core.forget_call)
