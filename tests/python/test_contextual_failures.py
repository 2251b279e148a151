"""Candidates and outer functions that fail, and what a contextual call leaves behind."""

import gc
import weakref

import disttune
import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, log_text, make_kernel
from triton.runtime.autotuner import Autotuner

ORIGINAL_RUN = Autotuner.run


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
