"""The ranks of a ``torch.distributed`` group, agreeing through the group's key-value store.

No collective of the group is used: each rank sets its vector under a key of its own, the lowest
rank folds and publishes, and all wait with a deadline. So who is missing is always known, nothing
runs on the device, and the communicator that is being tuned is left alone.

Keys, below ``disttune/<version>/<life of the group>/``:

====================  ==============================================================
``c/<call>.<n>/<r>``  what rank r brings to collective n of cold call <call>
``c/<call>.<n>``      the result, published by rank 0
``at/<r>``            the collective that rank r entered last
``say/<r>``           what rank r announces: calls it ended, closings, notes
``news``              a counter that rises with every announcement
``life/<r>``          a counter that rises with every sign of life
====================  ==============================================================
"""

from __future__ import annotations

import array
import base64
import dataclasses
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

from . import _core
from ._store_line import LineBroken, StoreLine

__all__ = ["StoreGroup"]

#: Announcements from here on close a rank's side of the group for good (group.hpp).
_CLOSED = 2**64 - 3
#: Seconds that a rank which waits where nobody will come is given to leave.
_LEAVING = 1.0
#: Seconds between two looks at the side channel while waiting.
_LOOK = 0.25
_NOTES_KEPT = 4096


def _pack(values: Sequence[int]) -> str:
    return base64.b64encode(array.array("q", values).tobytes()).decode()


def _unpack(text: str) -> array.array[int]:
    values = array.array("q")
    values.frombytes(base64.b64decode(text))
    return values


@dataclasses.dataclass(frozen=True, order=True)
class _Place:
    """Where a rank stands: the n-th collective of a cold call, and what it is for."""

    sequence: int
    index: int
    phase: str = dataclasses.field(compare=False)
    words: int = dataclasses.field(compare=False)

    def text(self) -> str:
        return json.dumps([self.sequence, self.index, self.phase, self.words])

    @classmethod
    def read(cls, text: str) -> _Place:
        sequence, index, phase, words = json.loads(text)
        return cls(sequence, index, phase, words)

    def described(self) -> str:
        return f"{self.phase} of cold call {self.sequence} with {self.words} words"


@dataclasses.dataclass
class _Peer:
    """What another rank said last on the side channel."""

    ended: int = 0
    count: int = 0
    notes: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    life: int = -1
    #: A place in which this rank never took part, and since when the peer waits there.
    astray: tuple[_Place, float] | None = None


class StoreGroup(_core.ProcessGroup):
    """A rank's seat in a group that shares a ``torch.distributed`` store.

    Parameters
    ----------
    line
        The store, under the prefix that all ranks of this life of the group agreed on.
    rank, size
        This rank's number within the group, and the number of ranks.
    ranks_per_node
        Numbers of ranks on each node.
    """

    def __init__(self, line: StoreLine, rank: int, size: int, ranks_per_node: list[int]) -> None:
        super().__init__(rank, size, ranks_per_node)
        self._line = line
        self._me = rank
        self._size = size
        self._lock = threading.Lock()
        self._peers = [_Peer() for _ in range(size)]
        #: The rules about announcements and silence, the same as those of groups in C++.
        self._roll = _core.RollCall(size)
        self._news = 0
        self._next_look = 0.0
        self._say: dict[str, Any] = {"ended": [0, 0, "", False], "closed": [0, ""], "notes": []}
        self._call = -1
        self._index = -1
        #: Of the latest calls, the last collective that this rank took part in.
        self._taken: dict[int, int] = {}
        self._published: str | None = None

    # -- the collective ------------------------------------------------------------------------

    def all_reduce_max(self, values: Sequence[int], wait: Any) -> list[int]:
        """Return the elementwise maximum over all ranks."""
        if self._size == 1:
            return list(values)
        try:
            return self._reduce(values, wait)
        except LineBroken as broken:
            raise _core.GroupTimeout(
                f"disttune: {broken}; {wait.phase} of cold call {wait.sequence} cannot end"
            ) from None

    def _reduce(self, values: Sequence[int], wait: Any) -> list[int]:
        entered = time.monotonic()
        until = max(wait.deadline, entered)
        self._listen(until, entered)
        self._raise_if_told(wait, entered, entered)
        place = self._enter(wait, len(values))
        key = f"c/{place.sequence}.{place.index}"
        mine = f"{key}/{self._me}"
        self._line.set(f"at/{self._me}", place.text(), until)
        self._line.set(mine, place.text() + "\n" + _pack(values), until)
        if self._me == 0:
            result = self._fold(key, place, wait, entered)
            self._line.set(key, result, time.monotonic() + wait.patience)
            # Whoever is here has read the result before this one.
            if self._published is not None:
                self._line.post_delete(self._published)
            self._published = key
        else:
            self._wait({key: 0}, place, wait, entered)
            result = self._line.get(key, time.monotonic() + wait.patience) or ""
        # Gone also tells rank 0 that the result has been read.
        self._line.post_delete(mine)
        kind, _, body = result.partition("\n")
        if kind != "max":
            raise _core.Disagreement(body)
        return list(_unpack(body))

    def _enter(self, wait: Any, words: int) -> _Place:
        if wait.sequence != self._call:
            self._call, self._index = wait.sequence, -1
            while len(self._taken) > 8:
                del self._taken[min(self._taken)]
        self._index += 1
        self._taken[self._call] = self._index
        return _Place(self._call, self._index, wait.phase, words)

    def linger(self, patience: float = 2.0) -> None:
        """Stay until the others have read the last result: the store may live in this process."""
        if self._me != 0 or self._published is None:
            return
        until = time.monotonic() + patience
        try:
            for rank in range(1, self._size):
                key = f"{self._published}/{rank}"
                while self._line.has([key], until) and time.monotonic() < until:
                    time.sleep(0.001)
        except LineBroken:
            pass

    def close(self, patience: float = 2.0) -> None:
        """Say nothing more: the process ends."""
        self._line.close(patience)

    def _fold(self, key: str, place: _Place, wait: Any, entered: float) -> str:
        keys = [f"{key}/{r}" for r in range(self._size)]
        others = {name: rank for rank, name in enumerate(keys) if rank > 0}
        self._wait(others, place, wait, entered)
        sides: dict[_Place, list[int]] = {}
        headers: dict[tuple[str, int], list[int]] = {}
        folded: array.array[int] | None = None
        for rank, text in enumerate(self._line.get_all(keys, time.monotonic() + wait.patience)):
            header, _, body = text.partition("\n")
            there = _Place.read(header)
            headers.setdefault((there.phase, there.words), []).append(rank)
            sides.setdefault(there, []).append(rank)
            if there.words != place.words:
                continue
            vector = _unpack(body)
            folded = vector if folded is None else array.array("q", map(max, folded, vector))
        if len(headers) > 1 or folded is None:
            found = [
                (_Place(place.sequence, place.index, phase, words), ranks)
                for (phase, words), ranks in headers.items()
            ]
            return "out of step\n" + _out_of_step(found)
        return "max\n" + base64.b64encode(folded.tobytes()).decode()

    # -- waiting -------------------------------------------------------------------------------

    def _wait(self, missing: dict[str, int], place: _Place, wait: Any, entered: float) -> None:
        """Wait until these keys, which those ranks set, are all there."""
        key = f"c/{place.sequence}.{place.index}"
        pause = 20e-6
        next_look = entered + _LOOK / 4
        while not self._line.has(list(missing), time.monotonic() + wait.patience):
            now = time.monotonic()
            if now >= next_look:
                next_look = now + _LOOK
                until = now + wait.patience
                self._line.post_count(f"life/{self._me}")
                missing = {k: r for k, r in missing.items() if not self._line.has([k], until)}
                if not missing:
                    return
                self._listen(until, now)
                self._raise_if_told(wait, entered, now)
                self._raise_if_astray(sorted(set(missing.values())), place, until, now)
                self._raise_if_silent(set(missing.values()), key, wait, entered, until, now)
            time.sleep(pause)
            pause = min(pause * 1.3, 0.005)

    def _listen(self, until: float, now: float) -> None:
        """Read what the others announced since the last time."""
        news = self._line.count("news", until)
        if news == self._news:
            return
        for rank, peer in enumerate(self._peers):
            text = None if rank == self._me else self._line.get(f"say/{rank}", until)
            if text is None:
                continue
            said = json.loads(text)
            ended, count, why, standing = said["ended"]
            closed, closed_why = said["closed"]
            with self._lock:
                for _ in range(count - (peer.count if peer.ended == ended else 0)):
                    self._roll.announce(rank, ended, why, now)
                if not standing:
                    self._roll.withdraw(rank, ended)
                if closed:
                    self._roll.announce(rank, closed, closed_why, now)
                peer.ended, peer.count = ended, count
                peer.notes = [(sequence, what) for sequence, what in said["notes"]]
        self._news = news

    def _raise_if_told(self, wait: Any, entered: float, now: float) -> None:
        everybody = [True] * self._size  # of whose arrival nothing is asked
        self._roll.check(self._me, wait, everybody, entered, now)

    def _raise_if_astray(self, missing: list[int], place: _Place, until: float, now: float) -> None:
        """Ranks that went on without this one, or that wait where it will never come."""
        sides: list[tuple[_Place, list[int]]] = []
        for rank in missing:
            text = self._line.get(f"at/{rank}", until)
            if text is None:
                continue
            there = _Place.read(text)
            peer = self._peers[rank]
            behind = there < place and there.index > self._taken.get(there.sequence, -1)
            ended = self._say["ended"][0] == there.sequence or peer.ended == there.sequence
            if there > place:
                sides.append((there, [rank]))
            elif behind and not ended and there.sequence >= min(self._taken):
                # It may be about to leave, after an error that it has just been told of.
                if peer.astray is None or peer.astray[0] != there:
                    peer.astray = (there, now)
                elif now - peer.astray[1] > _LEAVING:
                    sides.append((there, [rank]))
        if sides:
            raise _core.Disagreement(_out_of_step([*sides, (place, [self._me])]))

    def _raise_if_silent(
        self, missing: set[int], key: str, wait: Any, entered: float, until: float, now: float
    ) -> None:
        for rank in missing:
            peer = self._peers[rank]
            life = self._line.count(f"life/{rank}", until)
            if life != peer.life and peer.life >= 0:
                self._roll.sign(rank, now)
            peer.life = life
        arrived = [rank not in missing for rank in range(self._size)]
        try:
            self._roll.check(self._me, wait, arrived, entered, now)
            return
        except _core.GroupTimeout:
            pass  # the text is to name all who are not here, and only now is it worth asking
        everybody = range(self._size)
        arrived = [r == self._me or self._line.has([f"{key}/{r}"], until) for r in everybody]
        self._roll.check(self._me, wait, arrived, entered, now)

    # -- the side channel ----------------------------------------------------------------------

    def _tell(self, patience: float = 0.0) -> None:
        self._line.post_set(f"say/{self._me}", json.dumps(self._say), "news", patience)

    def abandon(self, sequence: int, why: str) -> None:
        """Tell the others that this rank ended a call with an error."""
        with self._lock:
            self._roll.announce(self._me, sequence, why, time.monotonic())
            if sequence >= _CLOSED:
                if not self._say["closed"][0]:
                    self._say["closed"] = [sequence, why]
            else:
                last, count = self._say["ended"][:2]
                self._say["ended"] = [sequence, count + 1 if last == sequence else 1, why, True]
            # The process may be about to end: give the message a moment to leave.
            self._tell(patience=0.5)

    def withdraw(self, sequence: int) -> None:
        """Take an announcement back."""
        with self._lock:
            self._roll.withdraw(self._me, sequence)
            if self._say["ended"][0] == sequence and self._say["ended"][3]:
                self._say["ended"][3] = False
                self._tell()

    def alive(self) -> None:
        """Give a sign of life; never waits."""
        self._line.post_count(f"life/{self._me}")

    def poll(self, wait: Any) -> None:
        """Raise what is due, without waiting for anybody."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK
        try:
            self._listen(now + wait.patience, now)
        except LineBroken as broken:
            raise _core.GroupTimeout(f"disttune: {broken} (in {wait.phase})") from None
        self._raise_if_told(wait, now, now)

    def note(self, sequence: int, what: int) -> None:
        """Leave a note for the others, valid within a call."""
        with self._lock:
            notes = [n for n in self._say["notes"] if n[0] == sequence][-_NOTES_KEPT:]
            self._say["notes"] = [*notes, [sequence, what]]
            self._tell()

    def noted(self, sequence: int, what: int) -> int | None:
        """Return the lowest other rank that left this note."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK
            try:
                self._listen(now + 1.0, now)
            except LineBroken:
                return None  # the next collective says so
        for rank, peer in enumerate(self._peers):
            if (sequence, what) in peer.notes:
                return rank
        return None


def _out_of_step(sides: list[tuple[_Place, list[int]]]) -> str:
    sides = sorted(sides, key=lambda side: min(side[1]))
    text = ", ".join(f"{_core.name_ranks(ranks)} in {place.described()}" for place, ranks in sides)
    return (
        f"disttune: ranks are out of step: {text}; a rank made a collective that the others did "
        "not make: make the same cold calls, barriers and unify in the same order on all ranks"
    )
