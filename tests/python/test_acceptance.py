"""What a user reads in the documentation, tried from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import disttune
import pytest

PACKAGE = str(Path(disttune.__file__).parent.parent)


def launcher(clock, costs, calls=None, key_fn=lambda x: x, **options):
    @disttune.autotune([{"c": c} for c in costs], key_fn, timer=clock, **options)
    def f(x, c):
        if calls is not None:
            calls.append(c)
        clock.spend(costs[c])
        return c

    return f


# ---- best_configs -------------------------------------------------------------------------------


def test_best_configs_pop_has_a_dicts_manners(clock):
    f = launcher(clock, {1: 30, 2: 20})
    f(7)
    best = f.best_configs
    assert best.pop("absent", 5) == 5
    assert best.pop("absent", default=None) is None
    with pytest.raises(KeyError, match="absent"):
        best.pop("absent")
    with pytest.raises(TypeError, match="object"):
        best.pop(object(), None)
    assert best.pop(7) == {"c": 2}
    assert 7 not in best
    assert best.setdefault(7, {"c": 1}) == {"c": 1}
    assert f(7) == 1
    best.update({8: {"c": 1}})
    assert best.popitem()[1] == {"c": 1}
    best.clear()
    assert not best


@pytest.mark.parametrize("choice", [None, 3, "block", ["c"], [("c", 1)]])
def test_best_configs_takes_mappings_only(clock, choice):
    f = launcher(clock, {1: 30, 2: 20})
    with pytest.raises(TypeError, match="best_configs: a choice maps names of arguments"):
        f.best_configs[7] = choice
    assert not f.best_configs


# ---- stores -------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["/proc/nowhere", "/dev/null/below"])
def test_S30_a_store_that_cannot_be_written_is_one_warning(clock, monkeypatch, home, tmp_path):
    home = f"{home}-{tmp_path.name}"  # a cause is warned of once a process
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_HOME", home)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            f = launcher(clock, {1: 30, 2: 20})
            g = launcher(clock, {1: 30, 2: 20}, name="another")
            assert [f(1), f(2), g(1), f(1)] == [2, 2, 2, 2]
    told = [w for w in caught if issubclass(w.category, disttune.DisttuneWarning)]
    assert len(told) == 1
    assert home in str(told[0].message)
    assert "in this process only" in str(told[0].message)
    assert f.result(1).winner == {"c": 2}


# ---- messages -----------------------------------------------------------------------------------


def test_a_strategy_of_the_environment_is_named_with_its_variable(clock, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_STRATEGY", "fastest")
    calls = []
    f = launcher(clock, {1: 30, 2: 20}, calls)
    with pytest.raises(ValueError, match=r"TRITON_DIST_AUTOTUNE_STRATEGY='fastest'.*fixed"):
        f(1)
    assert calls == []


def test_S86_a_tensor_in_a_key_is_told_where_it_sits_once(clock):
    np = pytest.importorskip("numpy")
    f = launcher(clock, {1: 30}, key_fn=lambda x: (1, x))
    with pytest.raises(TypeError) as caught:
        f(np.zeros(3))
    assert str(caught.value).startswith("disttune: key[1]: a numpy.ndarray of shape (3,)")
    assert str(caught.value).count("disttune:") == 1


def test_what_a_reference_raises_is_the_callers(clock):
    def reference(x):
        raise ZeroDivisionError("no reference for this")

    calls = []
    f = launcher(clock, {1: 30, 2: 20}, calls, check=reference)
    for _ in range(2):  # and nothing is remembered of it
        with pytest.raises(ZeroDivisionError, match="no reference for this"):
            f(1)
    assert calls == []
    assert len(f.best_configs) == 0


@pytest.mark.parametrize("group", [5, "world", object()])
def test_what_is_no_group_is_refused_where_it_is_given(clock, group):
    calls = []
    f = launcher(clock, {1: 30, 2: 20}, calls)
    with pytest.raises(TypeError, match=r"is no group: pass a torch\.distributed group"):
        f(1, autotune_pg=group)
    with pytest.raises(TypeError, match="is no group"):
        disttune.set_default_group(group)
    assert calls == []
    assert f(1) == 2  # the default is as it was


# ---- a launcher that calls itself ---------------------------------------------------------------


@pytest.mark.parametrize("warmup", [0, 5])
def test_a_launcher_that_calls_itself_in_every_run_is_tuned(clock, warmup):
    runs = []

    @disttune.autotune([{"c": 3}, {"c": 1}], None, timer=clock, warmup=warmup)
    def f(depth, c):
        runs.append((depth, c))
        clock.spend(c)
        return c if depth == 0 else f(depth - 1)

    assert f(1) == 1
    # Inside a tuning of the key the default runs, so that is what the samples hold.
    assert [c.samples_ns for c in f.result(1).candidates] == [[6] * 10, [4] * 10]
    runs.clear()
    assert f(1) == 1
    assert runs == [(1, 1), (0, 1)]


def test_a_launcher_that_always_tunes_inside_says_so(clock):
    fresh = iter(range(10_000))
    inner = launcher(clock, {1: 10, 2: 20}, warmup=0, repeat=1)

    @disttune.autotune([{"c": 3}], None, timer=clock, repeat=2)
    def outer(c):
        clock.spend(c)
        inner(next(fresh))

    with pytest.raises(disttune.NoValidConfig, match="tune or measure something themselves"):
        outer()


# ---- explain ------------------------------------------------------------------------------------

DYING = """
    import os, signal, disttune

    class Clock:
        now = 0
        def __call__(self):
            return Clock.now

    costs = {1: 30, 2: 20, 3: 10, 4: 40}
    runs = []

    space = [{"c": c} for c in costs]

    @disttune.autotune(space, lambda x: x, timer=Clock(), name="op", version="1")
    def f(x, c):
        runs.append(c)
        if c == 3 and runs.count(3) == 7 and os.environ.get("DIE"):
            os.kill(os.getpid(), signal.SIGKILL)
        Clock.now += costs[c]
        return c
"""


def child(body, **environment):
    program = textwrap.dedent(DYING) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": PACKAGE, **environment},
    )


def test_S28_a_crash_is_in_explain_before_and_after_the_next_tuning():
    assert child("f(1)", DIE="1").returncode == -signal.SIGKILL
    done = child(
        """
        before = str(f.explain(1))
        assert "c=3 crashed: a process died while it ran" in before, before
        assert f(1) == 2
        assert (runs.count(1), runs.count(2), runs.count(3), runs.count(4)) == (0, 1, 0, 15)
        after = f.explain(1)
        assert after.source == "memory"
        assert "c=3: crashed" in str(after), after
        assert "nearest" not in str(after)
        assert [c.status for c in f.result(1).candidates] == ["ok", "ok", "crashed", "ok"]
        """
    )
    assert done.returncode == 0, done.stderr
    done = child('assert "c=3: crashed" in str(f.explain(1)); assert f(1) == 2')
    assert done.returncode == 0, done.stderr
    done = child("assert f(1) == 3, runs", TRITON_DIST_AUTOTUNE_RETRY_CRASHED="1")
    assert done.returncode == 0, done.stderr


def test_S21_explain_tells_of_candidates_that_the_record_does_not_have(clock):
    def f(space):
        @disttune.autotune([{"c": c} for c in space], None, timer=clock)
        def f(c):
            clock.spend(c)
            return c

        return f

    assert f([3, 2])() == 2
    changed = f([3, 2, 1])
    assert "c=1: not in the record" in str(changed.explain())
    assert changed() == 1
    assert "not in the record" not in str(changed.explain())


def test_explain_tells_a_default_from_a_choice(clock, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "cached")
    f = launcher(clock, {1: 30, 2: 20})
    with pytest.warns(disttune.DisttuneWarning, match="is not tuned"):
        assert f(1) == 1
    told = f.explain(1)
    assert told.source == "memory"
    assert told.config == {"c": 1}
    assert "not from the store: no record" in str(told)


# ---- memory -------------------------------------------------------------------------------------


def test_S72_calls_with_a_fresh_closure_each_leave_nothing_behind(clock):
    import gc

    f = launcher(clock, {1: 30, 2: 20}, key_fn=lambda x: 0)
    f(None)

    def some(count):
        for i in range(count):
            f(lambda i=i: i)
        gc.collect()
        return len(gc.get_objects())

    before = some(100)
    assert some(5000) - before < 50
    assert len(f.best_configs) == 1


def test_S75_a_forked_child_goes_on(clock):
    f = launcher(clock, {1: 30, 2: 20})
    f(1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if [f(1), f(2)] == [2, 2] else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    calls = len(f.best_configs)
    assert f(2) == 2
    assert len(f.best_configs) == calls + 1


def test_S29_the_record_is_on_disk_when_the_call_returns():
    assert child("f(1); os._exit(0)").returncode == 0
    assert child("assert f(1) == 3; assert runs == [3]").returncode == 0


def test_S25_many_processes_tune_one_key_at_once(store):
    program = textwrap.dedent(DYING) + "print(f(1))"
    with_path = {**os.environ, "PYTHONPATH": PACKAGE}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=with_path,
        )
        for _ in range(6)
    ]
    for process in running:
        out, err = process.communicate()
        assert (out.strip(), err) == ("3", "")
    left = [path.name for path in (store / "op").iterdir() if ".log-" not in path.name]
    assert len([name for name in left if name.endswith(".json")]) == 1
    assert not [name for name in left if "tmp" in name or "journal" in name]


def test_S87_a_notice_is_given_once_for_many_calls_of_many_threads(clock):
    f = launcher(clock, {1: 30, 2: 20}, key_fn=lambda x, c=None: x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f(1, c=1, autotune_allow_arg_overwrite=True)
        threads = [
            threading.Thread(
                target=lambda: [f(1, c=1, autotune_allow_arg_overwrite=True) for _ in range(1000)]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(caught) == 1
