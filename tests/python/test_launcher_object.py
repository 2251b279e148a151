"""The tuned function as an object: a function's manners, and what it keeps alive."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import weakref

import disttune
import pytest
from launcher_rig import make


def test_it_looks_like_the_function(clock):
    f = make(clock=clock)
    assert f.__name__ == "f"
    assert f.__doc__ == "Say what runs."
    assert f.__wrapped__ is f.fn
    assert f.__module__ == make.__module__
    assert list(inspect.signature(f).parameters) == ["x", "n", "block"]
    assert f.fn(1, block=5) == (1, 0, 5)
    assert f.config_space == [{"block": 1}, {"block": 2}, {"block": 3}]
    assert f.name == "f"
    assert callable(f.key_fn)
    assert f.prune_fn is None
    f.note = "mine"
    assert f.note == "mine"


def test_it_works_as_a_method(clock):
    class Layer:
        scale = 3

        @disttune.autotune([{"c": 1}, {"c": 2}], lambda self, x: x, timer=clock)
        def forward(self, x, c):
            clock.spend(c)
            return (self.scale, x, c)

        @staticmethod
        @disttune.autotune([{"c": 1}], lambda x: x, timer=clock)
        def static(x, c):
            clock.spend(c)
            return x

    layer = Layer()
    assert layer.forward(5) == (3, 5, 1)
    assert layer.forward(x=5) == (3, 5, 1)
    assert Layer.forward(layer, 5) == (3, 5, 1)
    bound = layer.forward
    assert bound(5) == (3, 5, 1)
    assert layer.static(4) == 4


@disttune.autotune([{"c": 1}], None)
def importable(c):
    return c


def test_S85_it_pickles_by_name():
    assert pickle.loads(pickle.dumps(importable)) is importable
    f = make()
    with pytest.raises(pickle.PicklingError, match="top level"):
        pickle.dumps(f)
    assert copy.copy(f) is f
    assert copy.deepcopy(f) is f


def test_S72_launchers_made_without_end_are_collected(clock):
    died = []

    class Captured:
        pass

    for _ in range(20):
        captured = Captured()
        weakref.finalize(captured, died.append, 1)

        def run(x, c, captured=captured):
            return captured

        disttune.autotune([{"c": 1}], lambda x: x, timer=clock)(run)(1, autotune=False)
        del captured, run
    gc.collect()
    assert len(died) == 20


def test_a_cycle_through_the_function_is_collected(clock):
    def build():
        holder = []

        @disttune.autotune([{"c": 1}], None, timer=lambda: holder and 1)
        def f(c):
            return holder

        holder.append(f)
        return weakref.ref(f)

    ref = build()
    gc.collect()
    assert ref() is None


def test_S73_a_warm_call_keeps_no_argument_alive(clock):
    class Argument:
        pass

    @disttune.autotune([{"c": 1}, {"c": 2}], lambda x, n: n, timer=clock)
    def f(x, n, c):
        clock.spend(c)

    argument = Argument()
    f(argument, 1)
    f(argument, n=1)
    f(x=argument, n=1)
    ref = weakref.ref(argument)
    del argument
    assert ref() is None, "neither the cold call nor the warm ones kept it"


def test_a_failing_candidate_keeps_nothing_alive(clock):
    class Argument:
        pass

    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)
    def f(x, c):
        clock.spend(c)
        if c == 1:
            raise RuntimeError("no", x)

    argument = Argument()
    f(argument)
    ref = weakref.ref(argument)
    del argument
    assert ref() is None


def test_results_and_exceptions_of_warm_calls_are_the_callers(clock):
    fail = [False]

    @disttune.autotune([{"c": 1}], None, timer=clock)
    def f(c):
        clock.spend(c)
        if fail[0]:
            raise KeyError("mine")
        return c

    f()
    fail[0] = True
    with pytest.raises(KeyError, match="mine"):
        f()


def test_the_table_may_be_cleared_from_inside_the_function(clock):
    @disttune.autotune([{"c": [1, 2, 3]}], None, timer=clock)
    def f(c):
        f.best_configs.clear()
        clock.spend(5)
        gc.collect()
        return list(c)

    assert f() == [1, 2, 3]
    assert f() == [1, 2, 3]


def test_partials_and_callable_objects(clock):
    def run(a, x, c):
        clock.spend(c)
        return (a, x, c)

    f = disttune.autotune([{"c": 1}], None, timer=clock)(functools.partial(run, 5))
    assert f(6) == (5, 6, 1)
    assert f.name == "run"

    class Callable:
        def __call__(self, x, c):
            clock.spend(c)
            return (x, c)

    g = disttune.autotune([{"c": 1}], None, timer=clock)(Callable())
    assert g(6) == (6, 1)


@pytest.mark.parametrize(
    "decorate",
    [disttune.autotune([{"b": 1}], None), disttune.contextual_autotune(), disttune.measure],
)
def test_what_only_starts_its_work_is_refused(decorate):
    class Asynchronous:
        async def __call__(self, b):
            pass

    async def generates(b):
        yield b

    for fn in (Asynchronous(), generates):
        with pytest.raises(TypeError, match="only starts its work"):
            decorate(fn)
