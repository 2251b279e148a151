"""contextual_autotune over Triton's own Autotuner: passes, keys and what a launch is given.

Stand-in functions and a scripted clock, here and in the files beside this one.
"""

import functools

import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, blocks_of, log_text, make_kernel
from triton.runtime.autotuner import Autotuner, Config


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


def test_every_nan_is_one_key(clock, tune):
    kernel = make_kernel(clock, blocks=(4, 2))
    tuned = tune()(lambda: kernel[(1,)](Tensor(), float("nan")))
    tuned()
    assert blocks_of(kernel)[-1] == 2
    assert len(kernel.cache) == 1
    count = len(kernel.fn.launches)
    tuned()
    assert len(kernel.fn.launches) == count + 1
