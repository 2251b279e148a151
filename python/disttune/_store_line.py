"""A line to a key-value store on which no call waits longer than its caller allows.

A store's own calls block without limit when its server hangs, and cannot be interrupted. They are
made by a thread of the line's own, so that the caller can give up.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

__all__ = ["LineBroken", "StoreLine"]


class LineBroken(Exception):
    """The store's connection is lost, or the store does not answer."""


class _Job:
    __slots__ = ("done", "error", "function", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            job.result = job.function()
        except BaseException as error:
            job.error = error
        job.done.set()
        del job  # holds what the caller asked for


class StoreLine:
    """Calls to one ``torch.distributed`` store, under a prefix. Usable from several threads.

    Parameters
    ----------
    store
        Any torch store. A connection of its own is opened where the store can give one, so that
        other users of the store neither wait for us nor we for them.
    prefix
        Goes before every key.
    """

    def __init__(self, store: Any, prefix: str) -> None:
        try:
            self._store = store.clone()
            # Only our connection's: how long the store's own waits may take.
            self._store.set_timeout(timedelta(seconds=30))
        except Exception:  # a store of a kind that cannot be cloned
            self._store = store
        self._owner = store  # whose server may live in this process
        self._prefix = prefix
        self._broken: str | None = None
        self._process = os.getpid()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_work, args=(self._jobs,), name="disttune-store", daemon=True
        )
        self._thread.start()

    def __del__(self) -> None:
        jobs = getattr(self, "_jobs", None)
        if jobs is not None:
            jobs.put(None)

    def close(self, patience: float) -> None:
        """Let the thread end, which must not be inside the store when the interpreter goes."""
        self._broken = self._broken or "the process is ending"
        self._jobs.put(None)
        if os.getpid() == self._process:
            self._thread.join(patience)

    def narrow(self, folder: str) -> None:
        """Put every later key below ``folder``."""
        self._prefix += folder + "/"

    def post(self, function: Callable[[], Any], patience: float = 0.0) -> None:
        """Make a call whose result nobody needs; waits for at most ``patience`` seconds."""
        if self._broken is None and os.getpid() == self._process:
            job = _Job(function)
            self._jobs.put(job)
            if patience > 0:
                job.done.wait(patience)

    def _call(self, function: Callable[[], Any], until: float) -> Any:
        if self._broken is not None:
            raise LineBroken(self._broken)
        if os.getpid() != self._process:
            raise LineBroken(
                "this process was forked from a rank of the group and is none itself: pass "
                "autotune_pg=disttune.LOCAL here"
            )
        job = _Job(function)
        self._jobs.put(job)
        # A store that answers takes well below a millisecond; one second is always granted.
        if not job.done.wait(max(1.0, until - time.monotonic())):
            self._broken = "the key-value store does not answer"
            raise LineBroken(self._broken)
        if job.error is not None:
            if not isinstance(job.error, Exception):
                raise job.error
            self._broken = f"the connection to the key-value store is lost: {job.error}"
            raise LineBroken(self._broken) from job.error
        return job.result

    # The operations, each ending by `until` (seconds of time.monotonic).

    def has(self, keys: list[str], until: float) -> bool:
        """Whether all of these keys are set."""
        names = [self._prefix + key for key in keys]
        return bool(self._call(lambda: self._store.check(names), until))

    def get(self, key: str, until: float) -> str | None:
        """Return the value of a key; nothing where it is not set."""
        name = self._prefix + key

        def read() -> str | None:
            # `get` waits for a key that is not there.
            return self._store.get(name).decode() if self._store.check([name]) else None

        found = self._call(read, until)
        return None if found is None else str(found)

    def get_all(self, keys: list[str], until: float) -> list[str]:
        """Return the values of keys that are known to be set."""
        names = [self._prefix + key for key in keys]

        def read() -> list[str]:
            try:
                return [value.decode() for value in self._store.multi_get(names)]
            except (AttributeError, NotImplementedError, RuntimeError):
                return [self._store.get(name).decode() for name in names]

        found = self._call(read, until)
        return list(found)

    def set(self, key: str, value: str, until: float) -> None:
        """Set a key."""
        self._call(lambda: self._store.set(self._prefix + key, value), until)

    def count(self, key: str, until: float, by: int = 0) -> int:
        """Add to a counter and return its value."""
        return int(self._call(lambda: self._store.add(self._prefix + key, by), until))

    def post_set(self, key: str, value: str, bell: str, patience: float = 0.0) -> None:
        """Set a key and ring a counter, waiting for at most ``patience`` seconds."""

        def write() -> None:
            self._store.set(self._prefix + key, value)
            self._store.add(self._prefix + bell, 1)

        self.post(write, patience)

    def post_count(self, key: str) -> None:
        """Add one to a counter, without waiting."""
        self.post(lambda: self._store.add(self._prefix + key, 1))

    def post_delete(self, key: str) -> None:
        """Forget a key, without waiting; a store that cannot keeps it."""

        def forget() -> None:
            with contextlib.suppress(AttributeError, NotImplementedError, RuntimeError):
                self._store.delete_key(self._prefix + key)

        self.post(forget)
