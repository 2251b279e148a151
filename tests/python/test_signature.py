"""Launchers whose parameters are not those of one plain function."""

from __future__ import annotations

import functools
import inspect

import disttune
import pytest
from disttune._signature import arguments_by_name, own_signature, shown_signature

SPACE = [{"b": 2}, {"b": 1}]


def passing(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


def names(signature):
    return list(signature.parameters)


# -- wrappers --------------------------------------------------------------------------------------


def test_a_wrapper_that_supplies_an_argument_is_called_without_it(clock):
    def with_stream(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, stream="s", **kwargs)

        return wrapper

    @disttune.autotune(SPACE, disttune.key("x"), timer=clock)
    @with_stream
    def f(x, stream, b):
        clock.spend(b)
        return (x, stream, b)

    assert f(1) == f(1) == (1, "s", 1)
    assert list(f.best_configs) == [(1,)]
    assert names(inspect.signature(f)) == ["x", "stream", "b"]


def test_a_wrapper_that_names_parameters_is_known_by_them(clock):
    def unpacking(fn):
        @functools.wraps(fn)
        def wrapper(x, cfg, n=3):
            return fn(x, *cfg)

        return wrapper

    @unpacking
    def g(x, m, n):
        clock.spend(m * n)
        return (m, n)

    space = [{"cfg": (2, 4)}, {"cfg": (1, 2)}]
    f = disttune.autotune(space, disttune.key("n"), timer=clock)(g)
    assert f(1) == (1, 2)
    assert list(f.best_configs) == [(3,)]
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        f(n=4)
    with pytest.raises(ValueError, match=r"'m'.*no such parameter; it has x, cfg, n"):
        disttune.autotune([{"m": 1}], None)(g)
    with pytest.raises(ValueError, match="restore"):
        disttune.autotune(space, None, restore=["m"])(g)


def test_a_wrapper_that_takes_anything_refuses_no_entry_and_no_call(clock):
    def dropping(fn):
        @functools.wraps(fn)
        def wrapper(*args, scale, **kwargs):
            return fn(*args[1:], b=scale * kwargs.pop("c"), **kwargs)

        return wrapper

    @disttune.autotune([{"c": 2}, {"c": 1}], lambda *args, **kwargs: args, timer=clock)
    @dropping
    def f(x, b):
        clock.spend(b)
        return (x, b)

    assert f("context", 7, scale=3) == (7, 3)

    @disttune.autotune(SPACE, lambda *args: args, timer=clock)
    @passing
    @passing
    def g(b, x=0):
        clock.spend(b)
        return (b, x)

    assert g() == (1, 0)

    def without_first(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args[1:], **kwargs)

        return wrapper

    @disttune.autotune(SPACE, lambda *args: args, timer=clock)
    @without_first
    def h(x, b):
        clock.spend(b)
        return (x, b)

    assert h("context", 7) == (7, 1)


def test_the_wrapped_signature_names_what_is_put_back_and_the_fields_of_a_key(clock):
    @disttune.autotune(SPACE, disttune.key("n"), timer=clock, restore=["out"])
    @passing
    def f(x, out, n=4, *, b):
        out[0] += 1
        clock.spend(b)
        return b

    out = [0]
    assert f(1, out) == f(2, out, 4) == 1
    assert out == [2]
    assert list(f.best_configs) == [(4,)]
    with pytest.raises(ValueError, match=r"restore=\['outt'\].*'out'"):
        disttune.autotune(SPACE, None, restore=["outt"])(f.fn)
    with pytest.raises(ValueError, match="'m', but f"):
        disttune.autotune(SPACE, disttune.key("m"))(f.fn)


def test_a_wrapper_that_names_the_first_parameters_shows_the_others_too(clock):
    def logged(method):
        @functools.wraps(method)
        def wrapper(self, *args, **kwargs):
            return method(self, *args, **kwargs)

        return wrapper

    class Layer:
        @disttune.autotune(SPACE, disttune.key("n"), timer=clock)
        @logged
        def forward(self, x, n, b):
            clock.spend(b)
            return (x, n, b)

    assert Layer().forward(5, 6) == (5, 6, 1)
    assert list(Layer.forward.best_configs) == [(6,)]

    def f(ctx, *args, **kwargs):
        pass

    f.__wrapped__ = Layer.forward.fn.__wrapped__
    assert names(shown_signature(f)) == ["ctx", "args", "kwargs"]


def test_own_and_shown_signatures():
    def f(a, b, c=3):
        pass

    class Takes:
        def __call__(self, a, b):
            pass

        @passing
        def method(self, a, b):
            pass

    class Wraps:
        def __init__(self, fn):
            functools.update_wrapper(self, fn)

        def __call__(self, *args, **kwargs):
            pass

    for fn, own, shown in [
        (f, ["a", "b", "c"], None),
        (functools.partial(f, 1), ["b", "c"], None),
        (functools.partial(passing(f), 1), ["args", "kwargs"], ["b", "c"]),
        (functools.update_wrapper(functools.partial(passing(f), 1), f), ["args", "kwargs"],
         ["b", "c"]),
        (Takes(), ["a", "b"], None),
        (Takes().__call__, ["a", "b"], None),
        (Takes().method, ["args", "kwargs"], ["a", "b"]),
        (Wraps(f), ["args", "kwargs"], ["a", "b", "c"]),
        (passing(passing(f)), ["args", "kwargs"], ["a", "b", "c"]),
        (passing(disttune.autotune([{"c": 1}], None)(f)), ["args", "kwargs"], ["a", "b", "c"]),
        (passing(len), ["args", "kwargs"], ["obj"]),
        (passing(max), ["args", "kwargs"], None),
        (len, ["obj"], None),
    ]:  # fmt: skip
        assert names(own_signature(fn)) == own
        assert names(shown_signature(fn)) == (shown or own)
    assert own_signature(max) is shown_signature(max) is None


def test_a_wrapper_of_itself_has_a_signature():
    def f(*args, **kwargs):
        pass

    f.__wrapped__ = f
    assert names(shown_signature(f)) == ["args", "kwargs"]


def test_arguments_have_names_as_far_as_a_signature_goes():
    def f(a, b=2, *more, c=3, **rest):
        pass

    signature = inspect.signature(f)
    assert arguments_by_name(signature, (1,), {"d": 4}) == {
        "a": 1, "b": 2, "more": (), "c": 3, "d": 4, "rest": {"d": 4},
    }  # fmt: skip
    assert arguments_by_name(signature, (1, 5, 6), {})["more"] == (6,)
    assert arguments_by_name(inspect.signature(lambda a: a), (1, 2), {}) == {"a": 1}
    assert arguments_by_name(None, (1,), {"d": 4}) == {"d": 4}


def test_builtins_can_be_tuned():
    f = disttune.autotune([{"sep": "+"}], None)(print)
    assert names(own_signature(print)) and f.name == "print"
    with pytest.raises(ValueError, match="'separator'"):
        disttune.autotune([{"separator": "+"}], None)(print)


def test_a_kernel_of_tritons_takes_whatever_it_is_given():
    triton = pytest.importorskip("triton")

    @triton.jit
    def kernel(x, n):
        pass

    assert disttune.autotune([{"n": 1}], None)(kernel).config_space == [{"n": 1}]


# -- an autotune around an autotune ----------------------------------------------------------------


def stacked(clock, calls, key_fn=None):
    @disttune.autotune([{"a": 2}, {"a": 1}], key_fn, timer=clock)
    @disttune.autotune(SPACE, key_fn, timer=clock)
    def f(x, a=0, b=0, *rest):
        calls.append((a, b))
        clock.spend(10 * a + b)
        return (x, a, b)

    return f


def test_two_tunings_of_one_function_each_set_their_own_names(clock):
    calls = []
    f = stacked(clock, calls)
    assert f(5) == (5, 1, 1)
    assert f.best_configs[None] == {"a": 1}
    assert f.fn.best_configs[None] == {"b": 1}
    first = len(calls)
    assert f(6) == (6, 1, 1)
    assert len(calls) == first + 1
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        stacked(clock, calls)()
    # Another process finds both records, each its own.
    calls.clear()
    assert stacked(clock, calls)(5) == (5, 1, 1)
    assert calls == [(1, 1)]


def test_required_parameters_may_be_set_by_the_tuning_below(clock):
    @disttune.autotune([{"a": 2}, {"a": 1}], lambda x: x, timer=clock)
    @disttune.autotune(SPACE, lambda x, a: (x, a), timer=clock)
    def f(x, b, *, a):
        clock.spend(10 * a + b)
        return (x, a, b)

    assert f(5) == (5, 1, 1)
    assert sorted(f.fn.best_configs) == [(5, 1), (5, 2)]


def test_two_tunings_of_one_function_may_not_set_the_same_name(clock):
    f = disttune.autotune(SPACE, None, timer=clock)(lambda x, a, b: b)
    with pytest.raises(ValueError, match=r"config_space\[1\] sets 'b', which another autotune"):
        disttune.autotune([{"a": 1}, {"a": 1, "b": 1}], None)(f)
    with pytest.raises(ValueError, match=r"'c'.*no such parameter; it has x, a, b"):
        disttune.autotune([{"c": 1}], None)(f)
    above = disttune.autotune([{"a": 1}], None)(f)
    with pytest.raises(ValueError, match="'b', which another autotune"):
        disttune.autotune([{"b": 1}], None)(above)
