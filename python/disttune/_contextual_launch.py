"""One launch of an autotuned kernel, as the engine sees it: an attempt with live arguments."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from ._contextual_kernel import (
    all_arguments,
    hook_argument,
    merged_arguments,
    nothing_left,
    reset_arguments,
)
from ._torch_device import _current

if TYPE_CHECKING:
    from ._contextual_call import Entry

__all__ = ["CompilingLaunch", "Launch", "compiles_ahead"]


class Launch:
    """The arguments of one launch, and every way in which the engine may run it.

    Hooks, resets and copies are done by `before_run` and after the engine has answered, outside
    the timed part.
    """

    def __init__(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._entry = entry
        self._kernel = entry.kernel
        self._args = args
        self._kwargs = kwargs
        self._hooked: Any = None
        self._ready: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._candidate = 0
        self.result: Any = None

    def held(self) -> int | None:
        """Return the place of the configuration that the kernel has chosen already."""
        return self._entry.held

    def admits(self, candidate: int) -> bool:
        """Whether the kernel's own pruning left the candidate in."""
        del candidate
        return self._entry.admitted

    def begin_visit(self, candidate: int, runs: int) -> None:
        """Get a candidate's arguments ready, so that a timed run has the launch alone."""
        del runs
        if not self._entry.admitted:  # where nothing is tuned nobody asks
            raise nothing_left(self._kernel, self._args, self._kwargs)
        self._candidate = candidate
        self._ready = self._arguments(candidate)

    def before_run(self) -> None:
        """Run the hooks that Triton runs around a launch that it times."""
        config = self._entry.configs[self._candidate]
        named = self._named(config)
        if config.pre_hook is not None:
            config.pre_hook(named)
        self._entry.ran = True
        hooked = hook_argument(self._kernel, self._args, named)
        self._kernel.pre_hook(hooked)
        self._hooked = hooked

    def run(self, candidate: int) -> None:
        """Launch a candidate; after `before_run` as a run of the tuning, else as Triton does."""
        config = self._entry.configs[candidate]
        if self._hooked is None and config.pre_hook is not None:
            config.pre_hook(self._named(config))
        args, kwargs = self._ready or self._arguments(candidate)
        self._ready = None
        self._kernel.best_config = config
        try:
            self.result = self._kernel.fn.run(*args, **kwargs)
        except BaseException as error:
            self._after(error)
            raise

    def data(self) -> list[int]:
        """Name the data that the kernel's own hook resets, by their addresses."""
        named = self._named(self._entry.configs[self._candidate])
        values = reset_arguments(self._kernel, self._args, named)
        if values is not None:
            return [_address(value) for value in values]
        # A hook of the caller's: it may reset anything, so launches differ by all their data.
        data = tuple(_address(value) for value in named.values() if hasattr(value, "dtype"))
        return [hash(data)]

    def before_final_run(self, candidate: int) -> None:
        """Reset what the tuning's runs left behind in these arguments."""
        if self._entry.ran:
            named = self._named(self._entry.configs[candidate])
            self._kernel.pre_hook(hook_argument(self._kernel, self._args, named), reset_only=True)

    def decided(self, candidate: int) -> None:
        """Do nothing: the call is told what was decided."""

    def finish(self) -> Any:
        """Run the post-hook of a run of the tuning; return what the launch returned."""
        self._after(None)
        return self.result

    def _after(self, error: BaseException | None) -> None:
        hooked, self._hooked = self._hooked, None
        if hooked is not None:
            self._kernel.post_hook(hooked, exception=error)

    def _arguments(self, candidate: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tuned = self._entry.configs[candidate].all_kwargs()
        return merged_arguments(self._kernel, self._args, self._kwargs, tuned)

    def _named(self, config: Any) -> dict[str, Any]:
        return all_arguments(self._kernel, self._args, self._kwargs, config.all_kwargs())


class CompilingLaunch(Launch):
    """A launch of a kernel whose candidates can be compiled and loaded without being launched."""

    _hooks = threading.Lock()

    def prepare(self, candidate: int) -> None:
        """Compile and load a candidate for these very arguments. Called from several threads.

        Loading is what finds a candidate too large for the device.
        """
        args, kwargs = self._arguments(candidate)
        config = self._entry.configs[candidate]
        with self._entry.on_device():
            if config.pre_hook is None:
                compiled = self._kernel.fn.run(*args, **{**kwargs, "warmup": True})
            else:
                # It may change arguments that the compilation depends on, the same for all.
                with self._hooks:
                    config.pre_hook(self._named(config))
                    compiled = self._kernel.fn.run(*args, **{**kwargs, "warmup": True})
            load = getattr(compiled, "_init_handles", None)
            if load is not None:
                load()


def _address(value: Any) -> int:
    address = getattr(value, "data_ptr", None)
    return int(address()) if callable(address) else id(value)


def compiles_ahead(kernel: Any) -> bool:
    """Whether candidates can be compiled without a launch: by Triton's JIT, with a driver.

    Not in the interpreter, which compiles nothing, nor above another autotuner, which would tune.
    """
    found = kernel.fn
    for _ in range(64):
        if hasattr(type(found), "cache_key"):
            break
        if hasattr(found, "configs") or not hasattr(found, "fn"):
            return False
        found = found.fn
    else:
        return False
    runtime = sys.modules.get("triton.runtime.driver")
    try:
        runtime.driver.active.get_current_target()  # type: ignore[union-attr]
    except Exception:
        return False
    # Computed once here: before 3.6 threads may not compute it together.
    return isinstance(found.cache_key, str)


@contextlib.contextmanager
def on_torch_device(kind: str | None, index: int) -> Any:
    """Make a device current in this thread: a new thread begins on the first one."""
    module = getattr(sys.modules.get("torch"), kind, None) if kind else None
    if module is None or not hasattr(module, "set_device"):
        yield
        return
    with _current(module, index):
        yield
