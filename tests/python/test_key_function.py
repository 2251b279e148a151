"""Key functions that do nothing but read their arguments are read instead of called."""

from __future__ import annotations

import sys
import traceback
import types

import disttune
import pytest
from disttune._key_function import fields_of
from launcher_rig import ticking

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="this Python's bytecode is not known: functions are called"
)


class Tensor:
    """Knows who has read its shape."""

    def __init__(self, shape=(2, 3), dtype="float16"):
        self._shape = shape
        self.dtype = dtype
        self.readers = []

    @property
    def shape(self):
        self.readers.append(sys._getframe(1).f_code.co_name)
        return self._shape

    def stride(self):
        return (self._shape[-1], 1)

    def __len__(self):
        return self._shape[0]


def with_doc(x, n=0, *args, **kwargs):
    """Takes whatever a launcher does."""
    return (tuple(x.shape), str(x.dtype))


READ = [
    lambda x, n=0: n,
    lambda x, n=0: (n,),
    lambda x, n=0: x.shape,
    lambda x, n=0: (tuple(x.shape), x.dtype, n),
    lambda x, n=0: (str(x.dtype), len(x), x.stride(), x.shape[0], x.shape[-1]),
    lambda x, n=0: (repr(tuple(x.shape)), n),
    lambda x, n=0: (type(x).__name__, sum(x.shape)),
    lambda *args, **kwargs: args[0].shape,
    with_doc,
]
LIMIT = 3


def dotted(x, n=0):
    shape = x.shape
    return shape, n


def rebinding(x, n=0):
    n = 1
    return (x.shape, n)


def branching(x, n=0):
    return x.shape if n else x.dtype


def limited(x, n=0):
    return LIMIT


def kept(x, n=0, *, note=None):
    return x.shape


async def later(x, n=0):
    return x.shape


def many(x, n=0):
    yield x.shape


CALLED = [
    dotted,
    rebinding,
    branching,
    limited,
    kept,
    later,
    many,
    lambda x, n=0: (x.shape, (n, n)),
    lambda x, n=0: (x.shape, 1),
    lambda x, n=0: x.shape[n],
    lambda x, n=0: x.stride()[0] + 1,
    lambda x, n=0: min(x.shape[0], n),
    lambda x, n=0: eval("n"),
    lambda x, n=0: [n],
    lambda x, n=0: (),
    lambda x, /, n=0: n,
    lambda x, n=0, *args: args,
    lambda x, n=0, **kwargs: kwargs,
    len,
    types.SimpleNamespace,
]


def tuned(key_fn):
    make = disttune.autotune([{"block": 1}, {"block": 2}], key_fn, timer=ticking())
    return make(lambda *args, block, **kwargs: "ran")


def called(key_fn):
    """The same, but that it cannot be read."""
    return lambda *args, **kwargs: key_fn(*args, **kwargs)


def outcome(f, *args, **kwargs):
    try:
        return f(*args, **kwargs)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("key_fn", READ, ids=range(len(READ)))
def test_a_key_is_the_same_read_or_called(key_fn):
    def of(key_fn):
        f = tuned(key_fn)
        x = Tensor()
        outcomes = [
            outcome(f, x),
            outcome(f, x, 5),
            outcome(f, x, n=5),
            outcome(f, n=5, x=x),
            outcome(f, Tensor((1 << 40, 7), "int8"), 5),
            outcome(f),
            outcome(f, x, x=x),
            outcome(f, n=5),
        ]
        return outcomes, list(f.best_configs)

    assert of(key_fn) == of(called(key_fn))


@pytest.mark.parametrize("key_fn", READ, ids=range(len(READ)))
def test_what_only_reads_is_not_entered(key_fn):
    x = Tensor()
    f = tuned(key_fn)
    f(x, 1)
    f(x, n=1)
    entered = {key_fn.__name__} & set(x.readers)
    assert bool(entered) == (fields_of(key_fn) is None)


def test_which_functions_can_be_read():
    assert [fields_of(f) is None for f in READ].count(True) == 1  # args[0]
    assert all(fields_of(f) is None for f in CALLED)


def test_what_the_function_does_not_take_is_its_own_error():
    f = tuned(lambda x: x)
    for arguments in ({"x": 1, "n": 2}, {"n": 2}, {}):
        with pytest.raises(TypeError, match=r"<lambda>\(\)"):
            f(**arguments)
    with pytest.raises(TypeError, match=r"<lambda>\(\) takes 1 positional"):
        f(1, 2)
    assert f(1) == f(x=1) == "ran"


def test_what_reading_raises_is_raised_by_the_function():
    def of_a_missing_attribute(x, n=0):
        return (n, x.missing)

    f = tuned(of_a_missing_attribute)
    with pytest.raises(AttributeError, match="missing") as raised:
        f(1)
    assert "of_a_missing_attribute" in [frame.name for frame in traceback.extract_tb(raised.tb)]


def test_an_interrupt_while_reading_comes_once():
    class Interrupting:
        times = 0

        @property
        def shape(self):
            self.times += 1
            raise KeyboardInterrupt

    x = Interrupting()
    f = tuned(lambda x, n=0: x.shape)
    with pytest.raises(KeyboardInterrupt):
        f(x)
    assert x.times == 1


def test_a_function_that_is_changed_is_called():
    def key_fn(x, n=0):
        return n

    f = tuned(key_fn)
    f(1)
    key_fn.__defaults__ = (7,)
    f(1)
    key_fn.__code__ = (lambda x, n=0: ("changed", x)).__code__
    f(1)
    assert list(f.best_configs) == [0, 7, ("changed", 1)]


def test_more_defaults_than_parameters():
    def key_fn(x, n=0):
        return n

    key_fn.__defaults__ = (1, 2, 3)
    assert fields_of(key_fn) is None


def test_names_are_looked_up_when_the_key_is_made():
    names = {"__builtins__": __builtins__}
    exec("def key_fn(x, n=0):\n    return len(x)", names)
    f = tuned(names["key_fn"])
    assert fields_of(names["key_fn"]) is not None
    f((1, 2))
    names["len"] = lambda x: "own"
    f((1, 2))
    assert list(f.best_configs) == [2, "own"]


def test_who_traces_or_profiles_sees_the_function():
    def key_fn(x, n=0):
        return x.shape

    f = tuned(key_fn)
    x = Tensor()
    f(x)
    for install in (sys.setprofile, sys.settrace):
        seen = []
        before = sys.getprofile() if install is sys.setprofile else sys.gettrace()
        install(lambda frame, event, arg, seen=seen: seen.append(frame.f_code.co_name))
        try:
            f(x)
        finally:
            install(before)
        assert "key_fn" in seen
    assert list(f.best_configs) == [(2, 3)]


def test_a_size_of_torch_is_the_tuple_that_it_is():
    torch = pytest.importorskip("torch")
    x = torch.empty(2, 300)
    keys = [
        lambda x: tuple(x.shape),
        lambda x: x.shape,
        lambda x: str(tuple(x.shape)),
        lambda x: (tuple(x.shape),),
    ]
    expected = [(2, 300), (2, 300), "(2, 300)", ((2, 300),)]
    for key_fn, key in zip(keys, expected, strict=True):
        f = disttune.autotune([{"block": 1}], key_fn, timer=ticking())(lambda x, block: None)
        f(x)
        f(x)
        assert list(f.best_configs) == [key]


def test_a_tuple_of_one_and_the_one_follow_each_other():
    """The same objects, once the items of a key and once the key."""
    f = tuned(lambda x, n=0: (x,))
    sys.setprofile(lambda *_: None)
    try:
        f((1,))  # called: the key is the object
        f((1,))
    finally:
        sys.setprofile(None)
    f(((1,),))  # read: the object is the key's item
    assert list(f.best_configs) == [((1,),), (((1,),),)]
