"""``autotune``: the decorator for host launchers, and the cold parts of the object it makes."""

from __future__ import annotations

import copy
import functools
import pickle
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _core
from ._guard import GuardPlan
from ._identity import identity
from ._key import DeclaredKey
from ._options import check_options, only_starts_work
from ._parameters import Parameters
from ._signature import by_position
from ._torch_device import stream_of

__all__ = ["autotune", "forget_choices_of_this_rank", "importable_name", "private_copy"]

_all_tuned: weakref.WeakSet[_core.Tuned] = weakref.WeakSet()


def autotune(
    config_space: Iterable[Mapping[str, Any]],
    key_fn: Callable[..., Any] | DeclaredKey | None,
    prune_fn: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], _core.Tuned]:
    """Tune a host launcher: for each key the fastest entry of a space is found once, and kept.

    Parameters
    ----------
    config_space
        The candidates, mappings from parameter names of the function to values; entry 0 is the
        default.
    key_fn
        ``key_fn(*args, **kwargs)`` returns what decides the choice (shapes, dtypes, rank count …):
        numbers, strings, dtypes, and tuples, lists, dicts and sets of these. Or a declared key
        (`disttune.key`), or ``None`` where one choice serves all calls.
    prune_fn
        ``prune_fn(entry, *args, **kwargs)``: true keeps an entry for these arguments.
    **options
        strategy : str
            ``"fixed"`` (every candidate, equal counts) or another of `disttune.strategies()`.
        warmup, repeat : int
            Untimed and timed runs a candidate (5 and 10).
        check : callable or Check
            A reference that returns the right result; candidates that are wrong never win.
        restore, reset : list of str
            Parameters to put back, or to zero, before every run of a tuning.
        prepare : callable
            ``prepare(entry, *args, **kwargs)`` compiles an entry ahead, called in parallel.
        version, name : str
            With both given they alone are the function's identity, and records are shared with a
            C++ launcher of the same name and version.
        timer : str or callable
            ``"auto"``, ``"device"``, ``"host"``, ``"graph"``, or a clock: a callable that returns
            nanoseconds now; a sample is the difference of two readings.
        cache : str
            ``"hot"`` or ``"cold"``: whether the device's cache is flushed before timed runs.
        store : path
            A folder for the records instead of ``~/.triton_dist/autotune``.
        ignore : list of str
            Captured names and global constants that do not count for the function's identity.

    Returns
    -------
    callable
        The decorator. What it makes is called like the function, without the tuned arguments, and
        takes the keywords ``autotune=True``, ``autotune_verbose=False``,
        ``autotune_allow_arg_overwrite=False`` and ``autotune_pg=None`` besides.

    Raises
    ------
    TypeError, ValueError
        An option, an entry or a name that cannot be right. Most are found at decoration.
    """
    checked = check_options(options)
    entries = _entries(config_space)
    _check_key_fn(key_fn)
    if prune_fn is not None and not callable(prune_fn):
        raise TypeError(f"disttune: autotune(prune_fn={prune_fn!r}): a callable is wanted")

    def decorate(fn: Callable[..., Any]) -> _core.Tuned:
        return _make(fn, entries, key_fn, prune_fn, checked)

    return decorate


def _check_key_fn(key_fn: Any) -> None:
    if key_fn is None or isinstance(key_fn, DeclaredKey) or callable(key_fn):
        return
    hint = ""
    if isinstance(key_fn, (str, list, tuple)):
        fields = (key_fn,) if isinstance(key_fn, str) else tuple(key_fn)
        hint = f"; to name parameters write disttune.key({', '.join(map(repr, fields))})"
    raise TypeError(f"disttune: autotune(key_fn={key_fn!r}): a callable or None is wanted{hint}")


def _entries(config_space: Any) -> list[dict[str, Any]]:
    if isinstance(config_space, (str, bytes, Mapping)) or not isinstance(config_space, Iterable):
        hint = " (call it: config_space())" if callable(config_space) else ""
        raise TypeError(
            "disttune: autotune(config_space=…): a list of mappings from parameter names to values "
            f"is wanted, not {type(config_space).__qualname__}{hint}"
        )
    entries = []
    for index, entry in enumerate(config_space):
        if not isinstance(entry, Mapping):
            raise TypeError(
                f"disttune: config_space[{index}] is a {type(entry).__qualname__}, not a mapping; "
                'write {"name of the parameter": value}'
            )
        for name in entry:
            if not isinstance(name, str):
                raise TypeError(
                    f"disttune: config_space[{index}]: names of parameters are strings, "
                    f"not {name!r}"
                )
        entries.append(dict(entry))
    if not entries:
        raise ValueError("disttune: the config_space is empty: there is nothing to choose from")
    return entries


def _make(
    fn: Any,
    entries: list[dict[str, Any]],
    key_fn: Any,
    prune_fn: Any,
    options: dict[str, Any],
) -> _core.Tuned:
    if not callable(fn):
        raise TypeError(f"disttune: autotune decorates functions, not {fn!r}")
    if only_starts_work(fn):
        raise TypeError(
            f"disttune: {fn!r} only starts its work when it is awaited or iterated: it cannot be "
            "timed; decorate the function that does the work"
        )
    parameters = Parameters(fn, options.get("name"), entries)
    parameters.check_entries(entries)
    hooks = _Hooks(fn, key_fn, parameters, entries, options)
    timer = options.get("timer")
    clock = timer if callable(timer) else None
    tuned = _core.make_tuned(
        fn=fn,
        name=parameters.name,
        module=getattr(fn, "__module__", None) or "",
        key_fn=key_fn,
        key_fields=parameters.key_fields(key_fn),
        prune_fn=prune_fn,
        entries=entries,
        positional=parameters.positional,
        hooks=hooks,
        clock=clock,
        options={
            "strategy": options.get("strategy"),
            "warmup": options.get("warmup"),
            "repeat": options.get("repeat"),
            "timer": None if clock is not None else timer,
            "cache": options.get("cache"),
            "store": options.get("store"),
            "checked": options.get("check") is not None,
            "clock_name": getattr(clock, "__name__", type(clock).__name__),
        },
    )
    functools.update_wrapper(tuned, fn)
    _all_tuned.add(tuned)
    return tuned


def forget_choices_of_this_rank(names: Iterable[str]) -> None:
    """Let the next calls of functions read their records again, where no group has chosen."""
    changed = set(names)
    for tuned in list(_all_tuned):
        if tuned.name in changed:
            tuned._forget_lone_choices()


class _Hooks:
    """The parts of a cold call that are written in Python; asked for by name from the core."""

    def __init__(
        self,
        fn: Any,
        key_fn: Any,
        parameters: Parameters,
        entries: list[dict[str, Any]],
        options: dict[str, Any],
    ) -> None:
        self._fn = fn
        self._key_fn = key_fn
        self._parameters = parameters
        self._options = options
        #: The distinct sets of names that entries set, with those that a tuning below sets.
        self._names = list(dict.fromkeys((*entry, *parameters.below) for entry in entries))
        plan = GuardPlan(
            fn, options.get("check"), options.get("restore", ()), options.get("reset", ())
        )
        self.guarded = plan.needed
        self.guard = plan.begin
        self.prepare = options.get("prepare")
        self.can_prepare = self.prepare is not None
        self.stream = stream_of

    def identity(self) -> dict[str, str]:
        """Who the function is; asked once, at the first miss."""
        options = self._options
        return identity(
            self._fn,
            self._key_fn,
            options.get("version"),
            options.get("name"),
            options.get("ignore", ()),
        )

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise TypeError for a call that no candidate could make."""
        signature = self._parameters.signature
        if signature is None:
            return
        given = {*by_position(signature)[: len(args)], *kwargs}
        problem: TypeError | None = None
        for names in self._names:
            try:
                signature.bind(
                    *args, **kwargs, **{name: None for name in names if name not in given}
                )
            except TypeError as error:
                problem = problem or error
            else:
                return
        raise TypeError(f"{self._parameters.name}() {problem}")


def private_copy(value: Any) -> Any:
    """Copy a candidate's value, so that what a launcher does to it stays its own.

    A value that cannot be copied deeply is copied flat, and one that cannot be copied at all is
    passed as it is. Functions (a configuration's ``pre_hook``) are never copied.
    """
    memo: dict[int, Any] = {}
    try:
        configs = list(_configurations(value, set()))
        for config in configs:
            if config.pre_hook is not None:
                memo[id(config.pre_hook)] = config.pre_hook
        for config in configs:
            _keep_attributes(config, copy.deepcopy(config, memo), memo)
        return copy.deepcopy(value, memo)
    except Exception:
        try:
            twin = copy.copy(value)
            if _is_configuration(value):
                _keep_attributes(value, twin, None)
            return twin
        except Exception:
            return value


def _is_configuration(value: Any) -> bool:
    return hasattr(value, "pre_hook") and isinstance(getattr(value, "__dict__", None), dict)


def _configurations(value: Any, seen: set[int]) -> Iterator[Any]:
    """Find the configurations in a value of an entry."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _configurations(item, seen)
    elif _is_configuration(value):
        yield value


def _keep_attributes(config: Any, twin: Any, memo: dict[int, Any] | None) -> None:
    """Give a copy the attributes that Triton's ``__setstate__``, which knows its own, left out."""
    if twin is config:
        return
    for name, value in vars(config).items():
        if name not in vars(twin):
            vars(twin)[name] = value if memo is None else copy.deepcopy(value, memo)


def importable_name(tuned: _core.Tuned) -> str:
    """Return the name under which a tuned function is pickled.

    Raises
    ------
    pickle.PicklingError
        It cannot be found again by its module and qualified name.
    """
    module = getattr(tuned, "__module__", None)
    qualname = getattr(tuned, "__qualname__", None) or tuned.name
    found: Any = sys.modules.get(module) if module else None
    for part in str(qualname).split("."):
        found = getattr(found, part, None)
    if found is not tuned:
        raise pickle.PicklingError(
            f"disttune: the tuned function {module}.{qualname} cannot be pickled: it is pickled by "
            "its name, like a function, and is not found under it; define it at the top level of "
            "a module"
        )
    return str(qualname)
