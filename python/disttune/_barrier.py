"""Waiting for the other ranks."""

from __future__ import annotations

from typing import Any

from . import _core
from ._groups import checked_timeout, resolve_group

__all__ = ["barrier"]


def barrier(group: Any = None, timeout: float = 600.0) -> None:
    """Return when all ranks of a group are here.

    For ranks that must not run ahead into communication of their own while others still tune. It
    waits for the processes, not for their devices, and nothing of it runs on the device.

    Parameters
    ----------
    group
        As ``autotune_pg``: ``None`` is the default group. A rank that is alone returns at once.
    timeout
        Seconds without arrival or sign of life of a rank after which waiting ends; at most 1e9.

    Raises
    ------
    PeerFailed, GroupTimeout
        A rank ended its call with an error, or did not come; the group is closed then.
    Disagreement
        A rank is in another call; the group is closed then too.
    """
    seconds = checked_timeout("barrier", timeout)
    seat = resolve_group(group, seconds)
    if seat is not None:
        _core.barrier(seat, seconds)
