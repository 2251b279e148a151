"""Which configurations of a kernel are one, and what becomes of those that are hard to describe."""

import dataclasses
import functools

import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, make_kernel
from triton.runtime.autotuner import Autotuner, Config, Heuristics


class Hook:
    """A hook that is an object: all of its class look alike from outside."""

    def __init__(self, costs, ns):
        self.costs = costs
        self.ns = ns

    def __call__(self, named):
        self.costs[0] = self.ns

    def set(self, named):
        self(named)


def set_cost(costs, ns, named):
    costs[0] = ns


def closing_over(hook):
    return lambda named: hook(named)


HOOKS = {
    "partial": lambda costs, ns: functools.partial(set_cost, costs, ns),
    "partial of an object": lambda costs, ns: functools.partial(Hook(costs, ns)),
    "object": Hook,
    "method": lambda costs, ns: Hook(costs, ns).set,
    "closure": lambda costs, ns: closing_over(Hook(costs, ns)),
}


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("persist", [False, True])
def test_configurations_that_differ_in_an_object_are_all_tried(clock, tune, kind, persist):
    costs = [0]

    def kernel_of(hook):
        configs = [Config({"BLOCK": 4}, pre_hook=hook(costs, ns)) for ns in (300, 100, 200)]
        return make_kernel(clock, configs=configs, cost=lambda block: costs[0])

    for passes in (3 * 3 + 1, 1 if persist else 3 * 3 + 1):
        costs[0] = 0  # what is bound counts, as it is at the beginning
        kernel = kernel_of(HOOKS[kind])
        tune(persist=persist)(lambda x, n, kernel=kernel: kernel[(1,)](x, n))(Tensor(), 1)
        assert len(kernel.fn.launches) == passes
        assert kernel.configs.index(kernel.best_config) == 1


def test_values_that_have_no_description_tell_configurations_apart(clock, tune):
    first, second = object(), object()
    kernel = make_kernel(
        clock,
        configs=[Config({"BLOCK": 4, "HOW": how}) for how in (first, second, first, [second])],
        arg_names=("x", "n", "BLOCK", "HOW"),
    )
    tune()(lambda x, n: kernel[(1,)](x, n))(Tensor(), 1)
    tried = [launch.named["HOW"] for launch in kernel.fn.launches[::3]]
    assert tried == [first, second, [second], first]


def test_equal_configurations_are_one(clock, tune):
    hook = Hook([0], 1)
    kernel = make_kernel(
        clock, configs=[Config({"BLOCK": 4}, pre_hook=hook), Config({"BLOCK": 4}, pre_hook=hook)]
    )
    tune()(lambda x, n: kernel[(1,)](x, n))(Tensor(), 1)
    assert len(kernel.fn.launches) == 3 + 1


def test_what_a_partial_has_bound_says_whose_stored_choice_it_is(clock, tune):
    costs = [0]
    for bound, passes in (((300, 100), 7), ((300, 100), 1), ((300, 50), 7)):
        kernel = make_kernel(
            clock,
            configs=[
                Config({"BLOCK": 4}, pre_hook=functools.partial(lambda ns, _: costs.append(ns), ns))
                for ns in bound
            ],
            cost=lambda block: costs[-1],
        )
        tune(persist=True)(lambda x, n, kernel=kernel: kernel[(1,)](x, n))(Tensor(), 1)
        assert len(kernel.fn.launches) == passes


def test_values_that_cannot_be_hashed_are_tuned_like_others(clock, tune):
    kernel = make_kernel(
        clock,
        configs=[Config({"BLOCK": 4, "SHAPE": [1, 2]}), Config({"BLOCK": 2, "SHAPE": {"a": [1]}})],
        arg_names=("x", "n", "BLOCK", "SHAPE"),
    )
    outer = tune()(lambda x, n: kernel[(1,)](x, n))
    assert outer(Tensor(), 1) == ("compiled", 2)
    assert kernel.best_config.kwargs["SHAPE"] == {"a": [1]}
    assert [times[0] for times in kernel.configs_timings.values()] == [0.004, 0.002]
    assert list(kernel.configs_timings) == [str(config) for config in kernel.configs]
    kernel.fn.launches.clear()
    assert outer(Tensor(), 1) == ("compiled", 2)
    assert len(kernel.fn.launches) == 1


# ---- whose stored choice it is ------------------------------------------------------------------


def above(kernel, configs, key=("n",)):
    return Autotuner(kernel, kernel.arg_names, configs, list(key), None, None)


def siblings(clock):
    """Two tuners of one function, alike but for what they choose from."""
    first = make_kernel(clock)
    return first, above(first.fn, [Config({"BLOCK": block}) for block in (3, 1)])


def nested(clock):
    inner = make_kernel(clock, arg_names=("x", "n", "BLOCK", "W"))
    outer = above(inner, [Config({"W": w}) for w in (30, 10)])
    return outer, inner


def by_other_keys(clock):
    first = make_kernel(clock, key=("n",))
    return first, above(first.fn, first.configs, ("n", "BLOCK"))


@pytest.mark.parametrize("make", [siblings, nested, by_other_keys], ids=lambda f: f.__name__)
def test_tuners_of_one_function_have_records_of_their_own(clock, tune, store, make):
    passes = []
    for _ in range(3):
        kernels = make(clock)
        launched = kernels[:1] if make is nested else kernels

        @tune(persist=True)
        def outer(launched=launched):
            passes.append(1)
            for kernel in launched:
                kernel[(1,)](Tensor(), 1)

        before = len(passes)
        outer()
        assert len(passes) - before == (1 if before else len(passes))
    assert len(list((store / "kernel").glob("*.json"))) == 2


def test_a_kernel_with_a_new_list_finds_its_record_again(clock, tune, store):
    for blocks, launches in (((4, 2), 7), ((4, 2, 1), 3 + 3 + 1), ((4, 2, 1), 1)):
        kernel = make_kernel(clock, blocks)
        tune(persist=True)(lambda kernel=kernel: kernel[(1,)](Tensor(), 1))()
        assert len(kernel.fn.launches) <= launches
        del kernel
    assert len(list((store / "kernel").glob("*.json"))) == 1


@pytest.mark.parametrize("how", ["function", "partial"])
def test_heuristics_count_for_whose_record_it_is(clock, tune, store, how):
    def even(named):
        return named["n"] % 2

    def times(factor, named):
        return factor * named["n"]

    functions = (even, lambda named: 7) if how == "function" else (
        functools.partial(times, 2), functools.partial(times, 3),
    )  # fmt: skip
    for function, launches in ((functions[0], 7), (functions[0], 1), (functions[1], 7)):
        below = make_kernel(clock)
        with_heuristics = Heuristics(below.fn, below.arg_names, {"EVEN": function})
        kernel = above(with_heuristics, below.configs)
        tune(persist=True)(lambda kernel=kernel: kernel[(1,)](Tensor(), 1))()
        assert len(below.fn.launches) == launches


# ---- keys ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Shape:
    n: object


@pytest.mark.parametrize(
    "keys",
    [
        ((1,), (True,), (1.0,)),
        (0.0, -0.0),
        ((2, (0.0,)), (2, (-0.0,))),
        (complex(0.0, 0.0), complex(0.0, -0.0)),
        (frozenset([1]), frozenset([True])),
        (1, True, 1.0),
        (Shape(1), Shape(True)),
    ],
    ids=str,
)
def test_keys_that_are_equal_and_differ_in_a_type_are_contexts_of_their_own(clock, tune, keys):
    best = {}

    def cost(launch_block):
        return 10 * launch_block if order[0] == 0 else 100 - 10 * launch_block

    order = [0]
    kernel = make_kernel(clock, (4, 2), cost=cost)

    @tune()
    def outer():
        for i, key in enumerate(keys):
            order[0] = i
            best[i] = kernel[(1,)](Tensor(), key)

    outer()
    assert len(kernel.fn.launches) == 7 * len(keys)
    assert best == {i: ("compiled", 2 if i == 0 else 4) for i in range(len(keys))}
    for _ in range(3):
        outer()
        assert best == {i: ("compiled", 2 if i == 0 else 4) for i in range(len(keys))}
    assert len(kernel.fn.launches) == 10 * len(keys)
