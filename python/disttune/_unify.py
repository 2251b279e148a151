"""Ranks that tuned on their own end with the same records."""

from __future__ import annotations

import os
from typing import Any

from . import _core
from ._function import forget_choices_of_this_rank
from ._groups import checked_timeout, resolve_group
from ._options import checked_folder

__all__ = ["unify"]


def unify(
    group: Any = None,
    *,
    store: str | os.PathLike[str] | None = None,
    name: str = "",
    timeout: float = 600.0,
) -> list[str]:
    """Give all ranks the lowest rank's record of every key that any of them holds.

    For pipelines whose ranks cannot tune in lockstep: they tune with `disttune.LOCAL`, then all
    call this. What this rank had chosen alone for functions whose records changed is forgotten, so
    that the next call takes the record's choice; what a group decided stays. Tunings of other
    software versions stay in the records.

    Parameters
    ----------
    group
        As ``autotune_pg``: ``None`` is the default group. A rank that is alone returns at once.
    store
        The folder of this rank's records; ``None``: the environment's
        (``TRITON_DIST_AUTOTUNE_HOME``).
    name
        Of one function; empty: all that the ranks hold. Equal on all ranks.
    timeout
        Seconds without arrival or sign of life of a rank after which waiting ends; at most 1e9.

    Returns
    -------
    list of str
        The names of functions of which this rank's records changed.

    Raises
    ------
    PeerFailed, GroupTimeout
        A rank ended its call with an error, or did not come; the group is closed then.
    Disagreement
        A rank is in another call, or asks for another name.
    """
    seconds = checked_timeout("unify", timeout)
    if not isinstance(name, str):
        raise TypeError(f"disttune: unify(name={name!r}): a function's name is wanted")
    folder = None if store is None else checked_folder("store", store, "unify")
    seat = resolve_group(group, seconds)
    if seat is None:
        return []
    changed = _core.unify(seat, folder, name, seconds)
    forget_choices_of_this_rank(changed)
    return changed
