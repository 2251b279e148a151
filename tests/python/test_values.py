"""Python objects in canonical text: one spelling a value, type-true."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import math
import pickle
import threading

import disttune
import pytest
from disttune import _core


def text(value):
    return _core.canonical_text(value)


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 1


class Flag(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Shape:
    rows: int
    columns: int
    note: str = dataclasses.field(default="", compare=False)


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, "None"),
        (True, "True"),
        (1, "1"),
        (-7, "-7"),
        (2**63 - 1, "9223372036854775807"),
        (2**63, "9223372036854775808"),
        (-(10**40), "-1" + "0" * 40),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        ("a", '"a"'),
        ('é"\n', '"é\\"\\n"'),
        (b"a\x00", 'b"a\\x00"'),
        ((), "()"),
        ((1,), "(1,)"),
        ((1, "a"), '(1, "a")'),
        ([], "[]"),
        ([1, [2]], "[1, [2]]"),
        ({}, "{}"),
        ({"b": 1, "a": 2}, '{"a": 2, "b": 1}'),
        (set(), "set()"),
        ({3, 1, 20}, "{1, 20, 3}"),
        (frozenset({1}), "{1}"),
        (1 + 2j, "complex(1.0, 2.0)"),
    ],
)
def test_plain_kinds(value, wanted):
    assert text(value) == wanted
    again = disttune.parse(wanted)
    assert again.text == wanted


def test_ints_of_any_size_are_decimal():
    wanted = {
        10**5000: "1" + "0" * 5000,
        -(10**5000 - 1): "-" + "9" * 5000,
        10**20000 + 7 * 10**640: "1" + "0" * 19359 + "7" + "0" * 640,
    }
    for value, decimal in wanted.items():
        assert text(value) == decimal
        assert disttune.parse(decimal).python() == value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        5,
        2**80,
        1.5,
        "x",
        b"y",
        (1, (2,)),
        [1, [2.0]],
        {"a": {1: None}},
        frozenset({1, 2}),
    ],
)
def test_back_to_python(value):
    back = _core.describe(value).python()
    assert back == value
    assert type(back) is type(value)


def test_types_differ():
    texts = [text(v) for v in (1, True, 1.0, "1", b"1", (1,), [1], {1}, {1: 1}, 0.0, -0.0)]
    assert len(set(texts)) == len(texts)


def test_every_nan_is_one():
    assert text(math.nan) == text(-math.nan) == text(float("nan") * 0)


def test_named_objects():
    module = __name__
    assert text(Color.RED) == f"{module}.Color.RED()"
    assert text(Level.HIGH) == f"{module}.Level.HIGH()"
    assert text(Shape(2, 3, "x")) == f"{module}.Shape(rows=2, columns=3)"
    assert text(Point(1, 2)) == f"{module}.Point(x=1, y=2)"
    assert text(Flag.A | Flag.B) != text(Flag.A)
    assert text(collections.OrderedDict(a=1)) == 'collections.OrderedDict({"a": 1})'


def test_numpy_scalars():
    numpy = pytest.importorskip("numpy")
    assert text(numpy.float32(1.5)) == "numpy.float32(1.5)"
    assert text(numpy.int64(3)) == "numpy.int64(3)"
    assert text(numpy.bool_(True)) == "numpy.bool(True)"
    assert text(numpy.float64(1.5)) != text(1.5)
    assert text(numpy.str_("a")) == 'numpy.str_("a")'


def test_torch_objects():
    torch = pytest.importorskip("torch")
    assert text(torch.float16) == "torch.float16()"
    assert text(torch.Size([2, 3])) == text((2, 3))
    assert text(torch.device("cpu")) == 'torch.device("cpu", None)'
    with pytest.raises(TypeError, match="to_hashable"):
        text(torch.zeros(2))


def test_dict_and_set_order_does_not_depend_on_insertion():
    forward = {i: str(i) for i in range(50)}
    backward = {i: str(i) for i in reversed(range(50))}
    assert text(forward) == text(backward)
    assert text({"a", "b", "c", "d"}) == '{"a", "b", "c", "d"}'


class Plain:
    pass


@pytest.mark.parametrize(
    "value",
    [Plain(), threading.Lock(), object(), print, (lambda: 1), Plain, "".join, bytearray(b"x")],
)
def test_what_cannot_be_described_is_a_type_error(value):
    with pytest.raises(TypeError, match="cannot describe an object of type"):
        text(value)


def test_errors_say_where():
    with pytest.raises(TypeError, match=r"value\[2\]\['x'\]: .*Plain.*register_description"):
        text((1, 2, {"x": Plain()}))
    with pytest.raises(TypeError, match=r"value\.rows\[0\]"):
        text(Shape([Plain()], 1))


def test_a_lone_surrogate_is_a_type_error():
    with pytest.raises(TypeError, match=r"value\[0\].*surrogate"):
        text(("\ud800",))


def test_a_container_that_holds_itself_is_a_type_error():
    loop: list = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contains itself"):
        text(loop)
    table: dict = {}
    table["self"] = table
    with pytest.raises(TypeError, match="contains itself"):
        text(table)


def test_registered_descriptions():
    class Layout:
        def __init__(self, order):
            self.order = order

    class Sub(Layout):
        pass

    disttune.register_description(Layout, lambda v: disttune.named("lib.Layout", v.order, pad=0))
    assert text(Layout((0, 1))) == "lib.Layout((0, 1), pad=0)"
    assert text([Sub("a")]) == '[lib.Layout("a", pad=0)]'
    assert disttune.parse("lib.Layout((0, 1), pad=0)").fields[1][0] == "pad"


def test_registration_by_name_before_the_type_exists():
    disttune.register_description(f"{__name__}.Later", lambda v: ("later", v.n))
    later = type("Later", (), {"n": 4, "__module__": __name__, "__qualname__": "Later"})
    assert text(later()) == '("later", 4)'


def test_registration_refuses_nonsense():
    with pytest.raises(TypeError):
        disttune.register_description(Plain, "no function")
    with pytest.raises(TypeError):
        disttune.register_description(3, str)
    with pytest.raises(ValueError):
        disttune.register_description(int, str)


def test_a_description_that_raises_passes():
    class Raising:
        pass

    def raising(value):
        raise ZeroDivisionError("here")

    disttune.register_description(Raising, raising)
    with pytest.raises(ZeroDivisionError):
        text(Raising())


@pytest.mark.parametrize("bad", ["", "1.", "(1)", "{1: 2", "01", '"', "[1,2]", "1 ", "True()x"])
def test_parse_refuses_what_is_not_canonical(bad):
    with pytest.raises(TypeError):
        disttune.parse(bad)


def test_values_compare_and_hash_as_text():
    a, b = disttune.parse("(1, 2)"), _core.describe((1, 2))
    assert a == b
    assert hash(a) == hash(b)
    assert a != disttune.parse("(1, 2.0)")
    assert str(a) == "(1, 2)"
    assert _core.describe(a) == a


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_values_are_pickled_and_copied_as_their_text(protocol):
    value = disttune.named("point", 1, y=(2.5, None))
    assert pickle.loads(pickle.dumps(value, protocol)) == value
    assert copy.deepcopy({value: [value]}) == {value: [value]}
    # As what a process sends to another: the keys and choices of a tuned function.
    assert pickle.loads(pickle.dumps({("n", value): {"block": 64}}, protocol)) == {
        ("n", value): {"block": 64}
    }
