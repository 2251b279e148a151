"""What a key is made of, how keys differ, and what a declared key reads."""

from __future__ import annotations

import copy
import enum
import itertools
import math
import sys
import threading

import disttune
import pytest
from launcher_rig import make, ticking


def test_S6_each_key_keeps_its_own_winner(clock):
    space = [{"block": b} for b in (1, 2)]

    @disttune.autotune(space, lambda n: n, timer=clock)
    def f(n, block):
        clock.spend(100 if (n > 10) == (block == 2) else 200)
        return block

    for _ in range(3):
        assert [f(n) for n in (5, 50, 5, 50)] == [1, 2, 1, 2]


def test_keys_are_type_true(clock):
    f = make(key_fn=lambda x, n=0: x, clock=clock)
    values = [1, True, 1.0, "1", b"1", (1,), [1], (1.0,), (True,), 0.0, -0.0, None]
    for value in values:
        f(value)
    assert len(f.best_configs) == len(values)


def test_S86_keys_that_python_cannot_hash(clock):
    numpy = pytest.importorskip("numpy")
    calls = []
    f = make(key_fn=lambda x, n=0: x, clock=clock, calls=calls)
    for value in ([1, 2], {"a": [1]}, {1, 2}, numpy.float32(2), math.nan, [math.nan]):
        f(value)
        calls.clear()
        f(copy.copy(value))
        assert len(calls) == 1, value


def test_S86_an_object_in_a_key_is_refused_before_anything_runs(clock):
    calls = []
    f = make(key_fn=lambda x, n=0: (1, {"lock": x}), clock=clock, calls=calls)
    with pytest.raises(TypeError, match=r"key\[1\]\['lock'\].*lock"):
        f(threading.Lock())
    with pytest.raises(TypeError, match="function"):
        f(lambda: 1)
    assert calls == []


def test_a_key_that_is_changed_afterwards_is_not_changed_in_the_table(clock):
    calls = []
    f = make(key_fn=lambda x, n=0: x, clock=clock, calls=calls)
    key = [1, 2]
    f(key)
    key.append(3)
    calls.clear()
    f([1, 2])
    assert len(calls) == 1


def test_S2_keywords_take_part_in_the_key(clock):
    calls = []
    f = make(clock=clock, calls=calls)
    f(x=1, n=2)
    f(x=1, n=3)
    calls.clear()
    f(x=1, n=2)
    f(n=3, x=1)
    f(1, n=2)
    assert len(calls) == 3
    assert len(f.best_configs) == 2


class Tensor:
    def __init__(self, shape, dtype="f4"):
        self.shape = shape
        self.dtype = dtype

    def stride(self):
        return (self.shape[1], 1)


def test_a_declared_key_is_the_tuple_of_its_fields(clock):
    f = make(key_fn=disttune.key("x.shape", "x.dtype", "n"), clock=clock)
    f(Tensor((2, 3)))
    f(x=Tensor((2, 3)), n=0)
    f(Tensor((2, 3)), 0)
    f(n=1, x=Tensor((2, 3)))
    assert list(f.best_configs) == [((2, 3), "f4", 0), ((2, 3), "f4", 1)]


def test_a_declared_key_and_a_function_make_the_same_record(clock):
    one = make(key_fn=disttune.key("x.shape"), clock=clock, name="f", version="1")
    two = make(key_fn=lambda x, n=0: (x.shape,), clock=clock, name="f", version="1")
    one(Tensor((2, 3)))
    assert two.explain(Tensor((2, 3))).source == "store"


def test_a_declared_key_calls_methods(clock):
    f = make(key_fn=disttune.key("x.stride()"), clock=clock)
    f(Tensor((2, 3)))
    assert list(f.best_configs) == [((3, 1),)]


def test_a_declared_key_says_what_is_wrong():
    with pytest.raises(ValueError, match="no such parameter; it has x, n, block"):
        make(key_fn=disttune.key("y.shape"))
    with pytest.raises(ValueError, match=r"x\.shape"):
        disttune.key("x[0]")
    with pytest.raises(TypeError):
        disttune.key(3)
    f = make(key_fn=disttune.key("x.shape", "x.size"))
    with pytest.raises(TypeError, match="missing the argument 'x'"):
        f()
    with pytest.raises(AttributeError):
        f(3)


def test_an_int_of_any_size_is_a_key(clock):
    f = make(key_fn=lambda x, n=0: x, clock=clock)
    for key in (10**5000, -(10**5000) - 1, 7**20000):
        f(key)
        assert key in f.best_configs
        assert f.result(key).key == key
    assert list(f.best_configs) == [10**5000, -(10**5000) - 1, 7**20000]


class Kind(enum.Enum):
    A = 1
    B = 2


class Whole(int):
    pass


class Text(str):
    pass


class Pair(tuple):
    pass


VALUES = [
    *(1, True, 1.0, "1", b"1", (1,), (True,), (1.0,), [1], ((1,), 2), ((1, 2),), (), None),
    *(0, False, 0.0, -0.0, -1, 2**30, -(2**30), 2**70, -(2**70), 2**70 + 1, math.nan, "", "\xe9"),
]


BOTH_KINDS = pytest.mark.parametrize(
    "key, entry",
    [(lambda x: x, lambda x: x), (disttune.key("x"), lambda x: (x,))],
    ids=["computed", "declared"],
)


def numbered(values, key, entry):
    """A launcher that returns the place of the key's last equal in `values`."""
    f = disttune.autotune([{"number": 0}], key)(lambda x, number: number)
    for number, value in enumerate(values):
        f.best_configs[entry(value)] = {"number": number}
    return f


@BOTH_KINDS
def test_keys_that_follow_each_other_are_told_apart_by_type_and_value(key, entry):
    f = numbered(VALUES, key, entry)
    for first, second in itertools.product(range(len(VALUES)), repeat=2):
        got = [f(copy.deepcopy(VALUES[i])) for i in (first, second, second)]
        assert got == [first, second, second]


@BOTH_KINDS
def test_a_subclass_is_the_same_key_whatever_came_before_it(key, entry):
    values = [1, "1", (1,), Whole(1), Text("1"), Pair((1,)), Kind.A, "between"]
    f = numbered(values, key, entry)
    for first, second in itertools.permutations(values[:-1], 2):
        expected = (f(first), f("between"), f(second))[::2]
        f("between")
        assert (f(first), f(second)) == expected


def test_fields_that_change_one_by_one(clock):
    f = make(key_fn=disttune.key("x.shape", "x.dtype", "n"), clock=clock)
    calls = [
        (Tensor((4, 4)), 1),
        (Tensor((4, 5)), 1),
        (Tensor((4, 4, 1)), 1),
        (Tensor((4, 4), "f8"), 1),
        (Tensor((4, 4)), 2),
        (Tensor((4, True)), 1),
        (Tensor([4, 4]), 1),
    ]
    for _ in range(2):
        for x, n in calls:
            f(x, n)
            f(x, n=n)
    assert len(f.best_configs) == len(calls)


@pytest.mark.parametrize("key", [lambda x, n=0: x, disttune.key("x"), None])
def test_a_change_of_best_configs_holds_for_the_next_call(clock, key):
    f = make(key_fn=key, clock=clock) if key else make_without_key(clock)
    f(1)
    assert f(1)[2] == 2
    (entry,) = f.best_configs
    f.best_configs[entry] = {"block": 9}
    assert f(1)[2] == 9
    f.best_configs[entry] = {"block": 8}
    assert f(1)[2] == 8
    del f.best_configs[entry]
    assert f(1)[2] == 2
    f.best_configs.clear()
    assert f(1)[2] == 2


def make_without_key(clock):
    @disttune.autotune([{"block": 1}, {"block": 2}], None, timer=clock)
    def f(x, n=0, *, block):
        clock.spend({1: 300, 2: 100}.get(block, 50))
        return (x, n, block)

    return f


def test_many_fields():
    names = [f"a{i}" for i in range(12)]
    scope = {}
    exec(f"def f({', '.join(names)}, block): return block", scope)
    f = disttune.autotune([{"block": 1}], disttune.key(*names), timer=ticking())(scope["f"])
    for last in (1, 2, 1, 2):
        f(*range(11), last)
    assert list(f.best_configs) == [(*range(11), 1), (*range(11), 2)]


def test_tensors_whose_attributes_are_not_plain_ones():
    torch = pytest.importorskip("torch")

    class Transposed(torch.Tensor):
        @property
        def shape(self):
            return "turned"

    class Answering(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function == torch.Tensor.shape.__get__:
                return (7, 7)
            return super().__torch_function__(function, types, args, kwargs or {})

    class Made:
        def __getattribute__(self, name):
            return "made" if name == "shape" else object.__getattribute__(self, name)

    f = disttune.autotune([{"block": 1}], disttune.key("x.shape"), timer=ticking())(
        lambda x, block: None
    )
    plain = torch.empty(2, 3)
    for x in (plain, plain.as_subclass(Transposed), plain.as_subclass(Answering), Made(), plain):
        f(x)
        f(x)
    assert list(f.best_configs) == [((2, 3),), ("turned",), ((7, 7),), ("made",)]


def test_an_attribute_of_an_object_is_not_looked_for_in_its_class_again(clock):
    """To find that a class has no such attribute takes longer than a launch."""
    asked = []

    class Asked(type):
        def __getattr__(cls, name):
            asked.append(name)
            raise AttributeError(name)

    class Tensor(metaclass=Asked):
        def __init__(self):
            self.shape = (2, 3)

    f = make(key_fn=disttune.key("x.shape"), clock=clock)
    f(Tensor())
    asked.clear()
    for _ in range(5):
        f(Tensor())
    assert asked == []
    x = Tensor()
    Tensor.shape = property(lambda self: "from now on")
    f(x)
    assert list(f.best_configs) == [((2, 3),), ("from now on",)]


def test_a_key_keeps_no_reference_to_what_it_was_made_from(clock):
    torch = pytest.importorskip("torch")
    f = make(key_fn=disttune.key("x.shape", "n"), clock=clock)
    x, n = torch.empty(2, 3), 10**6
    f(x, n)
    before = sys.getrefcount(x), sys.getrefcount(torch.Size)
    for _ in range(1000):
        f(x, n)
        f(x, n=n)
    assert (sys.getrefcount(x), sys.getrefcount(torch.Size)) == before


def test_S77_many_keys_whose_python_hashes_collide(clock):
    @disttune.autotune([{"c": 1}], lambda n: n * (2**61 - 1), timer=clock, repeat=1, warmup=0)
    def f(n, c):
        clock.spend(c)
        return n

    for n in range(300):
        f.best_configs[n * (2**61 - 1)] = {"c": 1}
    assert [f(n) for n in range(300)] == list(range(300))


def test_enum_members_and_dataclasses_in_keys(clock):
    f = make(key_fn=lambda x, n=0: x, clock=clock)
    f(Kind.A)
    f(Kind.B)
    f(1)
    assert list(f.best_configs) == [Kind.A, Kind.B, 1]


def test_a_callable_object_in_a_key_says_how_to_describe_it(clock):
    class Scale:
        def __call__(self, x):
            return x

    f = disttune.autotune([{"c": 1}, {"c": 2}], lambda x: x, timer=clock)(
        lambda x, c: clock.spend(c)
    )
    with pytest.raises(TypeError, match="register_description"):
        f(Scale())
    with pytest.raises(TypeError, match="put what it depends on"):
        f(print)
