"""How the ranks of a group meet in its key-value store for the first time."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import socket
import time
import weakref
from typing import Any, NoReturn

from . import _core
from ._store_group import StoreGroup
from ._store_line import LineBroken, StoreLine

__all__ = ["join"]

#: Of what is written into the store; ranks of different versions do not meet.
PROTOCOL = 1

#: What a rank that gives up may still take to find out who did not come.
_LAST_LOOK_SECONDS = 2.0


def _node_name() -> str:
    """Name the machine (and container) alike on all ranks that share it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    return hashlib.sha256(f"{socket.gethostname()} {boot}".encode()).hexdigest()[:16]


def join(store: Any, prefix: str, rank: int, size: int, timeout: float) -> StoreGroup:
    """Meet the other ranks and take this rank's seat.

    A store may outlive a group: keys of an earlier life, whose ranks may even have died, must not
    be taken for the others' arrival. So each rank brings a random word; rank 0 proposes the list of
    them, anew whenever one changes, and makes it final when every rank has agreed to this list. A
    list without a rank's own word is not meant for it.
    """
    line = StoreLine(store, f"disttune/{PROTOCOL}/{prefix}/")
    until = time.monotonic() + timeout
    mine = f"{os.urandom(8).hex()} {_node_name()}"
    try:
        line.set(f"join/{rank}", mine, until)
        if rank == 0:
            words = _call_the_roll(line, size, until, timeout)
        else:
            words = _answer_the_roll(line, rank, size, mine, until, timeout)
    except LineBroken as broken:
        raise _core.GroupTimeout(
            f"disttune: {broken}, while the {size} ranks of a group met for the first time"
        ) from None
    nodes = [word.split()[1] for word in words]
    # The store's server may be ours: it lives as long as the seat does.
    line.narrow(hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16])
    seat = StoreGroup(line, rank, size, sorted(nodes.count(node) for node in set(nodes)))
    atexit.register(_leave, weakref.ref(seat))
    return seat


def _leave(reference: weakref.ref[StoreGroup]) -> None:
    seat = reference()
    if seat is not None:
        seat.linger()
        seat.close()


def _call_the_roll(line: StoreLine, size: int, until: float, timeout: float) -> list[str]:
    proposed = ""
    pause = 20e-6
    while True:
        words = [line.get(f"join/{r}", until) for r in range(size)]
        missing = [r for r in range(size) if words[r] is None]
        if not missing:
            text = json.dumps(words)
            if text != proposed:
                proposed = text
                line.set("roll", text, until)
            missing = [r for r in range(1, size) if line.get(f"here/{r}", until) != text]
        if not missing:
            line.set("final", proposed, until)
            return [str(word) for word in words]
        if time.monotonic() > until:
            _give_up(missing, timeout)
        time.sleep(pause)
        pause = min(pause * 1.3, 0.01)


def _answer_the_roll(
    line: StoreLine, rank: int, size: int, mine: str, until: float, timeout: float
) -> list[str]:
    agreed = ""
    pause = 20e-6
    while True:
        for key in ("final", "roll"):
            text = line.get(key, until) or "[]"
            words = json.loads(text)
            if rank >= len(words) or words[rank] != mine:
                continue
            if key == "final":
                return [str(word) for word in words]
            if text != agreed:
                agreed = text
                line.set(f"here/{rank}", text, until)
        if time.monotonic() > until:
            # Rank 0 may be waiting like this one: who is missing is seen in the store.
            late = until + _LAST_LOOK_SECONDS
            absent = [r for r in range(size) if line.get(f"join/{r}", late) is None]
            _give_up(absent or [0], timeout)
        time.sleep(pause)
        pause = min(pause * 1.3, 0.01)


def _give_up(missing: list[int], timeout: float) -> NoReturn:
    raise _core.GroupTimeout(
        f"disttune: no arrival from {_core.name_ranks(missing)} within {timeout:g} s, while the "
        "ranks of the group met for the first time; a rank that does not make this call, or "
        "that still remembers a choice which the others have lost, looks the same"
    )
