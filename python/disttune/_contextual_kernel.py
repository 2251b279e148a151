"""What contextual tuning knows of Triton's autotuned kernels.

Triton's versions and forks differ; what differs is found by looking at attributes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _core
from ._identity import digest_of
from ._signature import shown_signature

#: How deep what a configuration holds is looked into.
_DEEPEST = 8

__all__ = [
    "Alike",
    "all_arguments",
    "answers_from_cache",
    "described_configs",
    "described_key",
    "generates_configs",
    "hook_argument",
    "kernel_identity",
    "kernel_module",
    "kernel_name",
    "launch_key",
    "listener_is_set",
    "listeners",
    "merged_arguments",
    "nothing_left",
    "pruned_configs",
    "reset_arguments",
    "tell_tuned",
]


def kernel_name(kernel: Any) -> str:
    """Name the function at the bottom, through heuristics and other autotuners."""
    return str(getattr(_function(kernel), "__name__", None) or type(kernel).__name__)


def kernel_module(kernel: Any) -> str:
    """Name the module of the function at the bottom."""
    return str(getattr(_function(kernel), "__module__", None) or "")


#: By what makes tuners alike: the lists that those of a call choose from, in the order met.
Alike = dict[str, dict[int, str]]
_places: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def kernel_identity(kernel: Any, alike: Alike) -> Callable[[], dict[str, str]]:
    """Return what says which kernel it is, for records.

    Its source and what that reaches, what its key names, and what lies between it and the function:
    heuristics, other autotuners. Tuners of one call that are alike in all this and choose from
    different lists are numbered as they are met; a list alone says nothing, for it may change.
    """

    def identity() -> dict[str, str]:
        name, _ = digest_of(_function(kernel))
        _, digest = digest_of(kernel)
        chain = "; ".join(_chosen_by(kernel))
        parts = {"function": name, "digest": digest, "chosen by": chain}
        place = (
            0
            if generates_configs(kernel)
            else _place_among(kernel, alike.setdefault(str(parts), {}))
        )
        return {**parts, "#": str(place + 1)} if place else parts

    return identity


def _chosen_by(kernel: Any) -> Iterator[str]:
    """Say by what a tuner, and each one below it, and its heuristics, choose."""
    for _ in range(64):
        if inspect.isfunction(kernel):
            return
        found = getattr(kernel, "keys" if hasattr(kernel, "configs") else "values", ())
        if isinstance(found, (list, tuple, Mapping)):
            names: Iterable[Any] = found  # what a heuristic does is in the digest
            if isinstance(found, Mapping) and hasattr(kernel, "configs"):
                names = found.items()
            yield f"{type(kernel).__name__} by {', '.join(map(str, names))}"
        kernel = getattr(kernel, "fn", None)


def _place_among(kernel: Any, lists: dict[int, str]) -> int:
    text = str(_core.describe(described_configs(kernel, kernel.configs), True))
    place = _places.get(kernel)
    if place is None:
        same = (i for i, known in lists.items() if known == text)
        free = next(i for i in range(len(lists) + 1) if i not in lists)
        place = _places[kernel] = next(same, free)
    lists[place] = text
    return place


def _function(kernel: Any) -> Any:
    found = getattr(kernel, "base_fn", None)
    if found is not None:
        return found
    found = kernel
    for _ in range(64):
        if inspect.isfunction(found) or not hasattr(found, "fn"):
            break
        found = found.fn
    return found


def _named(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are the kernel's own, in Triton's order."""
    names = kernel.arg_names
    named = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name in names:
            named[name] = value
    return named


def launch_key(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Build the key of a launch as the kernel's class does.

    Values of the key's names that this launch has, then the dtype of every argument that has one,
    positional arguments first.
    """
    own = getattr(kernel, "generate_key_and_configs", None)
    if own is not None:
        with _nargs_kept(kernel):
            return tuple(own(*args, **kwargs))
    named = _named(kernel, args, kwargs)
    keys = kernel.keys
    if isinstance(keys, Mapping):  # axis to parameter
        keys = keys.values()
    key = [named[name] for name in keys if name in named]
    for value in named.values():
        if hasattr(value, "dtype"):
            key.append(str(value.dtype))
    # Every NaN is one: a tuple finds the same object.
    return tuple(math.nan if isinstance(x, float) and math.isnan(x) else x for x in key)


def generates_configs(kernel: Any) -> bool:
    """Whether the configurations depend on the key, so that ``kernel.configs`` says nothing yet."""
    return hasattr(kernel, "generate_key_and_configs") or isinstance(kernel.keys, Mapping)


@contextlib.contextmanager
def _nargs_kept(kernel: Any) -> Iterator[None]:
    """Put ``kernel.nargs`` back: it keeps the arguments alive, and belongs to Triton's own run."""
    had = "nargs" in vars(kernel)
    before = vars(kernel).get("nargs")
    try:
        yield
    finally:
        if had:
            kernel.nargs = before
        else:
            vars(kernel).pop("nargs", None)


def pruned_configs(
    kernel: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Return the configurations for this launch, pruned by the kernel's own functions."""
    with _nargs_kept(kernel):
        try:
            if isinstance(kernel.keys, Mapping) and not hasattr(kernel, "generate_key_and_configs"):
                found = _generated_by_run(kernel, original, args, kwargs)
            else:
                kernel.nargs = dict(zip(kernel.arg_names, args, strict=False))
                found = _prune(kernel, kwargs)
        except Exception as error:
            if type(error).__name__ != "AutotunerError":
                raise
            found = []
    return list(found)


def nothing_left(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _core.NoValidConfig:
    """Return the error of a launch whose configurations were all pruned."""
    pruned = "".join(f"\n  {config}: pruned" for config in kernel.configs)
    return _core.NoValidConfig(
        f"disttune: no valid configuration for kernel '{kernel_name(kernel)}': its pruning left "
        f"none of {len(kernel.configs)} (key {launch_key(kernel, args, kwargs)!r}){pruned}"
    )


def _prune(kernel: Any, kwargs: dict[str, Any]) -> list[Any]:
    prune = kernel.prune_configs
    signature = shown_signature(prune)
    # Some give the positional arguments along instead of setting them on the kernel.
    if signature is not None and "nargs" in signature.parameters:
        return list(prune(kwargs, kernel.nargs))
    return list(prune(kwargs))


class _Generated(BaseException):
    """Ends a tuner's own ``run`` where it would begin to measure."""

    def __init__(self, configs: list[Any]) -> None:
        super().__init__()
        self.configs = configs


def _generated_by_run(
    kernel: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Let a tuner whose ``run`` makes the configurations of a new key do so, and stop it there."""
    prune = kernel.prune_configs

    def stop(*prune_args: Any, **prune_kwargs: Any) -> Any:
        raise _Generated(list(prune(*prune_args, **prune_kwargs)))

    kernel.prune_configs = stop
    try:
        original(kernel, *args, **kwargs)
    except _Generated as generated:
        return generated.configs
    finally:
        del kernel.prune_configs
    raise _core.Error(
        f"disttune: kernel '{kernel_name(kernel)}' ({type(kernel).__qualname__}) did not prune its "
        "configurations where a new key was met; it cannot be tuned in a contextual call"
    )


def described_configs(kernel: Any, configs: list[Any]) -> list[dict[str, Any]]:
    """Describe configurations by all that they hold, also what forks of Triton add to them.

    Those that Triton tells apart and that read the same (a closure or an object counts by its type
    where it has no description) are numbered, in the order of the kernel's list.
    """
    alike: dict[str, list[Any]] = {}
    described: dict[int, dict[str, Any]] = {}
    for config in (*kernel.configs, *configs):
        if id(config) in described:
            continue
        entry = _described_config(config)
        known = alike.setdefault(str(_core.describe(entry, True)), [])
        place = next((i for i, other in enumerate(known) if _equal(config, other)), len(known))
        if place == len(known):
            known.append(config)
        described[id(config)] = {**entry, "#": place + 1} if place else entry
    return [described[id(config)] for config in configs]


def _described_config(config: Any) -> dict[str, Any]:
    entry = dict(config.all_kwargs())
    for name, value in sorted(vars(config).items()):
        if name != "kwargs" and not name.startswith("_") and value is not None:
            entry.setdefault(name, value)
    return {name: _describable(value, True) for name, value in entry.items()}


def _equal(config: Any, other: Any) -> bool:
    """Whether two configurations are one, for this Triton; those of old ones know no equality."""
    kind: Any = type(config)
    try:
        if kind.__eq__ is object.__eq__:
            return bool(vars(config) == vars(other))
        return bool(config == other)
    except Exception:  # values of the user's, which may not know what is equal
        return False


def described_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Describe a key for messages and for the comparison between ranks."""
    return tuple(_describable(value, False) for value in key)


def _describable(value: Any, entry: bool, depth: int = 0) -> Any:
    """Return a value that has a canonical text.

    What a callable has bound is part of it; any other object is described by its type, and by its
    name if it has one.
    """
    try:
        return _core.describe(value, entry)
    except TypeError:
        pass
    kind = type(value)
    if entry and depth < _DEEPEST:
        if kind in (list, tuple):
            return kind(_describable(item, entry, depth + 1) for item in value)
        if kind is dict:
            items = ((key, _describable(item, entry, depth + 1)) for key, item in value.items())
            return {_describable(key, entry, depth + 1): item for key, item in items}
        bound: list[tuple[str, Any]] = []
        if isinstance(value, functools.partial):
            bound = [("", value.func), *(("", arg) for arg in value.args)]
            bound += sorted(value.keywords.items())
        elif isinstance(value, types.MethodType):
            bound = [("", value.__func__), ("", value.__self__)]
        if bound:
            fields = [(name, _describable(held, entry, depth + 1)) for name, held in bound]
            return _core.Value.named(f"{kind.__module__}.{kind.__qualname__}", fields)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    fields = [("", f"{getattr(value, '__module__', '')}.{name}")] if name else []
    return _core.Value.named("object", [("", f"{kind.__module__}.{kind.__qualname__}"), *fields])


def merged_arguments(
    kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tuned: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put tuned values into a launch's arguments; they win over what the launch site passes.

    What was passed by position stays so.
    """
    names = kernel.arg_names
    merged = {**kwargs, **tuned}
    if len(args) > 0:
        for name in tuned:
            if name in names:
                place = names.index(name)
                if place < len(args):
                    args = (*args[:place], merged.pop(name), *args[place + 1 :])
    return args, merged


def all_arguments(
    kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tuned: dict[str, Any]
) -> dict[str, Any]:
    """Return what Triton gives to hooks: all arguments by name."""
    return {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs, **tuned}


def hook_argument(kernel: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return what the kernel's own hooks take: names and values, in old Tritons the positional."""
    return args if hasattr(kernel, "reset_idx") else named


def reset_arguments(kernel: Any, args: tuple[Any, ...], named: dict[str, Any]) -> list[Any] | None:
    """Return the arguments that the kernel's hook sets to zero; None where a hook is the user's."""
    places = getattr(kernel, "reset_idx", None)
    if places is not None:
        return [args[place] for place in places]
    if getattr(kernel, "user_defined_pre_hook", False):
        return None
    return [named[name] for name in getattr(kernel, "reset_to_zero", ())]


def answers_from_cache(kernel: Any, key: tuple[Any, ...]) -> Any:
    """Return the configuration that the kernel itself has for a key, or None.

    Raises
    ------
    TypeError
        The key cannot be hashed; Triton could not look it up either.
    """
    try:
        return kernel.cache.get(key)
    except TypeError:
        names = kernel.keys.values() if isinstance(kernel.keys, Mapping) else kernel.keys
        kinds = ", ".join(type(value).__qualname__ for value in key)
        raise TypeError(
            f"disttune: kernel '{kernel_name(kernel)}': the values of its key "
            f"{list(names)!r} cannot be hashed (their types: {kinds}); name arguments that are "
            "numbers, strings or dtypes"
        ) from None


def listeners() -> dict[str, Any] | None:
    """Return where this Triton's listener for tunings is set; None where it knows of none."""
    autotuning = getattr(sys.modules.get("triton.knobs"), "autotuning", None)
    return vars(autotuning) if hasattr(autotuning, "listener") else None


def listener_is_set() -> bool:
    """Whether somebody listens to what Triton's own ``run`` tells."""
    found = listeners()
    return found is not None and found.get("listener") is not None


def tell_tuned(kernel: Any, key: tuple[Any, ...]) -> None:
    """Tell of a finished tuning what Triton's own ``run`` tells: to its listener, and in print."""
    autotuning = getattr(sys.modules.get("triton.knobs"), "autotuning", None)
    if autotuning is None:
        return
    listener = getattr(autotuning, "listener", None)
    if listener is not None:
        below = kernel.fn
        while not inspect.isfunction(getattr(below, "fn", None)) and hasattr(below, "fn"):
            below = below.fn
        listener(
            fn=below,
            key=key,
            best_config=kernel.best_config,
            configs_timings=kernel.configs_timings,
            duration=kernel.bench_time,
            cache_hit=False,
        )
    if getattr(autotuning, "print", False):
        print(
            f"Triton autotuning for function {kernel_name(kernel)},\nwith key as {key},\n"
            f"finished after {kernel.bench_time:.2f}s,\n"
            f"best config selected: {kernel.best_config};"
        )
