"""Which ranks must decide alike: the groups that callers name, and the default.

A ``torch.distributed`` group becomes a seat in the group's key-value store at its first cold call;
a seat is kept as long as its group.
"""

from __future__ import annotations

import atexit
import hashlib
import sys
import threading
import weakref
from typing import Any

from . import _core
from ._store_meeting import join

__all__ = [
    "LOCAL",
    "checked_timeout",
    "default_group_is_set",
    "resolve_group",
    "set_default_group",
]


class _Local:
    """Asks for tuning on this rank alone, whatever groups there are."""

    def __repr__(self) -> str:
        return "disttune.LOCAL"

    def __reduce__(self) -> str:
        return "LOCAL"


#: As ``autotune_pg``: this rank tunes alone.
LOCAL = _Local()

_lock = threading.Lock()
#: The one default group of the process.
_default: list[Any] = [None]
_seats: weakref.WeakKeyDictionary[Any, _core.ProcessGroup] = weakref.WeakKeyDictionary()
_meetings: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
#: Groups that are closed because their ranks did not meet, with what was said then.
_closed: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def set_default_group(group: Any) -> None:
    """Set the group of calls that name none.

    Parameters
    ----------
    group
        A ``torch.distributed`` group, a `disttune.ProcessGroup`, `disttune.LOCAL`, or ``None`` for
        the rule at the start: the world of ``torch.distributed`` when it is initialised with more
        than one rank, else no group.

    Raises
    ------
    TypeError
        It is none of these; the default stays as it was.
    """
    _check_kind(group)
    _default[0] = group
    _core.forget_default_group()


def default_group_is_set() -> bool:
    """Whether `set_default_group` named a group."""
    return _default[0] is not None


def resolve_group(group: Any = None, timeout: float | None = None) -> _core.ProcessGroup | None:
    """Find the seat that a call uses.

    Parameters
    ----------
    group
        What the caller passed as ``autotune_pg``.
    timeout
        Seconds that the ranks have for meeting at a group's first use; ``None``: as the
        environment says (``TRITON_DIST_AUTOTUNE_TIMEOUT``, 600).

    Returns
    -------
    ProcessGroup or None
        Nothing where this rank decides alone.

    Raises
    ------
    TypeError
        It is no group at all.
    ValueError
        The group was destroyed, or this rank is not a member of it.
    GroupTimeout
        Not all ranks came; the group is closed then.
    """
    if group is None:
        group = _default[0]
    if group is None:
        distributed = _torch_distributed()
        if distributed is None or distributed.get_world_size() < 2:
            return None
        group = distributed.group.WORLD
    if group is LOCAL:
        return None
    _check_kind(group)
    if isinstance(group, _core.ProcessGroup):
        return group
    return _seat(group, _timeout() if timeout is None else timeout)


def checked_timeout(call: str, timeout: Any) -> float:
    """Return the seconds that a call may wait; ValueError for what is none."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= 1e9:
        raise ValueError(f"disttune: {call}(timeout={timeout!r}): seconds above 0, at most 1e9")
    return float(timeout)


def _check_kind(group: Any) -> None:
    if group is None or group is LOCAL:
        return
    if isinstance(group, _core.ProcessGroup):
        if not _core.group_is_made(group):
            raise TypeError(
                f"disttune: {type(group).__qualname__}.__init__ does not call "
                "super().__init__(rank, size), so this disttune.ProcessGroup has no ranks"
            )
        return
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None and group is c10d.GroupMember.NON_GROUP_MEMBER:
        return  # what torch gives to ranks outside: `_seat` says so
    if not (callable(getattr(group, "rank", None)) and callable(getattr(group, "size", None))):
        raise TypeError(
            f"disttune: {group!r} is no group: pass a torch.distributed group, a "
            "disttune.ProcessGroup, disttune.LOCAL or None"
        )


def _timeout() -> float:
    try:
        return _core.timeout_seconds()
    except ValueError:
        return 600.0  # the session, which reads the environment next, says what is wrong


@atexit.register
def _leave() -> None:
    """Let go of all seats while their stores can still be told."""
    _core.forget_default_group()
    _seats.clear()


def _torch_distributed() -> Any:
    """``torch.distributed``, if the caller uses it."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _seat(group: Any, timeout: float) -> _core.ProcessGroup | None:
    distributed = _torch_distributed()
    if distributed is None:
        raise ValueError(
            f"disttune: {group!r} cannot be used as a group: torch.distributed is not initialised "
            "(or its groups were destroyed)"
        )
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    if group is c10d.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("disttune: this rank is not a member of the group that was given")
    try:
        members = distributed.get_process_group_ranks(group)
    except (KeyError, ValueError, RuntimeError):
        raise ValueError(
            f"disttune: the group {getattr(group, 'group_name', group)!r} was destroyed: make a "
            "new one with torch.distributed.new_group, or pass None for the default"
        ) from None
    if distributed.get_rank() not in members:
        raise ValueError(
            f"disttune: rank {distributed.get_rank()} is not a member of the group that was given "
            f"(members: {members})"
        )
    if len(members) == 1:
        return None
    with _lock:
        seat = _seats.get(group)
        meeting = _meetings.setdefault(group, threading.Lock())
    if seat is not None:
        return seat
    with meeting:  # of this group: ranks may meet in several at once, from threads of their own
        seat = _seats.get(group)
        if seat is None:
            if (why := _closed.get(group)) is not None:
                raise _core.GroupTimeout(f"{why} (the group is closed since then)")
            store, prefix = _store_of(group, members, distributed, c10d)
            rank = distributed.get_group_rank(group, distributed.get_rank())
            try:
                seat = _seats[group] = join(store, prefix, rank, len(members), timeout)
            except _core.GroupTimeout as late:
                _closed[group] = str(late)
                raise
    return seat


def _store_of(group: Any, members: list[int], distributed: Any, c10d: Any) -> tuple[Any, str]:
    """Find the key-value store that a group's ranks share, and a prefix that is theirs in it."""
    for find in ("get_group_store", "_get_process_group_store"):
        try:
            store = getattr(group, find)() if hasattr(group, find) else getattr(c10d, find)(group)
        except (AttributeError, KeyError, RuntimeError):
            continue
        if store is not None:
            return store, "group"
    # Without one of its own, the group uses the world's, under a name made of its ranks.
    label = hashlib.sha256(str(members).encode()).hexdigest()[:16]
    try:
        store = c10d._get_default_store()
    except (AttributeError, ValueError, RuntimeError):
        store = None
    return (store, label) if store is not None else (_own_store(group, distributed), label)


def _own_store(group: Any, distributed: Any) -> Any:
    """Open a store for ranks that have none (a world made by MPI): rank 0 serves it.

    Its address travels once through the group itself, before anything is tuned.
    """
    import socket

    rank = distributed.get_rank(group)
    address: list[Any] = [None]
    store = None
    if rank == 0:
        host = socket.getfqdn()
        store = distributed.TCPStore(host, 0, None, True, wait_for_workers=False)
        address = [(host, store.port)]
    source = distributed.get_global_rank(group, 0)
    distributed.broadcast_object_list(address, src=source, group=group)
    if store is None:
        host, port = address[0]
        store = distributed.TCPStore(host, port, None, False)
    return store
