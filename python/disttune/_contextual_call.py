"""One contextual call: which launch goes where, and what is put into the kernels at the end."""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from . import _core
from ._contextual_kernel import (
    all_arguments,
    answers_from_cache,
    described_config,
    described_key,
    generates_configs,
    kernel_identity,
    kernel_module,
    kernel_name,
    launch_key,
    listener_is_set,
    listeners,
    merged_arguments,
    pruned_configs,
    tell_tuned,
)
from ._contextual_launch import CompilingLaunch, Launch, compiles_ahead, on_torch_device
from ._contextual_patch import watch_new_classes
from ._torch_device import stream_of

__all__ = ["ContextualCall", "Entry"]

_MISSING = object()


class _Choices:
    """What contextual calls have decided for one kernel.

    Triton's own dictionary has one entry a key, whatever the device, and takes 1, True and 1.0 for
    the same; the types, the device and the groups that agreed are kept here.
    """

    def __init__(self) -> None:
        self._decided: dict[Any, dict[Any, tuple[Any, set[Any]]]] = {}
        self.override_noted = False

    def find(self, kernel: Any, key: Any, place: Any, seat: Any) -> tuple[Any, Any]:
        """Return the configuration that is decided, and the one that the kernel has for the key.

        What somebody else put into the kernel's cache counts; with a group only what that group
        decided, or confirmed.
        """
        cached = answers_from_cache(kernel, key)
        ours = self._decided.get(key)
        if cached is None:
            if ours is not None:
                del self._decided[key]
            return None, None
        if ours is not None and any(config is cached for config, _ in ours.values()):
            typed = (*map(type, key), place)
            config, seats = ours.get(typed, (None, ()))
            decided = config if seat is None or seat in seats else None
            return decided, config
        if ours is not None:
            del self._decided[key]
        return (cached, cached) if seat is None else (None, cached)

    def put(self, key: Any, place: Any, seat: Any, config: Any) -> None:
        """Remember a decision."""
        ours = self._decided.setdefault(key, {})
        typed = (*map(type, key), place)
        before, seats = ours.get(typed, (None, set()))
        seats = set(seats) if before is config else set()
        if seat is not None:
            seats.add(seat)
        ours[typed] = (config, seats)


_lock = threading.Lock()
_choices: weakref.WeakKeyDictionary[Any, _Choices] = weakref.WeakKeyDictionary()


def _choices_of(kernel: Any) -> _Choices:
    with _lock:
        found = _choices.get(kernel)
        if found is None:
            found = _choices[kernel] = _Choices()
        return found


class Entry:
    """One (kernel, key, device) that is being tuned in a call."""

    def __init__(
        self,
        kernel: Any,
        key: tuple[Any, ...],
        place: Any,
        configs: list[Any],
        held: Any,
    ) -> None:
        self.kernel = kernel
        self.key = key
        self.place = place
        self.configs = configs
        self.shown_key = described_key(key)
        self.held = self._place_of(held)
        self.ran = False  # runs of the tuning were made
        self.began = time.monotonic()
        self.best_before = vars(kernel).get("best_config", _MISSING)
        self.published = False
        self.launch_type = CompilingLaunch if compiles_ahead(kernel) else Launch
        self.core = _core.make_kernel(
            kernel_name(kernel),
            kernel_module(kernel),
            [described_config(config) for config in configs],
            kernel_identity(kernel),
        )

    def _place_of(self, held: Any) -> int | None:
        if len(self.configs) == 1:
            return 0
        for place, config in enumerate(self.configs):
            if held is not None and (config is held or config == held):
                return place
        return None

    def on_device(self) -> Any:
        """Make the entry's device current in the calling thread."""
        kind, index = self.place or (None, 0)
        return on_torch_device(kind, index)

    def publish(self, winner: int, candidates: list[tuple[int, str, str, list[int]]]) -> None:
        """Put the choice where plain launches of the kernel look for it, in Triton's own form."""
        kernel, config = self.kernel, self.configs[winner]
        kernel.cache[self.key] = config
        kernel.best_config = config
        self.published = True
        if self.ran:
            kernel.configs_timings = {
                self.configs[place]: _in_triton_form(status, samples)
                for place, status, _, samples in candidates
            }
            kernel.bench_time = time.monotonic() - self.began
            tell_tuned(kernel, self.key)

    def close(self) -> None:
        """Leave nothing behind of a tuning that did not end."""
        if self.published or not self.ran:
            return
        if self.best_before is _MISSING:
            vars(self.kernel).pop("best_config", None)
        else:
            self.kernel.best_config = self.best_before


def _in_triton_form(status: str, samples: list[int]) -> list[float]:
    """Median, 20th and 80th percentile in milliseconds; infinite for what did not work."""
    if status != "ok" or not samples:
        return [float("inf")] * 3
    milliseconds = sorted(ns / 1e6 for ns in samples)
    last = len(milliseconds) - 1

    def quantile(q: float) -> float:
        below = int(q * last)
        above = min(below + 1, last)
        part = q * last - below
        return milliseconds[below] * (1 - part) + milliseconds[above] * part

    return [statistics.median(milliseconds), quantile(0.2), quantile(0.8)]


class ContextualCall:
    """A call in progress. Launches come from its own thread and from threads that serve it."""

    def __init__(self, name: str, options: dict[str, Any], seat: Any) -> None:
        self.name = name
        self._options = options
        self.seat = seat
        self._core: Any = None
        self._entries: dict[Any, Entry] = {}
        self._of_core: dict[Any, Entry] = {}
        self._kernels: dict[int, Any] = {}  # kept alive: entries are found by their addresses
        self._lock = threading.Lock()

    # ---- passes

    def failed(self, error: BaseException) -> None:
        """Tell the other ranks that the first pass raised."""
        if self._core is not None:
            self._core.abandon(f"{type(error).__name__}: {error}")
        elif self.seat is not None:
            _core.abandon_call(self.seat, f"{type(error).__name__}: {error}")

    def settled_by_complete(self) -> bool:
        """Whether `complete` raises on all ranks what the first pass broke on here."""
        return self._core is not None and bool(self._core.settled_by_complete())

    def complete(self, outer: Callable[[], Any], result: list[Any]) -> Any:
        """Run the other passes, where the first met something to tune; return the last result.

        `result` holds the first pass's, and nobody else does.
        """
        if self._core is None:
            return result[0]

        def run() -> None:
            result[0] = None  # as if the caller had dropped it
            watch_new_classes()
            result[0] = outer()

        self._core.complete(run)
        return result[0]

    def close(self) -> None:
        """However the call ended."""
        for entry in self._entries.values():
            entry.close()
        self._entries.clear()
        self._of_core.clear()
        self._core = None  # it refers to us, and nobody else could break the circle

    # ---- launches

    def launch(
        self, kernel: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer one launch of an autotuned kernel."""
        if len(kernel.configs) < 2 and not generates_configs(kernel):
            return original(kernel, *args, **kwargs)
        key = launch_key(kernel, args, kwargs)
        place, device, stream = _where(args, kwargs)
        choices = _choices_of(kernel)
        try:
            entry = self._entries.get((id(kernel), key, (*map(type, key),), place))
        except TypeError:
            entry = None
        if entry is None:
            decided, held = choices.find(kernel, key, place, self.seat)
            if decided is not None:
                return self._launch_decided(kernel, original, key, decided, args, kwargs)
            entry = self._meet(kernel, original, key, place, held, args, kwargs)
        launch = entry.launch_type(entry, args, kwargs)
        self._engine().answer(entry.core, entry.shown_key, launch, device=device, stream=stream)
        self._note_override(choices, entry, args, kwargs)
        return launch.finish()

    def _launch_decided(
        self,
        kernel: Any,
        original: Any,
        key: tuple[Any, ...],
        config: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Launch as Triton does when it finds the key in the kernel's cache."""
        tuned = config.all_kwargs()
        if listener_is_set() and kernel.cache[key] is config and not tuned.keys() & kwargs.keys():
            return original(kernel, *args, **kwargs)
        if config.pre_hook is not None:
            config.pre_hook(all_arguments(kernel, args, kwargs, tuned))
        elif not generates_configs(kernel):
            _core.remember_launch(
                kernel, args, kwargs, key, config, tuned, set(kernel.keys), self.seat, listeners()
            )
        kernel.best_config = config
        args, kwargs = merged_arguments(kernel, args, kwargs, tuned)
        return kernel.fn.run(*args, **kwargs)

    def _meet(
        self,
        kernel: Any,
        original: Any,
        key: tuple[Any, ...],
        place: Any,
        held: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Entry:
        _core.intercept_all()
        configs = pruned_configs(kernel, original, args, kwargs)
        entry = Entry(kernel, key, place, configs, held)
        with self._lock:
            entry = self._entries.setdefault((id(kernel), key, (*map(type, key),), place), entry)
            self._kernels[id(kernel)] = kernel
            self._of_core[id(entry.core)] = entry
        return entry

    def _engine(self) -> Any:
        with self._lock:
            if self._core is None:
                options = self._options
                self._core = _core.make_contextual(
                    self.name,
                    n_warmup=options["n_warmup"],
                    n_repeat=options["n_repeat"],
                    group=self.seat,
                    cache=options["cache"],
                    strategy=options["strategy"],
                    timer=options["timer"],
                    rank=_rank(),
                    persist=options["persist"],
                    decided=self._decided,
                )
        return self._core

    def _decided(
        self, core: Any, winner: int, candidates: list[tuple[int, str, str, list[int]]]
    ) -> None:
        entry = self._of_core[id(core)]
        entry.publish(winner, candidates)
        _choices_of(entry.kernel).put(entry.key, entry.place, self.seat, entry.configs[winner])

    def _note_override(
        self, choices: _Choices, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if choices.override_noted:
            return
        names = entry.kernel.arg_names
        given = {*names[: len(args)], *kwargs}
        both = [name for name in entry.configs[0].all_kwargs() if name in given]
        if both:
            choices.override_noted = True
            self._core.note(
                f"{kernel_name(entry.kernel)}: tuned values of {', '.join(both)} take the place of "
                "those that the launch passes"
            )


def _where(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, int]:
    """Find the device of a launch: a hashable name for it, the device and its current stream."""
    found = stream_of(args, kwargs)
    if found is None:
        return None, None, 0
    device, stream = found
    torch = sys.modules["torch"]
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta"):
            return (value.device.type, value.device.index), device, stream
    with contextlib.suppress(AttributeError, RuntimeError):
        kind = torch.accelerator.current_accelerator().type
        return (kind, int(getattr(torch, kind).current_device())), device, stream
    return ("device", 0), device, stream


def _rank() -> int:
    """Return the rank that names the log: the process's in its world."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return -1
