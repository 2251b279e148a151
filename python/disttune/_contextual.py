"""``contextual_autotune``: the decorator for functions with autotuned kernels inside."""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import _core
from ._contextual_call import ContextualCall
from ._contextual_patch import refuse, watch_new_classes
from ._core import ContextualAutoTuner
from ._groups import LOCAL, default_group_is_set, resolve_group
from ._options import checked_clock, only_starts_work

__all__ = ["ContextualAutoTuner", "contextual_autotune"]

_CACHES = ("cold", "hot")
_TIMERS = ("auto", "device", "host")
_OPTIONS = ("group", "cache", "strategy", "timer", "persist")
_NAMES = ("is_dist", "n_repeat", "n_warmup", *_OPTIONS)


class _NotGiven(int):
    """A default that the environment comes before."""


_N_REPEAT = _NotGiven(5)
_N_WARMUP = _NotGiven(3)


def contextual_autotune(
    is_dist: bool = False, n_repeat: int = _N_REPEAT, n_warmup: int = _N_WARMUP, **options: Any
) -> Callable[[Callable[..., Any]], ContextualAutoTuner]:
    """Tune the autotuned kernels inside a function, during complete runs of it.

    A call runs the function again and again, and each launch of a ``triton.autotune`` kernel in it
    takes one step of that kernel's tuning, with the arguments of that launch. When all kernels are
    decided the function runs once more; that run's result is the call's. The choices lie in the
    kernels' own caches, so later launches use them, inside such calls and outside. When there is
    nothing to tune a call is one run.

    Parameters
    ----------
    is_dist
        Decide together with all ranks of the group: a candidate's time is that of its slowest rank.
        All ranks make the call together and launch the same kernels in it.
    n_repeat
        Timed launches a candidate, at least 1. Not given: REPEAT of the environment, else 5.
    n_warmup
        Untimed launches a candidate before that. Not given: WARMUP of the environment, else 3.
    **options
        group : torch.distributed group or ProcessGroup
            The ranks that decide together with ``is_dist=True``; the world by default.
        cache : str
            ``"cold"`` (the device's cache is flushed before each timed launch) or ``"hot"``. Not
            given: CACHE of the environment, else cold.
        strategy : str
            ``"fixed"`` (every candidate, equal counts) or another of `disttune.strategies()`.
        timer : str or callable
            ``"auto"``, ``"device"``, ``"host"``, or a clock: a callable that returns nanoseconds
            now; a sample is the difference of two readings. Not given: TIMER of the environment,
            else auto.
        persist : bool
            Keep choices in the store too, so that another process needs one run.

    Returns
    -------
    callable
        The decorator, for functions, lambdas and methods.

    Raises
    ------
    TypeError, ValueError
        At decoration: an option that is unknown or cannot be right. At a call with
        ``is_dist=True``: there is no group.
    NestedContext
        At a call inside, or beside, another contextual call.
    NoValidConfig
        At a call: no configuration of some kernel works.
    """
    checked = _checked(is_dist, n_repeat, n_warmup, options)

    def decorate(fn: Callable[..., Any]) -> ContextualAutoTuner:
        _refuse_what_is_no_function(fn)
        name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
        tuner = ContextualAutoTuner(
            fn, _SlowPart(str(name or type(fn).__name__), checked), checked["is_dist"]
        )
        functools.update_wrapper(tuner, fn)
        return tuner

    return decorate


def _checked(is_dist: Any, n_repeat: Any, n_warmup: Any, options: dict[str, Any]) -> dict[str, Any]:
    if callable(is_dist):
        raise TypeError(
            "disttune: contextual_autotune takes options, then the function: write "
            "@contextual_autotune()"
        )
    _flag("is_dist", is_dist)
    for name in options:
        if name not in _OPTIONS:
            close = difflib.get_close_matches(name, _NAMES)
            hint = " (did you mean " + " or ".join(map(repr, close)) + "?)" if close else ""
            raise TypeError(
                f"disttune: contextual_autotune() has no option {name!r}{hint}. "
                f"Options: {', '.join(_NAMES)}"
            )
    group = options.get("group")
    if group is not None and not is_dist:
        raise ValueError(
            "disttune: contextual_autotune(group=…) names the ranks that decide together: it needs "
            "is_dist=True"
        )
    return {
        "is_dist": is_dist,
        "group": group,
        "n_repeat": _count("n_repeat", n_repeat, 1),
        "n_warmup": _count("n_warmup", n_warmup, 0),
        "cache": _one_of("cache", options.get("cache"), _CACHES),
        "strategy": _one_of("strategy", options.get("strategy"), tuple(_core.strategies())),
        "persist": options.get("persist") is not None and _flag("persist", options["persist"]),
        "timer": _timer(options.get("timer")),
    }


def _timer(value: Any) -> Any:
    if callable(value):
        return checked_clock(value, f"contextual_autotune(timer={value!r})")
    return _one_of("timer", value, _TIMERS)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"disttune: contextual_autotune({name}={value!r}): True or False")
    return value


def _count(name: str, value: Any, least: int) -> int | None:
    if value is None or isinstance(value, _NotGiven):
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"disttune: contextual_autotune({name}={value!r}): a whole number is wanted"
        )
    if not least <= value <= 65535:
        raise ValueError(f"disttune: contextual_autotune({name}={value!r}): from {least} to 65535")
    return value


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or value not in known:
        raise (ValueError if isinstance(value, str) else TypeError)(
            f"disttune: contextual_autotune({name}={value!r}): one of {', '.join(map(repr, known))}"
        )
    return value


def _refuse_what_is_no_function(fn: Any) -> None:
    if isinstance(fn, (staticmethod, classmethod)):
        raise TypeError(
            f"disttune: contextual_autotune under @{type(fn).__name__}: put "
            f"@{type(fn).__name__} above it"
        )
    if not callable(fn):
        raise TypeError(f"disttune: contextual_autotune decorates functions, not {fn!r}")
    if only_starts_work(fn):
        raise TypeError(
            f"disttune: {fn!r} only starts its work when it is awaited or iterated; decorate "
            "the function that does the work"
        )


class _SlowPart:
    """What a contextual function does beside making one pass of decided launches.

    The compiled part (outer_function.cpp, active_call.cpp) calls these by their names.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self._options = options

    find_classes = staticmethod(watch_new_classes)

    def refuse(self) -> NoReturn:
        """Raise NestedContext: another call is active."""
        refuse(self.name)

    def seat(self) -> _core.ProcessGroup | None:
        """Return the group that decides together; none where every rank decides alone."""
        if not self._options["is_dist"]:
            return None
        group = self._options["group"]
        if group is None and not default_group_is_set() and not _distributed_is_ready():
            raise ValueError(
                f"disttune: contextual call '{self.name}' has is_dist=True, but torch.distributed "
                "is not initialised: call torch.distributed.init_process_group first, give group=, "
                "or use is_dist=False"
            )
        return None if group is LOCAL else resolve_group(group)

    def new_call(self) -> ContextualCall:
        """Make the object of a call that is under way; asked for by its first slow launch."""
        return ContextualCall(self.name, self._options, self.seat())

    @staticmethod
    def goes_on_after(error: BaseException, seat: _core.ProcessGroup | None) -> bool:
        """Whether the call is completed although its first pass raised; tell the ranks if not.

        It is where a kernel for which nothing works, here or maybe elsewhere, has raised: the ranks
        end the call together then, with the same error.
        """
        call = _core.made_call()
        if call is None:
            if seat is not None:
                _core.abandon_call(seat, f"{type(error).__name__}: {error}")
            return False
        if (
            isinstance(error, Exception)
            and not isinstance(error, _core.DeviceLost)
            and call.settled_by_complete()
        ):
            return True
        call.failed(error)
        return False

    @staticmethod
    def complete(
        result: list[Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make the other passes."""
        return _core.made_call().complete(functools.partial(fn, *args, **kwargs), result)


def _distributed_is_ready() -> bool:
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed is not None and distributed.is_available() and distributed.is_initialized()
