"""The parameters of a callable: those that it takes, and those of what it wraps.

A wrapper (``functools.wraps``) may supply, drop or unpack arguments of what it wraps: the wrapped
signature names parameters, and only a callable's own says what it refuses.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from . import _core

__all__ = ["arguments_by_name", "by_position", "own_signature", "shown_signature", "tuned_below"]

_PACKED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def own_signature(fn: Any) -> inspect.Signature | None:
    """Return what a callable takes itself; a tuned function takes what its launcher does.

    Nothing for some functions that are written in C.
    """
    return _signature(_launcher(fn), follow_wrapped=False)


def shown_signature(fn: Any) -> inspect.Signature | None:
    """Return the signature that names a callable's parameters.

    That of the wrapped function where a wrapper takes ``*args`` or ``**kwargs`` and names nothing
    else than the first parameters of what it wraps, else the callable's own.
    """
    shown = None
    for own in reversed(list(_down(fn))):
        if shown is None or not _begins(own, shown):
            shown = own
    return shown


def _launcher(fn: Any) -> Any:
    while isinstance(fn, _core.Tuned):
        fn = fn.fn
    return fn


def _signature(fn: Any, follow_wrapped: bool) -> inspect.Signature | None:
    try:
        return inspect.signature(fn, follow_wrapped=follow_wrapped)
    except (TypeError, ValueError):
        return None


def _down(fn: Any) -> Iterator[inspect.Signature]:
    """Give the signatures of a callable and of what it wraps, while they leave parameters open."""
    for _ in range(64):
        fn = _launcher(fn)
        own = own_signature(fn)
        if own is None:
            return
        yield own
        if not any(p.kind in _PACKED for p in own.parameters.values()):
            return
        if isinstance(fn, (functools.partial, types.MethodType)):
            break
        if "__wrapped__" not in getattr(fn, "__dict__", {}):
            break
        fn = fn.__wrapped__
    # Arguments that are bound already are known to `inspect` alone.
    if isinstance(fn, functools.partial):
        fn = functools.partial(fn.func, *fn.args, **fn.keywords)  # no __wrapped__ of its own
    followed = _signature(fn, follow_wrapped=True)
    if followed is not None:
        yield followed


def _begins(own: inspect.Signature, shown: inspect.Signature) -> bool:
    named = [p.name for p in own.parameters.values() if p.kind not in _PACKED]
    return len(named) < len(own.parameters) and named == list(shown.parameters)[: len(named)]


def by_position(signature: inspect.Signature | None) -> tuple[str, ...]:
    """Return the names of the parameters that can be given by position, in order."""
    parameters = signature.parameters.values() if signature is not None else ()
    return tuple(p.name for p in parameters if p.kind in _BY_POSITION)


def arguments_by_name(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Name the arguments of a call as far as they have names; refuses nothing.

    The names of ``*args`` and ``**kwargs`` stand for all that they take.
    """
    parameters = signature.parameters.values() if signature is not None else ()
    positional = by_position(signature)
    named: dict[str, Any] = {
        p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty
    }
    named.update(zip(positional, args, strict=False))
    named.update(kwargs)
    by_keyword = {p.name for p in parameters if p.kind in _BY_KEYWORD}
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            named[parameter.name] = args[len(positional) :]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named[parameter.name] = {k: v for k, v in kwargs.items() if k not in by_keyword}
    return named


def tuned_below(fn: Any) -> frozenset[str]:
    """Return the names that a tuned function's own tunings set; none for other callables."""
    names: set[str] = set()
    while isinstance(fn, _core.Tuned):
        names.update(name for entry in fn.config_space for name in entry)
        fn = fn.fn
    return frozenset(names)
