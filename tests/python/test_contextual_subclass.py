"""Subclasses of Triton's tuner whose own ``run`` does something besides, or everything itself."""

import functools
import threading
import warnings

import disttune
import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, blocks_of, make_kernel
from triton.runtime.autotuner import Autotuner

NAMES = ("x", "n", "BLOCK", "SCALE")


@pytest.fixture
def tune(clock):
    return disttune.contextual_autotune(n_warmup=1, n_repeat=2, timer=clock, cache="hot")


def scaled(args, kwargs):
    return {**kwargs, "SCALE": 2 * args[1]}


def wrapping(run):
    @functools.wraps(run)
    def wrapper(*args, **kwargs):
        return run(*args, **kwargs)

    return wrapper


class BySuper(Autotuner):
    def run(self, *args, **kwargs):
        return super().run(*args, **scaled(args, kwargs))


class ByName(Autotuner):
    def run(self, *args, **kwargs):
        return Autotuner.run(self, *args, **scaled(args, kwargs))


class Wrapped(Autotuner):
    @wrapping
    def run(self, *args, **kwargs):
        return super().run(*args, **scaled(args, kwargs))


class ByAnotherMethod(Autotuner):
    def run(self, *args, **kwargs):
        return self._go(*args, **kwargs)

    def _go(self, *args, **kwargs):
        return super().run(*args, **scaled(args, kwargs))


class Mixin:
    def run(self, *args, **kwargs):
        return super().run(*args, **scaled(args, kwargs))


class Mixed(Mixin, Autotuner):
    pass


class Between(Autotuner):
    def run(self, *args, **kwargs):
        return Autotuner.run(self, *args, **kwargs)


class AboveAnother(Between):
    def run(self, *args, **kwargs):
        return Between.run(self, *args, **scaled(args, kwargs))


@pytest.mark.parametrize(
    "cls",
    [BySuper, ByName, Wrapped, ByAnotherMethod, Mixed, AboveAnother],
    ids=lambda c: c.__name__,
)
def test_what_a_subclass_does_to_a_launch_is_never_lost(clock, tune, cls):
    kernel = make_kernel(clock, cls=cls, arg_names=NAMES)
    outer = tune(lambda n: kernel[(1,)](Tensor(), n))
    for n in (3, 3, 4):
        assert outer(n) == ("compiled", 2)
    assert len(kernel.fn.launches) == 7 + 1 + 7
    assert all(launch.named["SCALE"] == 2 * launch.named["n"] for launch in kernel.fn.launches)
    assert list(kernel.cache) == [(3, "float32"), (4, "float32")]
    assert not {"prune_configs", "_bench"} & vars(kernel).keys()


class Tuner(Autotuner):
    """A whole tuner, with a word of its base's where there is nothing to choose."""

    asked = 0

    def run(self, *args, **kwargs):
        if len(self.configs) == 1:
            return super().run(*args, **kwargs)
        self.nargs = dict(zip(self.arg_names, args))
        key = (args[1], args[0].dtype)
        if key not in self.cache:
            self.asked += 1
            raise AssertionError(f"measured {self.prune_configs(kwargs)}")
        return self.fn.run(*args, **kwargs, **self.cache[key].all_kwargs())


def test_a_whole_tuner_is_stopped_before_it_measures(clock, tune):
    kernel = make_kernel(clock, cls=Tuner)
    outer = tune(lambda n: kernel[(1,)](Tensor(), n))
    for n in (3, 4):
        assert outer(n) == ("compiled", 2)
    assert kernel.asked == 1
    assert blocks_of(kernel) == [4, 4, 4, 2, 2, 2, 2] * 2
    one = make_kernel(clock, (7,), cls=Tuner)
    assert tune(lambda: one[(1,)](Tensor(), 3))() == ("compiled", 7)


def test_what_a_whole_tuner_has_chosen_before_is_decided(clock, tune):
    kernel = make_kernel(clock, cls=Tuner)
    kernel.cache[(3, "float32")] = kernel.configs[0]
    assert tune(lambda: kernel[(1,)](Tensor(), 3))() == ("compiled", 4)
    assert blocks_of(kernel) == [4]
    assert kernel.cache == {(3, "float32"): kernel.configs[0]}


def test_another_threads_launch_meanwhile_is_its_own(clock, tune):
    seen = []

    class Slow(Autotuner):
        def run(self, *args, **kwargs):
            if threading.current_thread() is threading.main_thread():
                other = threading.Thread(target=lambda: seen.append(self.prune_configs({})))
                self.nargs = {}
                other.start()
                other.join()
            return super().run(*args, **kwargs)

    kernel = make_kernel(clock, cls=Slow)
    tune(lambda: kernel[(1,)](Tensor(), 3))()
    assert seen[0] == kernel.configs


def test_a_launch_that_reaches_nothing_is_said_once_and_left_alone(clock, tune):
    class Fixed(Autotuner):
        def run(self, *args, **kwargs):
            if len(self.configs) == 1:
                return super().run(*args, **kwargs)
            return self.fn.run(*args, **kwargs, **self.configs[0].all_kwargs())

    kernels = [make_kernel(clock, cls=Fixed, name=f"kernel{i}") for i in range(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for kernel in (*kernels, *kernels):
            assert tune(lambda kernel=kernel: kernel[(1,)](Tensor(), 3))() == ("compiled", 4)
    said = [str(w.message) for w in caught if w.category is disttune.DisttuneWarning]
    assert len(said) == 1
    assert "'kernel0'" in said[0] and "Fixed.run" in said[0]
    assert [blocks_of(kernel) for kernel in kernels] == [[4, 4], [4, 4]]


def test_one_that_measures_in_a_way_of_its_own_does_it_once(clock, tune):
    class Own(Autotuner):
        measured = 0

        def run(self, *args, **kwargs):
            if args[1] not in self.cache:
                self.measured += 1
                self.cache[args[1]] = self.configs[1]
            return self.fn.run(*args, **kwargs, **self.cache[args[1]].all_kwargs())

    kernel = make_kernel(clock, cls=Own)
    with pytest.warns(disttune.DisttuneWarning, match="without tuning"):
        for _ in range(3):
            assert tune(lambda: kernel[(1,)](Tensor(), 3))() == ("compiled", 2)
    assert kernel.measured == 1


def test_an_exception_in_a_subclass_leaves_nothing_behind(clock, tune):
    class Picky(Autotuner):
        def run(self, *args, **kwargs):
            if args[1] == 0:
                raise ValueError("nothing to do")
            return super().run(*args, **kwargs)

    kernel = make_kernel(clock, cls=Picky)
    before = dict(vars(kernel))
    outer = tune(lambda n: kernel[(1,)](Tensor(), n))
    with pytest.raises(ValueError, match="nothing to do"):
        outer(0)
    assert vars(kernel) == before
    assert outer(3) == ("compiled", 2)
