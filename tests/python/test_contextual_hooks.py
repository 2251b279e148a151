"""What Triton's hooks and the caller's own exceptions come to in a contextual call."""

import json
import os
import pathlib

import disttune
import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, blocks_of, make_kernel
from triton.runtime.autotuner import Config


class Own(Exception):
    """The caller's own, with more than a text."""

    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


def adding(clock, blocks=(4, 2), **options):
    """Make a kernel whose launches add one to their tensor."""
    kernel = make_kernel(clock, blocks, **options)

    def add(launch):
        launch.named["x"].value += 1

    kernel.fn.on_launch = add
    return kernel


def raising(kernel, at, error):
    """Let the kernel's launch with this number raise."""

    def count(_launch):
        if len(kernel.fn.launches) == at:
            raise error

    kernel.fn.on_launch = count
    return kernel


def test_every_buffer_that_the_tuning_touched_is_reset(clock, tune):
    kernel = adding(clock, reset_to_zero=["x"])
    sums = [Tensor() for _ in range(3)]
    outer = tune()(lambda: [kernel[(1,)](x, 8) for x in sums])
    outer()
    assert [x.value for x in sums] == [1, 1, 1]
    outer()
    assert [x.value for x in sums] == [2, 2, 2]


def test_a_buffer_that_is_added_to_twice_is_reset_once(clock, tune):
    kernel = adding(clock, reset_to_zero=["x"])
    sums = [Tensor(), Tensor()]
    tune()(lambda: [kernel[(1,)](x, 8) for x in (*sums, *sums)])()
    assert [x.value for x in sums] == [2, 2]


def test_a_hook_of_the_callers_resets_every_buffer(clock, tune):
    def reset(arguments, reset_only=False):
        del reset_only
        arguments["x"].value = 0

    kernel = adding(clock, pre_hook=reset)
    sums = [Tensor() for _ in range(3)]
    tune()(lambda: [kernel[(1,)](x, 8) for x in sums])()
    assert [x.value for x in sums] == [1, 1, 1]


def test_what_a_kernel_changes_is_restored_until_all_are_decided(clock, tune):
    kernel = adding(clock, restore_value=["x"])
    longer = make_kernel(clock, (4, 2, 1), name="longer")
    x = Tensor()
    tune()(lambda: (kernel[(1,)](x, 8), longer[(1,)](Tensor(), 8)))()
    assert x.value == 1


@pytest.mark.parametrize("at", [7, 9])
def test_an_exception_of_a_decided_kernel_is_the_callers_own(clock, tune, at):
    # With 7 launches it is decided, and `longer` with 9.
    kernel = raising(make_kernel(clock), at, Own(5))
    longer = make_kernel(clock, (4, 2, 1), name="longer")
    with pytest.raises(Own) as caught:
        tune()(lambda: (kernel[(1,)](Tensor(), 8), longer[(1,)](Tensor(), 8)))()
    assert caught.value.code == 5


def test_an_outer_function_may_catch_what_the_last_run_raises(clock, tune):
    kernel = raising(make_kernel(clock), 7, Own(5))

    @tune()
    def outer():
        try:
            return kernel[(1,)](Tensor(), 8)
        except Own as error:
            return error.code

    assert outer() == 5


@pytest.mark.parametrize("mode", ["off", "cached"])
@pytest.mark.filterwarnings("ignore::disttune.DisttuneWarning")
def test_without_tuning_an_exception_is_the_callers_own(clock, tune, monkeypatch, mode):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", mode)
    kernel = raising(make_kernel(clock), 1, Own(5))
    with pytest.raises(Own):
        tune()(lambda: kernel[(1,)](Tensor(), 8))()


def test_where_one_configuration_is_left_an_exception_is_the_callers_own(clock, tune):
    prune = {"early_config_prune": lambda configs, *_, **__: configs[:1]}
    kernel = raising(make_kernel(clock, prune_configs_by=prune), 1, Own(5))
    with pytest.raises(Own):
        tune()(lambda: kernel[(1,)](Tensor(), 8))()


def test_a_hook_that_raises_fails_its_configuration(clock, tune):
    def refuse(_arguments):
        raise ValueError("block too large")

    configs = [Config({"BLOCK": 2}, pre_hook=refuse), Config({"BLOCK": 4}), Config({"BLOCK": 8})]
    kernel = make_kernel(clock, configs=configs)
    assert tune()(lambda: kernel[(1,)](Tensor(), 8))() == ("compiled", 4)
    assert 2 not in blocks_of(kernel)


def test_a_hook_that_always_raises_leaves_nothing_valid(clock, tune):
    def refuse(_arguments, reset_only=False):
        del reset_only
        raise ValueError("no hook")

    kernel = make_kernel(clock, pre_hook=refuse)
    with pytest.raises(disttune.NoValidConfig, match="pre_hook: ValueError: no hook"):
        tune()(lambda: kernel[(1,)](Tensor(), 8))()


def test_mode_first_leaves_out_what_ended_a_process(clock, tune, monkeypatch):
    def run():
        kernel = make_kernel(clock, (4, 2), name="deadly")
        return kernel, tune(persist=True)(lambda: kernel[(1,)](Tensor(), 8))

    pid = os.fork()
    if pid == 0:
        kernel, outer = run()
        kernel.fn.on_launch = lambda _launch: os._exit(9)
        outer()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "first")
    assert run()[1]() == ("compiled", 2)
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_RETRY_CRASHED", "1")
    assert run()[1]() == ("compiled", 4)


def test_a_stored_choice_has_the_hosts_times(clock, tune):
    kernel = make_kernel(clock, name="kept")
    tune(persist=True)(lambda: kernel[(1,)](Tensor(), 8))()
    home = pathlib.Path(os.environ["TRITON_DIST_AUTOTUNE_HOME"])
    tuning = json.loads(next(home.glob("kept/*.json")).read_text())["tunings"][0]
    assert tuning["how"]["measure_seconds"] > 0
    assert [len(c["host_ns"]) for c in tuning["candidates"]] == [2, 2]
    assert tuning["rank_medians"] == [[0, 2000]]


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
