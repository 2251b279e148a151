"""What a rank in a key-value store's group makes of the others' announcements."""

import threading
import time
from types import SimpleNamespace

import disttune
import pytest
from disttune import _core
from disttune._store_group import StoreGroup
from disttune._store_line import StoreLine

CLOSED = {"failure": 2**64 - 1, "timeout": 2**64 - 2, "disagreement": 2**64 - 3}


class Store:
    """As much of a torch store as a line needs."""

    def __init__(self):
        self.values = {}
        self.lock = threading.Lock()

    def check(self, keys):
        with self.lock:
            return all(key in self.values for key in keys)

    def get(self, key):
        with self.lock:
            return self.values[key]

    def set(self, key, value):
        with self.lock:
            self.values[key] = value.encode()

    def add(self, key, by):
        with self.lock:
            value = int(self.values.get(key, b"0")) + by
            self.values[key] = str(value).encode()
            return value

    def delete_key(self, key):
        with self.lock:
            return self.values.pop(key, None) is not None


@pytest.fixture
def seats():
    store = Store()
    return [StoreGroup(StoreLine(store, "x/"), rank, 3, [3]) for rank in range(3)]


def wait(sequence=1, first=False):
    return SimpleNamespace(
        deadline=time.monotonic() + 600, patience=600.0, sequence=sequence, phase="batch",
        first=first,
    )  # fmt: skip


def say(seat, *words):
    """Make a rank announce calls (negative: take back), and wait until the store has heard it."""
    for word in words:
        if word < 0:
            seat.withdraw(-word)
        else:
            seat.abandon(word, f"reason {word}")
    seat._line.count("news", time.monotonic() + 600)


# What this rank said, what another rank said, of what kind the wait is, what is due.
RULES = {
    "nothing was said": ([], [], wait(), None),
    "a peer ended this call": ([], [1], wait(), disttune.PeerFailed),
    "a peer ended a later call": ([], [2], wait(), disttune.PeerFailed),
    "a peer ended an earlier call": ([], [1], wait(2), None),
    "it was taken back": ([], [1, -1], wait(), None),
    "it was taken back and said again": ([], [1, -1, 1], wait(), disttune.PeerFailed),
    "it may be an old one": ([], [1], wait(first=True), None),
    "both failed in the same calls": ([1], [1], wait(first=True), None),
    "a peer failed once more": ([1, 1, -1], [1, -1, 1], wait(), disttune.PeerFailed),
    "a peer failed more rarely, and only now": ([1, 1, 1, -1], [1], wait(), disttune.PeerFailed),
    "a peer closed after a failure": ([], [CLOSED["failure"]], wait(), disttune.PeerFailed),
    "a peer closed after waiting": ([], [CLOSED["timeout"]], wait(), disttune.GroupTimeout),
    "a peer closed out of step": ([], [CLOSED["disagreement"]], wait(), disttune.Disagreement),
    "who failed first is asked before": ([], [1, CLOSED["timeout"]], wait(), disttune.PeerFailed),
}


@pytest.mark.parametrize(("own", "other", "waits", "due"), RULES.values(), ids=RULES)
def test_announcements(seats, own, other, waits, due):
    say(seats[0], *own)
    say(seats[2], *other)
    if due is None:
        seats[0].poll(waits)
    else:
        with pytest.raises(due, match="reason"):
            seats[0].poll(waits)


def test_an_announcement_of_the_call_at_hand_counts_after_its_first_collective(seats):
    """Ranks that failed before are told of what fails now, however often they failed."""
    say(seats[0], 1, 1, -1)
    say(seats[1], 1, -1)
    seats[0].poll(wait(first=True))
    say(seats[1], 1)
    seats[0]._next_look = 0.0
    with pytest.raises(disttune.PeerFailed, match="rank 1 ended cold call 1"):
        seats[0].poll(wait())


def test_silence():
    roll = _core.RollCall(3)
    late = SimpleNamespace(deadline=10.0, patience=5.0, sequence=4, phase="batch", first=False)
    arrived = [True, False, False]
    roll.check(0, late, arrived, 5.0, 9.0)
    roll.sign(1, 9.0)
    with pytest.raises(disttune.GroupTimeout, match="from rank 2 within 5 s, in batch of cold"):
        roll.check(0, late, arrived, 5.0, 10.0)
    with pytest.raises(disttune.GroupTimeout, match="from ranks 1, 2"):
        roll.check(0, late, arrived, 5.0, 14.0)
    roll.check(0, late, [True] * 3, 5.0, 14.0)
    for where in (-1, 3):
        with pytest.raises(ValueError, match="rank"):
            roll.sign(where, 1.0)
    with pytest.raises(ValueError, match="arrived"):
        roll.check(0, late, [True], 5.0, 9.0)
