"""What a tuned function does with groups: which one a call uses, and what it tells the ranks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import disttune
import pytest
from disttune import _core, _groups


class Meeting:
    """The shared part of a group whose ranks are threads."""

    def __init__(self, size):
        self.size = size
        self.condition = threading.Condition()
        self.rounds = {}
        self.ended = {}

    def reduce(self, rank, values, at):
        with self.condition:
            there = self.rounds.setdefault(at, {})
            there[rank] = values
            self.condition.notify_all()
            while len(there) < self.size:
                for other, (sequence, why) in self.ended.items():
                    if other != rank and sequence >= at[0]:
                        raise disttune.PeerFailed(f"rank {other} ended: {why}")
                if not self.condition.wait(30):
                    raise disttune.GroupTimeout("nobody came")
            return [max(column) for column in zip(*there.values(), strict=True)]


class Seat(disttune.ProcessGroup):
    def __init__(self, meeting, rank):
        super().__init__(rank, meeting.size, [meeting.size])
        self.meeting = meeting
        self.collectives = 0
        self.said = []

    def all_reduce_max(self, values, wait):
        self.collectives += 1
        return self.meeting.reduce(self.rank, values, (wait.sequence, self.collectives))

    def abandon(self, sequence, why):
        self.said.append((sequence, why))
        with self.meeting.condition:
            self.meeting.ended[self.rank] = (sequence, why)
            self.meeting.condition.notify_all()


def on_ranks(work, size=2):
    """Run `work(seat)` on threads as ranks; results in the order of ranks."""
    meeting = Meeting(size)
    seats = [Seat(meeting, rank) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(work, seat) for seat in seats]
        return [future.exception() or future.result() for future in futures], seats


def make(store, costs, key_fn=lambda x: x, rank=0, name="f"):
    clock = [1000]

    @disttune.autotune(
        [{"c": c} for c in (1, 2, 3)],
        key_fn,
        timer=lambda: clock[0],
        store=store / f"rank{rank}",
        name=name,
        version="1",
    )
    def f(x, c):
        clock[0] += costs[c]
        return c

    return f


def test_all_ranks_choose_by_the_slowest(tmp_path):
    costs = [{1: 10, 2: 50, 3: 40}, {1: 90, 2: 50, 3: 60}]

    def work(seat):
        f = make(tmp_path, costs[seat.rank], rank=seat.rank)
        first = f(5, autotune_pg=seat)
        used = seat.collectives
        assert f(5, autotune_pg=seat) == first
        assert seat.collectives == used, "a warm call performs no collective"
        assert used > 0
        return first

    results, _ = on_ranks(work)
    assert results == [2, 2]


def test_two_groups_are_two_places(tmp_path):
    def work(seat):
        f = make(tmp_path, {1: 1, 2: 2, 3: 3}, rank=seat.rank)
        f(5, autotune_pg=seat)
        f(5, autotune_pg=disttune.LOCAL)
        return len(f.best_configs), f.result(5).group, f.result(5, autotune_pg=seat).group

    results, _ = on_ranks(work)
    for keys, local, group in results:
        assert keys == 1, "one caller's key, whoever decided it"
        assert local is None
        assert group["size"] == 2


def test_best_configs_shows_what_an_explicit_group_decided(tmp_path):
    def work(seat):
        f = make(tmp_path, {1: 3, 2: 2, 3: 1}, rank=seat.rank)
        f(5, autotune_pg=seat)
        seen = (f.best_configs.get(5), 5 in f.best_configs, True in f.best_configs)
        seen += (list(f.best_configs), len(f.best_configs))
        f.best_configs[5] = {"c": 2}
        seen += (f(5, autotune_pg=seat),)
        popped = f.best_configs.pop(5)
        seen += (popped, f.best_configs.get(5))
        f(5, autotune_pg=seat)
        f.best_configs.clear()
        return (*seen, len(f.best_configs))

    results, _ = on_ranks(work)
    assert results == [({"c": 3}, True, False, [5], 1, 2, {"c": 2}, None, 0)] * 2


def test_the_default_groups_choice_comes_first(tmp_path):
    def work(seat):
        f = make(tmp_path, {1: 3, 2: 2, 3: 1}, rank=seat.rank)
        f(5, autotune_pg=seat)
        f.best_configs[5] = {"c": 1}  # as if the group had chosen otherwise
        f(5, autotune_pg=disttune.LOCAL)
        return f.best_configs[5]

    results, _ = on_ranks(work)
    assert results == [{"c": 3}] * 2


def test_a_key_function_that_raises_tells_the_others(tmp_path):
    def work(seat):
        def key(x):
            if seat.rank == 1:
                raise ZeroDivisionError("mine")
            return x

        f = make(tmp_path, {1: 1, 2: 2, 3: 3}, key, rank=seat.rank)
        return f(5, autotune_pg=seat)

    results, seats = on_ranks(work)
    assert isinstance(results[0], disttune.PeerFailed)
    assert isinstance(results[1], ZeroDivisionError)
    assert "ZeroDivisionError: mine" in seats[1].said[0][1]


def test_a_collision_on_one_rank_is_told_to_the_others(tmp_path):
    def work(seat):
        f = make(tmp_path, {1: 3, 2: 2, 3: 1}, rank=seat.rank)
        return f(5, autotune_pg=seat, **({"c": 2} if seat.rank == 1 else {}))

    results, seats = on_ranks(work)
    assert isinstance(results[0], disttune.PeerFailed)
    assert isinstance(results[1], ValueError)
    assert "ValueError" in seats[1].said[0][1]


class NoBool:
    def __bool__(self):
        raise ArithmeticError("neither")


# Calls that fail on this rank ahead of the session, each with its error.
MISFITS = {
    "an unknown keyword": ((5,), {"colour": "red"}, TypeError),
    "a key without a text": ((object(),), {}, TypeError),
    "a switch that is none": ((5,), {"autotune_verbose": NoBool()}, ArithmeticError),
    "a warning that is an error": (
        (5,),
        {"c": 2, "autotune_allow_arg_overwrite": True},
        disttune.DisttuneWarning,
    ),
}


@pytest.mark.filterwarnings("error::disttune.DisttuneWarning")
@pytest.mark.parametrize(("args", "kwargs", "error"), MISFITS.values(), ids=MISFITS)
def test_a_call_that_fails_ahead_of_the_session_tells_the_others(tmp_path, args, kwargs, error):
    def work(seat):
        # A name of its own: a warning is given once a process.
        f = make(tmp_path, {1: 1, 2: 2, 3: 3}, disttune.key("x"), rank=seat.rank, name="misfit")
        if seat.rank == 0:
            return f(5, autotune_pg=seat)
        return f(*args, autotune_pg=seat, **kwargs)

    results, seats = on_ranks(work)
    assert isinstance(results[1], error)
    assert isinstance(results[0], disttune.PeerFailed)
    assert len(seats[1].said) == 1
    assert type(results[1]).__name__ in seats[1].said[0][1]


def test_the_default_group(tmp_path):
    def work(seat):
        f = make(tmp_path, {1: 3, 2: 2, 3: 1}, rank=seat.rank)
        f(5)
        return f, seat.collectives

    try:
        disttune.set_default_group(disttune.LOCAL)
        results, _ = on_ranks(work)
    finally:
        disttune.set_default_group(None)
    assert [used for _, used in results] == [0, 0]


def test_what_is_no_group_is_refused(tmp_path):
    f = make(tmp_path, {1: 3, 2: 2, 3: 1})
    with pytest.raises(TypeError, match="3 is no group"):
        f(5, autotune_pg=3)


def test_a_group_that_forgot_its_base_class_is_refused(tmp_path):
    class Headless(disttune.ProcessGroup):
        def __init__(self):
            pass

    calls = (
        make(tmp_path, {1: 3, 2: 2, 3: 1}),
        lambda _, autotune_pg: disttune.barrier(autotune_pg),
        lambda _, autotune_pg: disttune.unify(autotune_pg),
        lambda _, autotune_pg: disttune.measure(lambda: None, group=autotune_pg),
        lambda _, autotune_pg: disttune.set_default_group(autotune_pg),
    )
    for call in calls:
        with pytest.raises(TypeError, match=r"Headless.*super\(\).__init__"):
            call(5, autotune_pg=Headless())


def test_a_group_of_one_node_need_not_say_so():
    group = disttune.ProcessGroup(1, 2)
    assert (group.rank, group.size, list(group.ranks_per_node)) == (1, 2, [2])


@pytest.mark.parametrize("answer", [2**63 - 1, -(2**63), 2**41])
def test_a_reduction_that_is_none_is_an_error_that_says_so(tmp_path, answer):
    class Broken(disttune.ProcessGroup):
        def all_reduce_max(self, values, wait):
            return [answer] * len(values)

        def abandon(self, sequence, why):
            pass

    with pytest.raises(disttune.Error, match="reduction is broken"):
        disttune.unify(Broken(0, 2), store=tmp_path / "store")


def test_barrier(tmp_path):
    results, seats = on_ranks(lambda seat: disttune.barrier(seat, timeout=30))
    assert results == [None, None]
    assert all(seat.collectives > 0 for seat in seats)
    assert disttune.barrier() is None


@pytest.mark.parametrize("timeout", [0, -1, 1.1e9, float("inf"), float("nan"), True, "60"])
def test_times_that_no_clock_can_count_are_refused(timeout):
    for wait in (disttune.barrier, disttune.unify):
        with pytest.raises(ValueError, match="seconds"):
            wait(timeout=timeout)


@pytest.mark.parametrize("timeout", [1e9, 1e10, float("inf"), float("nan"), -1.0])
def test_the_core_counts_no_time_backwards(timeout):
    class Waits(disttune.ProcessGroup):
        def all_reduce_max(self, values, wait):
            self.patience = wait.patience
            return values

        def abandon(self, sequence, why):
            raise AssertionError(why)

    group = Waits(0, 2, [2])
    _core.barrier(group, timeout)
    assert group.patience == (1e9 if timeout > 0 else 0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 600), ("1e9", 1e9), ("1e10", 600), ("inf", 600)]
)
def test_ranks_meet_within_the_timeout_that_the_session_reads(monkeypatch, text, seconds):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_TIMEOUT", text)
    assert _groups._timeout() == seconds


def test_unify(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    costs = [{1: 1, 2: 5, 3: 9}, {1: 9, 2: 5, 3: 1}]
    tuned = [make(tmp_path, costs[rank], rank=rank) for rank in range(2)]
    lone = [f(5) for f in tuned]
    assert lone == [1, 3]
    tuned[1](6)

    def work(seat):
        f = tuned[seat.rank]
        f(7, autotune_pg=seat)
        agreed = f.best_configs[7]
        changed = disttune.unify(seat, store=f"~/rank{seat.rank}")
        used = seat.collectives
        choices = f(5), f(6), f(7, autotune_pg=seat)
        assert seat.collectives == used, "what a group chose is still warm"
        return changed, choices, agreed

    results, _ = on_ranks(work)
    assert [changed for changed, _, _ in results] == [["f"], ["f"]]
    assert results[0][1] == results[1][1]
    assert results[0][1][:2] == (1, 3)
    assert results[0][2] == results[1][2]

    assert disttune.unify() == []
    with pytest.raises(TypeError, match="name"):
        disttune.unify(name=3)
