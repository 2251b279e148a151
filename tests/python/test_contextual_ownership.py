"""Which launches belong to a contextual call: of which thread, call, tuner and class."""

import threading

import disttune
import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, blocks_of, make_kernel
from triton.runtime.autotuner import Autotuner, Config


def test_a_call_inside_a_call_names_both(clock, tune):
    kernel = make_kernel(clock)

    @tune()
    def inner():
        kernel[(1,)](Tensor(), 1)

    @tune()
    def outer():
        inner()

    for _ in range(2):
        with pytest.raises(disttune.NestedContext, match=r"inner.*inside.*outer"):
            outer()
        inner()  # decided or not
    with pytest.raises(disttune.NestedContext):
        outer()


def test_a_call_beside_a_call_names_both(clock, tune):
    started, go_on = threading.Event(), threading.Event()

    @tune()
    def first():
        started.set()
        go_on.wait(60)

    second = tune()(lambda: None)
    thread = threading.Thread(target=first)
    thread.start()
    started.wait(60)
    try:
        with pytest.raises(disttune.NestedContext, match=r"lambda.*first"):
            second()
    finally:
        go_on.set()
        thread.join()
    second()


def test_plain_launches_of_other_python_threads_are_tritons_own(clock, tune):
    def bench(call, quantiles):
        call()
        return [1.0, 1.0, 1.0]

    kernel, other = make_kernel(clock), make_kernel(clock, do_bench=bench)

    @tune()
    def outer():
        kernel[(1,)](Tensor(), 1)
        thread = threading.Thread(target=lambda: other[(1,)](Tensor(), 1))
        thread.start()
        thread.join()

    outer()
    assert other.configs_timings[other.configs[0]] == [1.0, 1.0, 1.0]
    assert kernel.best_config.kwargs["BLOCK"] == 2


def test_an_autotuner_above_another_is_two_contexts(clock, tune):
    inner = make_kernel(clock, (4, 2, 8), name="inner")
    outer_kernel = make_kernel(
        clock, configs=[Config({"STAGES": 3}), Config({"STAGES": 1})], name="unused"
    )

    class Above:
        fn = inner
        arg_names = ("x", "n", "BLOCK", "STAGES")

        def run(self, *args, STAGES, **kwargs):
            clock.spend(1000 * STAGES)
            stages.append(STAGES)
            return inner.run(*args, **kwargs)

    stages = []
    outer_kernel.fn = Above()
    passes = []

    @tune()
    def outer():
        passes.append(1)
        return outer_kernel[(1,)](Tensor(), 1)

    assert outer() == ("compiled", 2)
    assert stages[-1] == 1
    assert inner.best_config.kwargs == {"BLOCK": 2}
    assert outer_kernel.best_config.kwargs == {"STAGES": 1}
    assert len(passes) <= 3 * 3 + 2 * 3 + 1
    passes.clear()
    outer()
    assert len(passes) == 1


class OwnRun(Autotuner):
    """As forks do: a run that never reaches its base's."""

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        if self.nargs["n"] not in self.cache:
            for config in self.prune_configs(kwargs):
                raise AssertionError(f"measured {config}")
        raise AssertionError("not intercepted")


class PassesOn(Autotuner):
    def run(self, *args, **kwargs):
        kwargs["n"] = 2 * kwargs["n"]
        return super().run(*args, **kwargs)


class AxisTuner(Autotuner):
    """As Triton-Ascend's: keys by axis, configurations made for each key in its own run."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.keys = {"x": "n"}

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        key = (self.nargs["n"], self.nargs["x"].dtype)
        if key not in self.cache:
            self.configs = [Config({"BLOCK": self.nargs["n"] * k}) for k in (1, 2, 3)]
            pruned = self.prune_configs(kwargs)
            raise AssertionError(f"measured {pruned}")
        raise AssertionError("not intercepted")


class KeyTuner(AxisTuner):
    def generate_key_and_configs(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        self.configs = [Config({"BLOCK": self.nargs["n"] * k}) for k in (3, 2, 1)]
        return (self.nargs["n"], self.nargs["x"].dtype, "mode")


def test_a_subclass_with_a_run_of_its_own(clock, tune):
    kernel = make_kernel(clock, cls=OwnRun)
    run = OwnRun.__dict__["run"]
    assert tune()(lambda: kernel[(1,)](Tensor(), 1))() == ("compiled", 2)
    assert OwnRun.__dict__["run"] is run


def test_a_subclass_that_calls_its_base(clock, tune):
    kernel = make_kernel(clock, cls=PassesOn)
    tune()(lambda: kernel[(1,)](Tensor(), n=3))()
    assert {launch.named["n"] for launch in kernel.fn.launches} == {6}
    assert list(kernel.cache) == [(6, "float32")]


def test_a_class_that_is_made_inside_the_call(clock, tune):
    made = []

    @tune()
    def outer():
        if not made:

            class Late(Autotuner):
                def run(self, *args, **kwargs):
                    return ("own",)

            made.append(make_kernel(clock, cls=Late))
            made.append(make_kernel(clock))
            made[1][(1,)](Tensor(), 1)
            return None
        made[1][(1,)](Tensor(), 1)
        return made[0][(1,)](Tensor(), 1)

    outer()
    assert made[1].best_config.kwargs["BLOCK"] == 2
    assert "disttune" not in type(made[0]).run.__module__


@pytest.mark.parametrize(
    "cls, key", [(AxisTuner, (5, "float32")), (KeyTuner, (5, "float32", "mode"))]
)
def test_configurations_that_are_made_for_each_key(clock, tune, cls, key):
    kernel = make_kernel(clock, cls=cls)
    outer = tune()(lambda: kernel[(1,)](Tensor(), 5))
    assert outer() == ("compiled", 5)
    assert set(blocks_of(kernel)) == {5, 10, 15}
    assert list(kernel.cache) == [key]
    kernel.fn.launches.clear()
    assert outer() == ("compiled", 5)
    assert len(kernel.fn.launches) == 1
