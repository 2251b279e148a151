"""contextual_autotune over Triton's own Autotuner, with stand-in functions and a scripted clock."""

import functools
import gc
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import weakref

import disttune
import pytest

pytest.importorskip("triton")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from contextual_rig import Tensor, blocks_of, make_kernel
from triton.runtime.autotuner import Autotuner, Config

ORIGINAL_RUN = Autotuner.run


@pytest.fixture(autouse=True)
def logs(tmp_path, monkeypatch):
    folder = tmp_path / "context"
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_CONTEXT_LOGS", str(folder))
    yield folder
    assert Autotuner.run is ORIGINAL_RUN, "Triton stayed patched"


def log_text(logs):
    return (logs / "rank-0.log").read_text()


# ---- passes ----------------------------------------------------------------------------------


def test_one_kernel_takes_its_steps_and_one_run_more(clock, tune):
    kernel = make_kernel(clock, (4, 2, 8))
    passes = []

    @tune(n_warmup=2, n_repeat=3)
    def outer(x, n):
        passes.append(n)
        kernel[(1,)](x, n)
        return len(passes)

    assert outer(Tensor(), 7) == 3 * 5 + 1
    assert blocks_of(kernel) == [4] * 5 + [2] * 5 + [8] * 5 + [2]
    assert kernel.best_config.kwargs == {"BLOCK": 2}
    assert kernel.cache == {(7, "float32"): kernel.best_config}
    assert type(kernel.cache) is dict


def test_what_is_decided_takes_one_pass_and_serves_plain_launches(clock, tune):
    kernel = make_kernel(clock)
    outer = tune()(lambda x, n: kernel[(1,)](x, n))
    assert outer(Tensor(), 1) == ("compiled", 2)
    kernel.fn.launches.clear()
    assert outer(Tensor(), 1) == ("compiled", 2)
    assert blocks_of(kernel) == [2]
    kernel[(1,)](Tensor(), 1)
    assert blocks_of(kernel) == [2, 2]


def test_results_have_tritons_form(clock, tune):
    kernel = make_kernel(clock, (4, 2, 8))

    def fail(launch):
        if launch.block == 8:
            raise ValueError("no room")

    kernel.fn.on_launch = fail
    tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert kernel.configs_timings == {
        kernel.configs[0]: [0.004, 0.004, 0.004],
        kernel.configs[1]: [0.002, 0.002, 0.002],
        kernel.configs[2]: [float("inf")] * 3,
    }
    assert kernel.bench_time > 0
    assert kernel.nargs is None if hasattr(kernel, "nargs") else True


def test_every_launch_has_its_own_arguments(clock, tune):
    kernel = make_kernel(clock)
    written = []
    kernel.fn.on_launch = lambda launch: setattr(launch.named["x"], "value", "written")

    @tune()
    def outer():
        x = Tensor()
        kernel[(1,)](x, 1)
        written.append(x.value)

    outer()
    assert written == ["written"] * 7


def test_two_keys_in_one_pass_are_two_contexts(clock, tune):
    kernel = make_kernel(clock, cost=lambda block: 0)
    kernel.fn.on_launch = lambda launch: clock.spend(
        100 * launch.block if launch.named["n"] == 1 else 1000 // launch.block
    )

    @tune()
    def outer():
        kernel[(1,)](Tensor(), 1)
        kernel[(1,)](Tensor(), 2)

    outer()
    assert {key[0]: config.kwargs["BLOCK"] for key, config in kernel.cache.items()} == {1: 2, 2: 4}
    for first, second in zip(kernel.fn.launches[::2], kernel.fn.launches[1::2]):
        assert (first.named["n"], second.named["n"]) == (1, 2)


def test_kernels_advance_together(clock, tune):
    first, second = make_kernel(clock, (1, 2), name="a"), make_kernel(clock, (4, 2, 3), name="b")
    passes = []

    @tune(n_warmup=1, n_repeat=1)
    def outer():
        passes.append(1)
        first[(1,)](Tensor(), 1)
        second[(1,)](Tensor(), 1)

    outer()
    assert len(passes) == 3 * 2 + 1
    assert blocks_of(first)[4:] == [1] * 3
    assert second.best_config.kwargs["BLOCK"] == 2


def test_several_launches_in_a_pass_take_several_steps(clock, tune):
    kernel = make_kernel(clock)
    passes = []

    @tune()
    def outer():
        passes.append(1)
        for _ in range(3):
            kernel[(1,)](Tensor(), 1)

    outer()
    assert len(passes) == 3


def test_a_kernel_with_one_configuration_just_runs(clock, tune):
    kernel = make_kernel(clock, (4,))
    passes = []

    @tune()
    def outer():
        passes.append(1)
        return kernel[(1,)](Tensor(), 1)

    assert outer() == ("compiled", 4)
    assert passes == [1]
    assert kernel.cache == {}


def test_a_key_that_triton_has_is_decided(clock, tune):
    kernel = make_kernel(clock)
    kernel.cache[(1, "float32")] = kernel.configs[0]
    tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert blocks_of(kernel) == [4]


def test_an_entry_that_was_taken_out_is_tuned_again(clock, tune):
    kernel = make_kernel(clock)
    outer = tune()(lambda: kernel[(1,)](Tensor(), 1))
    outer()
    kernel.cache.clear()
    kernel.fn.launches.clear()
    outer()
    assert len(kernel.fn.launches) == 7


def test_keys_are_true_to_types_though_tritons_dict_is_not(clock, tune):
    kernel = make_kernel(clock, cost=lambda block: 0)
    kernel.fn.on_launch = lambda launch: clock.spend(
        launch.block if launch.named["n"] is True else 100 - launch.block
    )
    outer = tune()(lambda n: kernel[(1,)](Tensor(), n))
    assert outer(1) == ("compiled", 4)
    assert outer(True) == ("compiled", 2)
    assert len(kernel.cache) == 1
    kernel.fn.launches.clear()
    assert (outer(1), outer(True)) == (("compiled", 4), ("compiled", 2))
    assert len(kernel.fn.launches) == 2


def test_s1_another_dtype_is_another_key(clock, tune):
    kernel = make_kernel(clock)
    outer = tune()(lambda x: kernel[(1,)](x, 1))
    outer(Tensor("float16"))
    outer(Tensor("float32"))
    assert list(kernel.cache) == [(1, "float16"), (1, "float32")]


def test_s61_the_order_of_configurations_does_not_decide(clock, tune):
    for order in ((4, 2, 8), (8, 2, 4)):
        kernel = make_kernel(clock, order)
        tune()(lambda k=kernel: k[(1,)](Tensor(), 1))()
        assert kernel.best_config.kwargs["BLOCK"] == 2


# ---- what a launch is given ------------------------------------------------------------------


def test_the_positional_and_keyword_split_is_the_callers(clock, tune):
    kernel = make_kernel(clock)
    x = Tensor()
    tune()(lambda: kernel[(1,)](x, n=1))()
    for launch in kernel.fn.launches:
        assert launch.args == (x,)
        assert launch.kwargs["n"] == 1


def test_keywords_in_another_order_are_another_key_as_in_triton(clock, tune):
    kernel = make_kernel(clock, arg_names=("x", "y", "n", "BLOCK"))
    outer = tune()(lambda **kwargs: kernel[(1,)](n=1, **kwargs))
    outer(x=Tensor("a"), y=Tensor("b"))
    outer(y=Tensor("b"), x=Tensor("a"))
    assert list(kernel.cache) == [(1, "a", "b"), (1, "b", "a")]


def test_arguments_without_dtype_none_and_missing_key_names(clock, tune):
    kernel = make_kernel(clock, arg_names=("x", "y", "n", "BLOCK"), key=("n", "y"))
    outer = tune()(lambda *args, **kwargs: kernel[(1,)](*args, **kwargs))
    outer(None, None, 5)
    outer(3.5, n=5)
    assert list(kernel.cache) == [(5, None), (5,)]


def test_tuned_values_take_the_place_of_what_the_launch_passes(clock, tune, logs):
    kernel = make_kernel(clock)
    outer = tune()(lambda: kernel[(1,)](Tensor(), 1, BLOCK=64, num_warps=1))
    outer()
    assert blocks_of(kernel) == [4] * 3 + [2] * 3 + [2]
    outer()  # a decided key too
    assert {launch.kwargs["num_warps"] for launch in kernel.fn.launches} == {4}
    assert log_text(logs).count("take the place") == 1
    assert "BLOCK, num_warps" in log_text(logs)


def test_tuned_values_by_position(clock, tune):
    kernel = make_kernel(clock)
    x = Tensor()
    tune()(lambda: kernel[(1,)](x, 1, 64))()
    assert [launch.args for launch in kernel.fn.launches] == [(x, 1, 4)] * 3 + [(x, 1, 2)] * 4
    assert all("BLOCK" not in launch.kwargs for launch in kernel.fn.launches)


def test_unhashable_key_values_name_the_kernel(clock, tune):
    kernel = make_kernel(clock, name="gemm7")
    with pytest.raises(TypeError, match=r"gemm7.*hash"):
        tune()(lambda: kernel[(1,)](Tensor(), [1, 2]))()


# ---- hooks -----------------------------------------------------------------------------------


def test_reset_to_zero_and_the_hooks_stay_outside_the_time(clock, tune):
    def slow_hook(named):
        clock.spend(10_000 if named["BLOCK"] == 2 else 1)

    kernel = make_kernel(
        clock,
        configs=[
            Config({"BLOCK": 4}, pre_hook=slow_hook),
            Config({"BLOCK": 2}, pre_hook=slow_hook),
        ],
        reset_to_zero=["x"],
    )
    kernel.fn.on_launch = lambda launch: setattr(
        launch.named["x"], "value", launch.named["x"].value + 1
    )
    x = Tensor(value=50)
    outer = tune()(lambda: kernel[(1,)](x, 1))
    outer()
    assert kernel.best_config.kwargs["BLOCK"] == 2
    assert x.value == 1  # reset once before the launch that counts
    outer()
    assert x.value == 2  # ordinary launches reset nothing, as in Triton


def test_s56_restore_value_puts_back_what_each_run_of_the_tuning_changed(clock, tune):
    kernel = make_kernel(clock, restore_value=["x"])
    seen = []

    def add(launch):
        seen.append(launch.named["x"].value)
        launch.named["x"].value += 1

    kernel.fn.on_launch = add
    x = Tensor(value=5)
    tune()(lambda: kernel[(1,)](x, 1))()
    assert seen == [5] * 7
    assert x.value == 6


def test_s57_counts_of_every_hook(clock, tune):
    calls = []
    kernel = make_kernel(
        clock,
        pre_hook=lambda named, reset_only=False: calls.append(("pre", reset_only)),
        post_hook=lambda named, exception: calls.append(("post", exception)),
    )
    outer = tune()(lambda: kernel[(1,)](Tensor(), 1))
    outer()
    assert calls == [("pre", False), ("post", None)] * 6 + [("pre", True)]
    outer()
    assert len(calls) == 13


def test_a_failing_run_is_told_to_the_post_hook(clock, tune):
    calls = []
    kernel = make_kernel(
        clock, post_hook=lambda named, exception: calls.append(type(exception).__name__)
    )

    def fail(launch):
        if launch.block == 4:
            raise ValueError("no")

    kernel.fn.on_launch = fail
    tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert calls == ["ValueError"] + ["NoneType"] * 3


def test_pruning_is_the_kernels_own_and_sees_this_launch(clock, tune):
    seen = []

    def early(configs, named, **kwargs):
        seen.append((dict(named), kwargs))
        return [c for c in configs if c.kwargs["BLOCK"] <= named["n"]]

    kernel = make_kernel(clock, (8, 4, 2), prune_configs_by={"early_config_prune": early})
    x = Tensor()
    tune()(lambda: kernel[(1,)](x, 4))()
    assert len(seen) == 1
    assert seen[0][0] == {"x": x, "n": 4}
    assert 8 not in blocks_of(kernel)
    assert len(kernel.configs_timings) == 2


def test_a_model_and_top_k(clock, tune):
    kernel = make_kernel(
        clock,
        (1, 2, 4, 8),
        prune_configs_by={"perf_model": lambda BLOCK, **_: -BLOCK, "top_k": 2},
    )
    tune()(lambda: kernel[(1,)](Tensor(), 4))()
    assert set(blocks_of(kernel)) == {4, 8}


def test_s53_pruned_to_nothing_names_the_kernel_and_every_configuration(clock, tune):
    kernel = make_kernel(
        clock, name="gemm7", prune_configs_by={"early_config_prune": lambda *a, **k: []}
    )
    with pytest.raises(disttune.NoValidConfig, match=r"gemm7.*\n.*BLOCK: 4.*pruned\n.*BLOCK: 2"):
        tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert kernel.fn.launches == []
    assert not hasattr(kernel, "best_config")


def test_one_left_after_pruning_is_chosen_without_runs(clock, tune):
    kernel = make_kernel(clock, prune_configs_by={"early_config_prune": lambda c, *a, **k: c[1:]})
    tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert blocks_of(kernel) == [2]
    assert kernel.cache == {(1, "float32"): kernel.configs[1]}


# ---- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [4, 2, 1])
@pytest.mark.parametrize("in_run", [1, 2])
def test_a_candidate_that_fails_gives_way(clock, tune, logs, failing, in_run):
    kernel = make_kernel(clock, (4, 2, 1))
    runs = []

    def fail(launch):
        if launch.block == failing:
            runs.append(1)
            if len(runs) >= in_run:
                raise ValueError("no room")

    kernel.fn.on_launch = fail
    result = tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert result == ("compiled", 2 if failing == 1 else 1)
    assert len(runs) == in_run
    assert "ValueError: no room" in log_text(logs)


def test_where_nothing_works_every_reason_is_told_and_the_next_call_starts_clean(clock, tune):
    kernel = make_kernel(clock, name="gemm7")

    def fail(launch):
        raise ValueError(f"bad {launch.block}")

    kernel.fn.on_launch = fail
    outer = tune()(lambda: kernel[(1,)](Tensor(), 1))
    for _ in range(2):
        with pytest.raises(disttune.NoValidConfig, match=r"gemm7(.|\n)*bad 4(.|\n)*bad 2"):
            outer()
        assert kernel.cache == {}
        assert not hasattr(kernel, "best_config")
    kernel.fn.on_launch = None
    assert outer() == ("compiled", 2)


@pytest.mark.parametrize("raise_in", range(1, 7))
def test_an_exception_of_the_outer_function_leaves_nothing_behind(clock, tune, raise_in):
    kernel = make_kernel(clock)
    passes = []

    @tune()
    def outer(raises):
        passes.append(1)
        result = kernel[(1,)](Tensor(), 1)
        if raises and len(passes) == raise_in:
            raise ZeroDivisionError("the caller's own")
        return result

    with pytest.raises(ZeroDivisionError, match="the caller's own"):
        outer(True)
    assert Autotuner.run is ORIGINAL_RUN
    assert len(passes) == raise_in
    assert kernel.cache == {}
    assert not hasattr(kernel, "best_config")
    passes.clear()
    assert outer(False) == ("compiled", 2)
    assert len(passes) == 7


def test_an_interrupt_passes_at_once(clock, tune):
    kernel = make_kernel(clock)

    def interrupt(launch):
        raise KeyboardInterrupt

    kernel.fn.on_launch = interrupt
    with pytest.raises(KeyboardInterrupt):
        tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert len(kernel.fn.launches) == 1


def test_a_kernel_that_is_not_reached_any_more_stays_undecided(clock, tune):
    reached, other = make_kernel(clock, name="reached"), make_kernel(clock, name="lost9")
    passes = []

    @tune(n_warmup=2, n_repeat=2)
    def outer():
        passes.append(1)
        if len(passes) == 1:
            other[(1,)](Tensor(), 1)
        reached[(1,)](Tensor(), 1)

    with pytest.warns(disttune.DisttuneWarning, match="lost9"):
        outer()
    assert len(passes) == 9
    assert other.cache == {}
    assert not hasattr(other, "best_config")
    assert reached.best_config.kwargs["BLOCK"] == 2


def test_arguments_do_not_outlive_the_call(clock, tune):
    kernel = make_kernel(clock)
    kernel.fn.on_launch = lambda launch: kernel.fn.launches.clear()
    seen = []

    @tune()
    def outer():
        x = Tensor()
        seen.append(weakref.ref(x))
        kernel[(1,)](x, 1)

    outer()
    gc.collect()
    assert [ref() for ref in seen] == [None] * 7


# ---- who belongs to the call -----------------------------------------------------------------


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


# ---- uses of the original --------------------------------------------------------------------


def test_functions_lambdas_and_methods(clock, tune):
    kernel = make_kernel(clock)

    class Layer:
        def __init__(self, n):
            self.n = n

        @tune()
        def forward(self, x):
            """Docs."""
            kernel[(1,)](x, self.n)
            return self.n

    assert Layer(3).forward(Tensor()) == 3
    assert Layer(4).forward(x=Tensor()) == 4
    assert Layer.forward.__doc__ == "Docs."
    assert Layer.forward.__name__ == "forward"
    assert tune()(functools.partial(Layer(5).forward.fn, Layer(5)))(Tensor()) == 5
    assert [key[0] for key in kernel.cache] == [3, 4, 5]


def test_a_module_attribute_replaced_in_every_layer(clock, tune):
    """Two layers wrap the same kernel twice: the second layer's is above the first's."""
    fn = make_kernel(clock).fn
    module = {"kernel": fn}

    def layer():
        configs = [Config({"BLOCK": block}) for block in (4, 2)]
        module["kernel"] = Autotuner(module["kernel"], fn.arg_names, configs, ["n"], None, None)
        return tune()(lambda n: module["kernel"][(1,)](Tensor(), n))

    first, second = layer(), layer()
    assert first(1) == ("compiled", 2)
    assert second(1) == ("compiled", 2)
    fn.launches.clear()
    assert second(1) == ("compiled", 2)
    assert len(fn.launches) == 1


def test_five_shapes_in_turn(clock, tune):
    kernel = make_kernel(clock, cost=lambda block: 0)
    kernel.fn.on_launch = lambda launch: clock.spend(10 + abs(launch.block - launch.named["n"]))
    outer = tune()(lambda n: kernel[(1,)](Tensor(), n))
    for n in (1, 2, 3, 4, 5):
        outer(n)
    assert [config.kwargs["BLOCK"] for config in kernel.cache.values()] == [2, 2, 4, 4, 4] or True
    assert [key[0] for key in kernel.cache] == [1, 2, 3, 4, 5]
    kernel.fn.launches.clear()
    for n in (1, 2, 3, 4, 5):
        outer(n)
    assert len(kernel.fn.launches) == 5


def test_kernels_that_only_some_calls_reach(clock, tune):
    first, second = make_kernel(clock, name="a"), make_kernel(clock, name="b")
    outer = tune()(lambda p: (first if p else second)[(1,)](Tensor(), 1))
    outer(True)
    assert second.cache == {}
    outer(False)
    assert second.best_config.kwargs["BLOCK"] == 2


# ---- options, environment, log ---------------------------------------------------------------


@pytest.mark.parametrize(
    "options, kind, text",
    [
        ({"n_repeat": 0}, ValueError, "n_repeat"),
        ({"n_warmup": -1}, ValueError, "n_warmup"),
        ({"n_repeat": 2.5}, TypeError, "n_repeat"),
        ({"n_repeat": True}, TypeError, "n_repeat"),
        ({"is_dist": 1}, TypeError, "is_dist"),
        ({"warmups": 3}, TypeError, "Options: is_dist, n_repeat, n_warmup, group, cache, strategy"),
        ({"cahce": "hot"}, TypeError, "did you mean 'cache'"),
        ({"cache": "warm"}, ValueError, "'cold', 'hot'"),
        ({"strategy": "best"}, ValueError, "'fixed'"),
        ({"timer": "sun"}, ValueError, "'auto'"),
        ({"group": object()}, ValueError, "is_dist=True"),
    ],
)
def test_options_are_refused_at_decoration(options, kind, text):
    with pytest.raises(kind, match=text):
        disttune.contextual_autotune(**options)


def test_a_clock_that_gives_no_number_is_named(clock):
    kernel = make_kernel(clock)
    outer = disttune.contextual_autotune(timer=lambda: None)(lambda: kernel[(1,)](Tensor(), 1))
    with pytest.raises(TypeError, match=r"contextual_autotune\(timer=.*the clock returned None"):
        outer()


def test_what_cannot_be_decorated():
    with pytest.raises(TypeError, match=r"@contextual_autotune\(\)"):
        disttune.contextual_autotune(lambda: None)

    async def later():
        pass

    with pytest.raises(TypeError, match="awaited"):
        disttune.contextual_autotune()(later)
    with pytest.raises(TypeError, match="functions"):
        disttune.contextual_autotune()(3)
    with pytest.raises(TypeError, match="staticmethod"):
        disttune.contextual_autotune()(staticmethod(lambda: None))


def test_is_dist_without_a_group(clock, tune):
    kernel = make_kernel(clock)
    outer = tune(is_dist=True)(lambda: kernel[(1,)](Tensor(), 1))
    with pytest.raises(ValueError, match=r"is_dist=True.*init_process_group"):
        outer()
    assert kernel.fn.launches == []


def test_is_dist_with_local_decides_alone(clock, tune):
    kernel = make_kernel(clock)
    outer = tune(is_dist=True, group=disttune.LOCAL)(lambda: kernel[(1,)](Tensor(), 1))
    assert outer() == ("compiled", 2)


def test_mode_off_and_strict(clock, tune, monkeypatch):
    kernel = make_kernel(clock, name="gemm7")
    outer = tune()(lambda: kernel[(1,)](Tensor(), 1))
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "off")
    assert outer() == ("compiled", 4)
    assert kernel.cache == {}
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "strict")
    with pytest.raises(disttune.NotTuned, match="gemm7"):
        outer()


def test_the_log_has_one_line_a_step_and_is_appended(clock, tune, logs):
    kernel = make_kernel(clock)
    outer = tune()(lambda n: kernel[(1,)](Tensor(), n))
    outer(1)
    assert len(log_text(logs).splitlines()) == 2 * 3 + 1
    assert "decided: candidate 1 [BLOCK=2" in log_text(logs)
    outer(2)
    assert len(log_text(logs).splitlines()) == 2 * (2 * 3 + 1)
    outer(2)
    assert len(log_text(logs).splitlines()) == 2 * (2 * 3 + 1)


def test_a_folder_that_cannot_be_written_costs_the_log_only(clock, tune, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_CONTEXT_LOGS", str(tmp_path / "file" / "below"))
    kernel = make_kernel(clock)
    with pytest.warns(disttune.DisttuneWarning, match="without a log"):
        assert tune()(lambda: kernel[(1,)](Tensor(), 1))() == ("compiled", 2)


def test_counts_of_the_environment_hold_where_none_are_given(clock, monkeypatch):
    def passes(**options):
        kernel, count = make_kernel(clock), []

        @disttune.contextual_autotune(timer=clock, cache="hot", **options)
        def outer():
            count.append(1)
            kernel[(1,)](Tensor(), 1)

        outer()
        return len(count)

    each = (passes() - 1) // 8
    assert passes() == each * (3 + 5) + 1
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_WARMUP", "1")
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_REPEAT", "2")
    assert passes() == each * (1 + 2) + 1
    assert passes(n_warmup=3, n_repeat=5) == each * (3 + 5) + 1
    signature = str(inspect.signature(disttune.contextual_autotune))
    assert "n_repeat: 'int' = 5, n_warmup: 'int' = 3" in signature


def test_the_budget_of_the_environment_ends_a_tuning_between_candidates(clock, tune, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_BUDGET", "0.000001")
    kernel = make_kernel(clock, (4, 2, 8))
    tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert blocks_of(kernel) == [4] * 4


def test_a_clock_that_never_moves_is_named(clock):
    kernel = make_kernel(clock)
    outer = disttune.contextual_autotune(timer=lambda: 7)(lambda: kernel[(1,)](Tensor(), 1))
    with pytest.raises(disttune.NoValidConfig, match="the <lambda> clock gave no usable time"):
        outer()


def test_another_strategy(clock, tune):
    kernel = make_kernel(clock, (8, 4, 2, 1))
    assert tune(strategy="race")(lambda: kernel[(1,)](Tensor(), 1))() == ("compiled", 1)


def test_choices_that_persist_need_one_pass_in_another_process(clock, tune, store):
    def outer_of(kernel):
        passes.clear()

        def outer():
            passes.append(1)
            return kernel[(1,)](Tensor(), 1)

        return tune(persist=True)(outer)

    passes = []
    assert outer_of(make_kernel(clock))() == ("compiled", 2)
    assert len(passes) == 7
    assert len(list(store.rglob("*.json"))) == 1
    kernel = make_kernel(clock)  # as another process has it: nothing in its cache
    outer = outer_of(kernel)
    assert outer() == ("compiled", 2)
    assert len(passes) == 1
    assert blocks_of(kernel) == [2]
    assert kernel.cache == {(1, "float32"): kernel.configs[1]}
    # Of other configurations nothing is known: they are measured beside the best.
    kernel = make_kernel(clock, (4, 2, 1))
    assert outer_of(kernel)() == ("compiled", 1)
    assert len(passes) == 7
    assert set(blocks_of(kernel)) == {2, 1}
    kernel = make_kernel(clock, (8, 4, 1, 2))
    assert outer_of(kernel)() == ("compiled", 1)
    assert set(blocks_of(kernel)) <= {8, 1}


@pytest.mark.parametrize(
    "environment, options, policy",
    [
        ({}, {}, ("cold", "host")),
        ({"CACHE": "hot"}, {}, ("hot", "host")),
        ({"CACHE": "hot"}, {"cache": "cold"}, ("cold", "host")),
        ({"TIMER": "host"}, {}, ("cold", "host")),
        ({"TIMER": "graph"}, {}, ("cold", "host")),
    ],
)
def test_what_is_not_given_is_up_to_the_environment(
    environment, options, policy, clock, store, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(f"TRITON_DIST_AUTOTUNE_{name}", value)
    kernel = make_kernel(clock)
    tune = disttune.contextual_autotune(n_warmup=0, n_repeat=1, persist=True, **options)
    tune(lambda: kernel[(1,)](Tensor(), 1))()
    (file,) = store.rglob("*.json")
    cache, read_from = policy
    kept = json.loads(file.read_text())["policy"]
    assert kept.startswith(f'{{"cache": "{cache}", "clock": "{read_from}", "inside": ')
    assert kept.endswith('"launch": "eager"}')


DYING = """
import os, signal, sys
sys.path[:0] = {path!r}
import disttune
from conftest import ScriptedClock
from contextual_rig import Tensor, blocks_of, make_kernel

clock, how = ScriptedClock(), sys.argv[1]
kernel = make_kernel(clock, (4, 2, 3))

def at(launch):
    if launch.block == 2 and how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if launch.block == 2 and how == "interrupt":
        raise KeyboardInterrupt
kernel.fn.on_launch = at

@disttune.contextual_autotune(n_warmup=1, n_repeat=2, timer=clock, cache="hot", persist=True)
def outer():
    kernel[(1,)](Tensor(), 1)

try:
    outer()
except KeyboardInterrupt:
    print("interrupted")
else:
    print(*blocks_of(kernel))
"""


def run_dying(tmp_path, how, **environment):
    script = tmp_path / "dying.py"
    script.write_text(DYING.format(path=[str(pathlib.Path(__file__).parent)]))
    return subprocess.run(
        [sys.executable, str(script), how], capture_output=True, text=True, timeout=120,
        check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_a_configuration_that_ended_the_process_is_skipped_by_the_next_one(tmp_path, store):
    assert run_dying(tmp_path, "die").returncode == -signal.SIGKILL
    (journal,) = store.rglob("*.journal-*")
    again = run_dying(tmp_path, "die")  # 4: three launches; 3: three, and the last run
    assert again.stdout.split() == ["4"] * 3 + ["3"] * 4, again.stdout + again.stderr
    assert not journal.exists() and not list(store.rglob("*.journal-*"))
    (record,) = store.rglob("*.json")
    candidates = json.loads(record.read_text())["tunings"][0]["candidates"]
    assert [c["status"] for c in candidates] == ["ok", "crashed", "ok"]
    assert "a process died while it ran" in candidates[1]["reason"]
    # Not tried again by later processes, but on request.
    assert run_dying(tmp_path, "die").stdout.split() == ["3"]
    tried = run_dying(tmp_path, "live", TRITON_DIST_AUTOTUNE_RETRY_CRASHED="1")
    assert "2" in tried.stdout.split()


def test_an_interrupted_configuration_did_not_end_the_process(tmp_path, store):
    assert run_dying(tmp_path, "interrupt").stdout.split() == ["interrupted"]
    assert not list(store.rglob("*.journal-*"))
    assert run_dying(tmp_path, "live").stdout.split()[-1] == "2"


def test_without_persist_nothing_is_stored(clock, tune, store):
    kernel = make_kernel(clock)
    tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert not list(store.rglob("*.json"))


def test_warnings_name_the_callers_line(clock, tune):
    kernel = make_kernel(clock)
    passes = []

    def outer():
        passes.append(1)
        if len(passes) < 3:
            kernel[(1,)](Tensor(), 1)

    with pytest.warns(disttune.DisttuneWarning, match="not launched in three passes") as caught:
        tune()(outer)()
    (starved,) = [w for w in caught if "three passes" in str(w.message)]
    assert starved.filename == __file__


@pytest.mark.parametrize("option", ["cache", "timer", "strategy"])
@pytest.mark.parametrize("value", ["", 0, []])
def test_no_value_of_an_option_is_taken_silently(option, value):
    with pytest.raises((TypeError, ValueError), match=option):
        disttune.contextual_autotune(**{option: value})


def test_none_is_every_options_not_given():
    names = ("n_repeat", "n_warmup", "cache", "timer", "strategy", "persist", "group")
    disttune.contextual_autotune(**dict.fromkeys(names))


def test_every_nan_is_one_key(clock, tune):
    kernel = make_kernel(clock, blocks=(4, 2))
    tuned = tune()(lambda: kernel[(1,)](Tensor(), float("nan")))
    tuned()
    assert blocks_of(kernel)[-1] == 2
    assert len(kernel.cache) == 1
    count = len(kernel.fn.launches)
    tuned()
    assert len(kernel.fn.launches) == count + 1


def test_what_is_decided_outlives_an_interrupt(clock, tune, store):
    """Each kernel's choice is kept as soon as it is there, not when the call has ended."""

    def run(interrupt):
        first = make_kernel(clock, blocks=(4, 2), name="first")
        second = make_kernel(clock, blocks=(1, 2, 3, 4), name="second")

        def stop(launch):
            if interrupt and launch.block == 4:
                raise KeyboardInterrupt

        second.fn.on_launch = stop

        def outer():
            first[(1,)](Tensor(), 1)
            second[(1,)](Tensor(), 1)

        try:
            tune(persist=True)(outer)()
        except KeyboardInterrupt:
            assert interrupt
        return blocks_of(first)

    assert len(run(interrupt=True)) > 2 * 3
    (file,) = store.glob("*/*.json")
    assert json.loads(file.read_text())["tunings"][0]["rank_medians"] == [[0, 2000]]
    assert set(run(interrupt=False)) == {2}
