"""The contextual function as an object, and that a call of it leaves everything as it was."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import sys
import threading
import weakref

import disttune
import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, make_kernel
from disttune._triton_dist_autotuner import ContextualAutoTuner
from triton.runtime.autotuner import Autotuner

ORIGINAL_RUN = Autotuner.run


@pytest.fixture
def tune(clock):
    return disttune.contextual_autotune(n_warmup=0, n_repeat=1, timer=clock, cache="hot")


@pytest.fixture
def steady(clock, tune):
    """A decided kernel, and a contextual function that launches it and returns its arguments."""
    kernel = make_kernel(clock)

    @tune
    def outer(*args, **kwargs):
        assert Autotuner.run is not ORIGINAL_RUN
        kernel[(1,)](Tensor(), 1)
        return args, kwargs

    for _ in range(3):
        outer()
    kernel.fn.launches.clear()
    return kernel, outer


# ---- the object ---------------------------------------------------------------------------------


@disttune.contextual_autotune()
def importable(x, *, y=2):
    """Say both."""
    return x, y


def test_it_looks_like_the_function(tune):
    assert isinstance(importable, ContextualAutoTuner)
    assert importable.__name__ == importable.__qualname__ == importable.name == "importable"
    assert importable.__doc__ == "Say both."
    assert importable.__module__ == __name__
    assert importable.__wrapped__ is importable.fn
    assert str(inspect.signature(importable)) == "(x, *, y=2)"
    assert repr(importable) == "<contextual_autotune of importable>"
    assert importable(1) == importable(x=1) == (1, 2)
    assert importable(*(1,), **{"y": 3}) == (1, 3)
    importable.note = "mine"
    assert vars(importable)["note"] == "mine"
    assert weakref.ref(importable)() is importable
    with pytest.raises(AttributeError):
        importable.fn = None


def test_a_callable_without_a_name(tune):
    class Callable:
        def __call__(self, x):
            return x

    outer = tune(Callable())
    assert outer(5) == 5
    assert outer.name == "Callable"


def test_it_pickles_by_name(tune):
    assert pickle.loads(pickle.dumps(importable)) is importable
    with pytest.raises(pickle.PicklingError, match="top level"):
        pickle.dumps(tune(lambda: None))
    assert copy.copy(importable) is copy.deepcopy(importable) is importable


def test_methods(tune):
    class Layer:
        @tune
        def forward(self, *args, **kwargs):
            return self, args, kwargs

        @staticmethod
        @tune
        def static(x):
            return x

        @classmethod
        def made(cls):
            return cls

    layer = Layer()
    bound = layer.forward
    assert inspect.ismethod(bound) and bound.__self__ is layer
    assert bound(1, a=2) == layer.forward(1, a=2) == (layer, (1,), {"a": 2})
    assert Layer.forward(layer, 1) == (layer, (1,), {})
    assert bound.fn is Layer.forward.fn
    assert layer.static(4) == Layer.static(4) == 4


def test_a_cycle_through_the_function_is_collected(tune):
    def build():
        holder = []
        outer = tune(lambda: holder)
        holder.append(outer)
        outer()
        return weakref.ref(outer)

    ref = build()
    gc.collect()
    assert ref() is None


# ---- a steady call ------------------------------------------------------------------------------


def test_arguments_and_result_pass_through(steady):
    kernel, outer = steady
    assert outer(1, [2], a=3) == ((1, [2]), {"a": 3})
    assert outer() == ((), {})
    assert outer(*range(100), **{f"k{i}": i for i in range(100)})[0] == tuple(range(100))
    assert len(kernel.fn.launches) == 3


def test_calls_leave_no_references(steady, tune):
    kernel, outer = steady

    class Failed(Exception):
        pass

    error, x, result = Failed(), Tensor(), object()

    def fail(launch):
        raise error

    give = tune(lambda *args, **kwargs: result)
    outer_calls = [lambda: outer(x, y=x), lambda: give(x, y=x)]
    watched = [kernel, outer, outer.fn, x, result, error, Autotuner, ORIGINAL_RUN, None, give]

    def counts():
        gc.collect()
        return [sys.getrefcount(o) for o in watched if o is not None]

    def run():
        for _ in range(200):
            for call in outer_calls:
                call()
            kernel.fn.on_launch = fail
            with pytest.raises(Failed):
                outer(x)
            kernel.fn.on_launch = None
            error.__traceback__ = None
        kernel.fn.launches.clear()

    run()
    before = counts()
    run()
    assert counts() == before


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_pass_with_their_traceback(steady, kind):
    kernel, outer = steady

    def fail(launch):
        raise kind("the launch's own")

    kernel.fn.on_launch = fail
    with pytest.raises(kind, match="the launch's own") as caught:
        outer()
    assert "fail" in [entry.name for entry in caught.traceback]
    assert caught.value.__context__ is None
    assert Autotuner.run is ORIGINAL_RUN
    kernel.fn.on_launch = None
    assert outer() == ((), {})


def test_calls_of_many_threads_are_refused_or_made_but_never_mixed(steady):
    kernel, outer = steady
    outcomes, go = [], threading.Barrier(8)

    def work():
        go.wait()
        for i in range(300):
            try:
                outcomes.append(outer(i) == ((i,), {}))
            except disttune.NestedContext:
                outcomes.append(None)
            assert kernel.cache

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(outcomes) == 8 * 300
    assert False not in outcomes
    assert outcomes.count(True) == len(kernel.fn.launches)


def test_the_first_passes_result_is_gone_when_the_second_begins(clock, tune):
    kernel, alive = make_kernel(clock), []

    class Result:
        pass

    @tune
    def outer():
        assert all(ref() is None for ref in alive)
        kernel[(1,)](Tensor(), 1)
        result = Result()
        alive.append(weakref.ref(result))
        return result

    assert outer() is alive[-1]()
    assert len(alive) > 1


def test_a_forked_child_has_no_call(steady, tune):
    kernel, outer = steady
    pids = []

    @tune
    def forking():
        kernel[(1,)](Tensor(), 1)
        pid = os.fork()
        if pid == 0:
            good = Autotuner.run is ORIGINAL_RUN and outer(1) == ((1,), {})
            os._exit(0 if good else 1)
        pids.append(pid)

    forking()
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0]


# ---- Triton's classes ---------------------------------------------------------------------------


def test_a_run_that_was_replaced_during_the_call_stays(steady):
    kernel, outer = steady
    calls, wrappers = [], []

    def replace(launch):
        ours = Autotuner.run

        def wrapper(self, *args, **kwargs):
            calls.append(1)
            return ours(self, *args, **kwargs)

        Autotuner.run = wrapper
        wrappers.append(wrapper)

    kernel.fn.on_launch = replace
    outer()
    kernel.fn.on_launch = None
    try:
        assert [Autotuner.run] == wrappers
        kernel[(1,)](Tensor(), 1)
        assert calls == [1]
        outer()
        assert [Autotuner.run] == wrappers
        assert len(kernel.fn.launches) == 3
    finally:
        Autotuner.run = ORIGINAL_RUN


def test_a_class_below_one_that_has_no_run_is_found(clock, tune):
    class Between(Autotuner):
        pass

    between, calls = make_kernel(clock, cls=Between), []
    first = tune(lambda: between[(1,)](Tensor(), 1))
    first()

    class Below(Between):
        def run(self, *args, **kwargs):
            self._bench(*args, config=self.configs[0], **kwargs)
            raise AssertionError("not intercepted")

    below = make_kernel(clock, cls=Below)
    own = Below.__dict__["run"]
    assert tune(lambda: calls.append(below[(1,)](Tensor(), 1)))() is None
    assert calls[-1] == ("compiled", 2)
    assert Below.__dict__["run"] is own

    def other(self, *args, **kwargs):
        self.prune_configs(kwargs)
        raise AssertionError("not intercepted")

    Below.run = other
    assert tune(lambda: below[(1,)](Tensor(), 2))() == ("compiled", 2)
    assert Below.__dict__["run"] is other


def test_classes_that_are_made_without_end_are_let_go(tune):
    outer, refs = tune(lambda: None), []
    for _ in range(5):

        class PassesOn(Autotuner):
            def run(self, *args, **kwargs):
                return super().run(*args, **kwargs)

        class Own(Autotuner):
            def run(self, *args, **kwargs):
                return None

        refs += [weakref.ref(PassesOn), weakref.ref(Own)]
        outer()
    del PassesOn, Own
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)
    outer()
