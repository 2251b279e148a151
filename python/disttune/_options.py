"""The options of ``autotune``: which there are, and what they accept."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import _core
from ._check import Check

__all__ = [
    "CALL_KEYWORDS",
    "OPTIONS",
    "check_options",
    "checked_clock",
    "checked_folder",
    "only_starts_work",
]

#: Keywords of a call, taken out before the function sees them.
CALL_KEYWORDS = (
    "autotune",
    "autotune_verbose",
    "autotune_allow_arg_overwrite",
    "autotune_pg",
)
#: Options that other tuners, or other places of this one, use for the same thing.
_ELSEWHERE = {
    "configs": "config_space",
    "space": "config_space",
    "key": "key_fn",
    "prune": "prune_fn",
    "prune_configs_by": "prune_fn",
    "warmups": "warmup",
    "n_warmup": "warmup",
    "num_warmup": "warmup",
    "rep": "repeat",
    "reps": "repeat",
    "repeats": "repeat",
    "n_repeat": "repeat",
    "clock": "timer",
    "reset_to_zero": "reset",
    "restore_value": "restore",
    "cache_dir": "store",
    "folder": "store",
    "reference": "check",
}
_NOT_HERE = {
    "is_dist": "contextual_autotune takes it; here the group of the call decides (autotune_pg)",
    "group": "it belongs to the call: f(…, autotune_pg=group)",
    "pg": "it belongs to the call: f(…, autotune_pg=group)",
    "verbose": "it belongs to the call: f(…, autotune_verbose=True)",
    "persist": "it is an option of contextual_autotune; choices of autotune are always stored",
    **{
        name: f"it belongs to the call: f(…, {name}=…)"
        for name in ("autotune_verbose", "autotune_allow_arg_overwrite", "autotune_pg")
    },
}


def check_options(given: dict[str, Any]) -> dict[str, Any]:
    """Refuse unknown options and values that an option does not accept."""
    for name in given:
        if name not in OPTIONS:
            raise TypeError(_unknown(name))
    return {name: OPTIONS[name](name, value) for name, value in given.items() if value is not None}


def _unknown(name: str) -> str:
    text = f"disttune: autotune() has no option {name!r}"
    if name in _ELSEWHERE:
        text += f" (it is {_ELSEWHERE[name]!r} here)"
    elif name in _NOT_HERE:
        text += f": {_NOT_HERE[name]}"
    else:
        close = difflib.get_close_matches(name, [*OPTIONS, "config_space", "key_fn", "prune_fn"])
        if close:
            text += " (did you mean " + " or ".join(map(repr, close)) + "?)"
    return f"{text}. Options: {', '.join(OPTIONS)}"


def _wrong(name: str, value: Any, wanted: str, call: str = "autotune") -> str:
    return f"disttune: {call}({name}={value!r}): {wanted}"


def _count(least: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(_wrong(name, value, "a whole number is wanted"))
        if not least <= value <= 65535:
            raise ValueError(_wrong(name, value, f"from {least} to 65535"))
        return value

    return check


def _one_of(names: Callable[[], Iterable[str]]) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        known = list(names())
        if not isinstance(value, str):
            raise TypeError(_wrong(name, value, f"one of {', '.join(map(repr, known))}"))
        if value not in known:
            close = difflib.get_close_matches(value, known)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(_wrong(name, value, f"one of {', '.join(map(repr, known))}{hint}"))
        return value

    return check


_CLOCKS_IN_SECONDS = (
    time.monotonic, time.perf_counter, time.process_time, time.thread_time, time.time,
)  # fmt: skip


_CLOCKS_IN_NANOSECONDS = (
    time.monotonic_ns, time.perf_counter_ns, time.process_time_ns, time.thread_time_ns,
    time.time_ns,
)  # fmt: skip


def checked_clock(clock: Callable[[], Any], where: str) -> Callable[[], Any]:
    """Return a clock that gives numbers; ValueError for one of Python's that gives seconds."""
    if clock in _CLOCKS_IN_SECONDS:
        name = getattr(clock, "__name__", "")
        raise ValueError(
            f"disttune: {where}: time.{name} gives seconds, and a clock gives nanoseconds: use "
            f"time.{name}_ns"
        )
    if clock in _CLOCKS_IN_NANOSECONDS:
        return clock

    def now() -> Any:
        reading = clock()
        whole = None
        if type(reading) is int or hasattr(type(reading), "__index__"):
            whole = operator.index(reading)
        elif isinstance(reading, float) and math.isfinite(reading):
            whole = int(reading)
        if whole is not None:
            if -(2**63) <= whole < 2**63:
                return reading
            raise OverflowError(
                f"disttune: {where}: the clock returned a number of {whole.bit_length()} bits; "
                "nanoseconds have 63"
            )
        raise TypeError(
            f"disttune: {where}: the clock returned {reading!r}; a whole number of nanoseconds is "
            "wanted"
        )

    now.__name__ = getattr(clock, "__name__", type(clock).__name__)
    return now


def _timer(name: str, value: Any) -> Any:
    if callable(value):
        return checked_clock(value, f"{name}={value!r}")
    return _one_of(lambda: ("auto", "device", "host", "graph"))(name, value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = (value,)
    try:
        names = tuple(value)
    except TypeError:
        raise TypeError(_wrong(name, value, "a list of names is wanted")) from None
    if not all(isinstance(item, str) for item in names):
        raise TypeError(_wrong(name, value, "a list of names is wanted"))
    return names


def _unicode(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(_wrong(name, value, "it is not valid Unicode")) from None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(_wrong(name, value, "a text is wanted"))
    _unicode(name, value)
    if not value:
        raise ValueError(_wrong(name, value, "it must not be empty"))
    return value


def checked_folder(name: str, value: Any, call: str = "autotune") -> str:
    """Return a folder as a shell would have read it; TypeError for what is none."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(_wrong(name, value, "a folder is wanted", call))
    folder = os.fsdecode(os.fspath(value))
    _unicode(name, folder)
    if not folder:
        raise ValueError(_wrong(name, value, "it must not be empty", call))
    if "\0" in folder:
        raise ValueError(_wrong(name, value, "a folder's name cannot contain NUL", call))
    return os.path.expanduser(folder)


def only_starts_work(fn: Any) -> bool:
    """Whether a call gives an object that does the work when it is awaited or iterated."""
    return any(
        inspect.iscoroutinefunction(code)
        or inspect.isgeneratorfunction(code)
        or inspect.isasyncgenfunction(code)
        for code in (fn, inspect.getattr_static(type(fn), "__call__", None))
    )


def _callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise TypeError(_wrong(name, value, "a callable is wanted"))
    return value


def _check(name: str, value: Any) -> Any:
    if isinstance(value, Check):
        return value
    if not callable(value):
        raise TypeError(_wrong(name, value, "a reference function or disttune.Check is wanted"))
    return Check(value)


#: Option to what checks, and normalises, its value. ``None`` is every option's "not given".
OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    "strategy": _one_of(_core.strategies),
    "warmup": _count(0),
    "repeat": _count(1),
    "check": _check,
    "restore": _names,
    "reset": _names,
    "prepare": _callable,
    "version": _text,
    "timer": _timer,
    "cache": _one_of(lambda: ("hot", "cold")),
    "store": checked_folder,
    "name": _text,
    "ignore": _names,
}
