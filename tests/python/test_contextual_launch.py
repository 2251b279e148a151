"""The short way of a decided kernel's launch, and what makes it step aside."""

import gc
import weakref

import disttune
import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, blocks_of, make_kernel
from disttune import _contextual_call


@pytest.fixture
def met(monkeypatch):
    """Launches that did not go the short way."""
    found = []
    launch = _contextual_call.ContextualCall.launch

    def counted(self, *args):
        found.append(args)
        return launch(self, *args)

    monkeypatch.setattr(_contextual_call.ContextualCall, "launch", counted)
    return found


DTYPE = "float32"


@pytest.fixture
def steady(clock, met):
    """A kernel that is decided for n=1, and a contextual call that launched it the short way."""
    kernel = make_kernel(clock)
    outer = disttune.contextual_autotune(n_warmup=0, n_repeat=1, timer=clock, cache="hot")(
        lambda x, n, **kwargs: kernel[(1,)](x, n, **kwargs)
    )
    for _ in range(3):
        outer(Tensor(DTYPE), 1)
    met.clear()
    kernel.fn.launches.clear()
    return kernel, outer


def test_a_decided_launch_goes_the_short_way(steady, met):
    kernel, outer = steady
    x = Tensor(DTYPE)
    assert outer(x, 1) == ("compiled", 2)
    assert met == []
    (launch,) = kernel.fn.launches
    assert launch.args == (x, 1)
    assert launch.kwargs == {"BLOCK": 2, "num_warps": 4, "num_ctas": 1, "num_stages": 3}


def test_it_sets_best_config_as_triton_does(steady, met):
    kernel, outer = steady
    kernel.best_config = None
    outer(Tensor(DTYPE), 1)
    assert kernel.best_config.kwargs == {"BLOCK": 2}
    assert met == []


def test_errors_of_the_launch_are_the_callers(steady, met):
    kernel, outer = steady

    def fail(launch):
        raise ZeroDivisionError("the launch's own")

    kernel.fn.on_launch = fail
    with pytest.raises(ZeroDivisionError):
        outer(Tensor(DTYPE), 1)
    assert met == []


@pytest.mark.parametrize(
    "change",
    [
        lambda k: setattr(k, "pre_hook", lambda *a, **kw: None),
        lambda k: setattr(k, "post_hook", lambda *a, **kw: None),
        lambda k: setattr(k, "keys", ["n"]),
        lambda k: setattr(k, "configs", list(k.configs)),
        lambda k: setattr(k, "cache", dict(k.cache)),
        lambda k: setattr(k, "extra", 1),
        lambda k: k.cache.update({(1, DTYPE): k.configs[0]}),
        lambda k: setattr(k.configs[1], "num_warps", 8),
        lambda k: k.configs[1].kwargs.update(BLOCK=16),
        lambda k: setattr(k.configs[1], "pre_hook", lambda named: None),
    ],
)
def test_it_steps_aside_for_any_change(steady, met, change):
    kernel, outer = steady
    change(kernel)
    outer(Tensor(DTYPE), 1)
    assert len(met) == 1


def test_a_change_that_is_taken_back_is_none(steady, met):
    kernel, outer = steady
    kernel.extra = 1
    del kernel.extra
    kernel.configs[1].kwargs.update(BLOCK=16)
    kernel.configs[1].kwargs.update(BLOCK=2)
    outer(Tensor(DTYPE), 1)
    kernel.nargs = None
    kernel.best_config = kernel.configs[0]
    outer(Tensor(DTYPE), 1)
    assert met == []
    assert blocks_of(kernel) == [2, 2]
    assert kernel.best_config is kernel.configs[1]


def test_attributes_of_tensors_are_read_anew(clock, met):
    """Whatever makes them: a getter of C, a property, a look-up of the class's own."""
    torch = pytest.importorskip("torch")

    class Turned(torch.Tensor):
        kind = torch.float32

        @property
        def dtype(self):
            return self.kind

    kernel = make_kernel(clock)
    outer = disttune.contextual_autotune(n_warmup=0, n_repeat=1, timer=clock, cache="hot")(
        lambda x: kernel[(1,)](x, 1)
    )
    plain, turned = torch.empty(2), torch.empty(2).as_subclass(Turned)
    for x in (plain, turned):
        for _ in range(3):
            outer(x)
    met.clear()
    outer(plain)
    outer(turned)
    assert met == []
    for x in (plain.half(), turned):
        Turned.kind = torch.float16
        outer(x)
        assert len(met) > 0
        met.clear()
    Turned.dtype = plain.dtype  # no property any more
    for _ in range(2):
        met.clear()
        outer(turned)
        outer(plain)
    assert met == []


def test_a_changed_configuration_is_launched_as_it_is_now(steady):
    kernel, outer = steady
    kernel.configs[1].kwargs["BLOCK"] = 16
    assert outer(Tensor(DTYPE), 1) == ("compiled", 16)
    assert outer(Tensor(DTYPE), 1) == ("compiled", 16)


def test_another_function_below_is_launched(steady, met, clock):
    kernel, outer = steady
    other = make_kernel(clock).fn
    kernel.fn = other
    outer(Tensor(DTYPE), 1)
    assert len(other.launches) == 1
    assert kernel.fn is other


def test_an_entry_that_is_gone_is_tuned_again(steady):
    kernel, outer = steady
    kernel.cache.clear()
    outer(Tensor(DTYPE), 1)
    assert len(kernel.fn.launches) == 3


@pytest.mark.parametrize("n", [True, 1.0, 2, None])
def test_other_key_values_are_other_keys(steady, n):
    kernel, outer = steady
    outer(Tensor(DTYPE), n)
    assert len(kernel.fn.launches) == 3
    assert blocks_of(kernel)[:2] == [4, 2]


def test_another_dtype_is_another_key(steady):
    kernel, outer = steady
    outer(Tensor("float16"), 1)
    assert len(kernel.fn.launches) == 3


def test_values_that_the_launch_passes_are_overridden_still(steady):
    _, outer = steady
    assert outer(Tensor(DTYPE), 1, BLOCK=64) == ("compiled", 2)
    assert outer(Tensor(DTYPE), 1, BLOCK=64) == ("compiled", 2)


def test_a_listener_hears_of_the_tuning_as_from_triton(steady, met, monkeypatch):
    knobs = pytest.importorskip("triton.knobs")
    heard = []
    # Tritons before 3.8 have no listener: to them the attribute says nothing, and costs nothing.
    had = hasattr(knobs.autotuning, "listener")
    monkeypatch.setattr(
        knobs.autotuning, "listener", lambda **told: heard.append(told), raising=had
    )
    kernel, outer = steady
    outer(Tensor(DTYPE), 1)
    if had:
        assert len(met) == 1  # somebody listens: Triton's own way
    assert heard == []
    outer(Tensor(DTYPE), 2)
    (told,) = heard
    assert told["fn"] is kernel.fn
    assert told["key"] == (2, DTYPE)
    assert told["best_config"] is kernel.configs[1]
    assert told["configs_timings"] is kernel.configs_timings
    assert told["cache_hit"] is False


def test_outside_of_calls_nothing_is_short(steady, met):
    kernel, _ = steady
    kernel[(1,)](Tensor(DTYPE), 1)
    assert met == []
    assert blocks_of(kernel) == [2]


def test_more_keys_than_are_kept(clock, met):
    kernel = make_kernel(clock)
    outer = disttune.contextual_autotune(n_warmup=0, n_repeat=1, timer=clock, cache="hot")(
        lambda x, n: kernel[(1,)](x, n)
    )
    for _ in range(3):
        for n in range(40):
            assert outer(Tensor(DTYPE), n) == ("compiled", 2)


def test_kernels_are_let_go(clock):
    kernel = make_kernel(clock)
    outer = disttune.contextual_autotune(n_warmup=0, n_repeat=1, timer=clock, cache="hot")(
        lambda k: k[(1,)](Tensor(DTYPE), 1)
    )
    for _ in range(3):
        outer(kernel)
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None
