"""The tuned function as an object: keys, table, call keywords, its manners as a function."""

from __future__ import annotations

import copy
import enum
import functools
import gc
import inspect
import itertools
import math
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref

import disttune
import pytest


def make(space=None, key_fn=None, prune_fn=None, costs=None, calls=None, clock=None, **options):
    """A launcher `f(x, n=0, *, block)` whose candidates cost what `costs` says."""
    space = [{"block": b} for b in (1, 2, 3)] if space is None else space
    costs = costs or {1: 300, 2: 100, 3: 200}

    @disttune.autotune(
        config_space=space,
        key_fn=key_fn or (lambda x, n=0: (x, n)),
        prune_fn=prune_fn,
        timer=clock,
        **options,
    )
    def f(x, n=0, *, block):
        """Say what runs."""
        if calls is not None:
            calls.append((x, block))
        if clock is not None:
            clock.spend(costs.get(block, 50))
        return (x, n, block)

    return f


def ticking():
    """A clock for functions that spend nothing of a scripted one."""
    return itertools.count(0, 1000).__next__


def test_the_fastest_candidate_is_chosen_and_kept(clock):
    calls = []
    f = make(clock=clock, calls=calls)
    assert f(7) == (7, 0, 2)
    # 5 + 10 runs a candidate, in list order, and one final run.
    assert [block for _, block in calls] == [1] * 15 + [2] * 15 + [3] * 15 + [2]
    calls.clear()
    assert f(7) == (7, 0, 2)
    assert calls == [(7, 2)]


def test_a_second_launcher_finds_the_record(clock):
    calls = []

    def again():
        return make(clock=clock, calls=calls)

    again()(7)
    calls.clear()
    assert again()(7) == (7, 0, 2)
    assert len(calls) == 1


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


# ---- declared keys ------------------------------------------------------------------------------


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


# ---- call keywords ------------------------------------------------------------------------------


def test_autotune_false_runs_entry_0_and_remembers_nothing(clock):
    calls = []
    f = make(clock=clock, calls=calls)
    assert f(7, autotune=False) == (7, 0, 1)
    assert f(7, block=9, autotune=False, autotune_allow_arg_overwrite=True) == (7, 0, 9)
    assert len(calls) == 2
    assert len(f.best_configs) == 0


def test_call_keywords_do_not_reach_the_function(clock):
    seen = []

    @disttune.autotune([{"c": 1}], lambda *args, **kwargs: seen.append(kwargs), timer=clock)
    def f(**kwargs):
        seen.append(kwargs)
        clock.spend(1)

    f(autotune=True, autotune_verbose=False, autotune_allow_arg_overwrite=False, autotune_pg=None)
    assert {tuple(kwargs) for kwargs in seen} == {(), ("c",)}


def test_S84_a_tuned_name_given_by_the_caller_is_refused_in_both_spellings(clock):
    f = make(clock=clock)
    with pytest.raises(ValueError, match=r"'block'.*autotune_allow_arg_overwrite"):
        f(1, block=3)

    @disttune.autotune([{"block": 1}], None, timer=clock)
    def g(x, block):
        return block

    with pytest.raises(ValueError, match="'block'"):
        g(1, 3)
    with pytest.raises(ValueError, match="'block'"):
        g(1, block=3)


def test_a_tuned_name_is_refused_without_tuning_too(clock):
    @disttune.autotune([{"block": 1}], None, timer=clock)
    def g(x, block):
        return block

    with pytest.raises(ValueError, match="'block'"):
        g(1, 3, autotune=False)
    with pytest.raises(ValueError, match="'block'"):
        g(1, block=3, autotune=False)
    assert g(1, 3, autotune=False, autotune_allow_arg_overwrite=True) == 3
    assert g(1, autotune=False) == 1


def test_a_name_of_a_later_entry_collides_too(clock):
    @disttune.autotune([{"a": 1}, {"b": 2}], None, timer=clock)
    def f(a=0, b=0):
        return (a, b)

    with pytest.raises(ValueError, match="'b'"):
        f(b=3)


def test_an_overwritten_argument_wins_and_is_a_key_of_its_own(clock):
    calls = []
    space = [{"block": b, "warps": w} for b in (1, 2) for w in (4, 8)]

    @disttune.autotune(space, lambda x, *args, **kwargs: x, timer=clock)
    def f(x, block, warps):
        calls.append((block, warps))
        clock.spend(100 * block + warps)
        return (block, warps)

    assert f(1) == (1, 4)
    calls.clear()
    with pytest.warns(disttune.DisttuneWarning, match="'block'"):
        assert f(1, block=7, autotune_allow_arg_overwrite=True) == (7, 4)
    assert {block for block, _ in calls} == {7}
    calls.clear()
    assert f(1) == (1, 4)
    assert f(1, 7, autotune_allow_arg_overwrite=True) == (7, 4)
    assert len(calls) == 2
    assert dict(f.best_configs) == {1: {"block": 1, "warps": 4}}


def test_an_overwritten_argument_is_warned_of_once_even_where_warnings_are_errors(clock):
    @disttune.autotune([{"block": 1}, {"block": 2}], lambda x, block=0: x, timer=clock)
    def warned(x, block):
        clock.spend(block)
        return block

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(disttune.DisttuneWarning, match="'block'"):
            warned(1, block=7, autotune_allow_arg_overwrite=True)
        assert warned(1, block=7, autotune_allow_arg_overwrite=True) == 7
        assert warned(2, block=7, autotune_allow_arg_overwrite=True) == 7


def test_the_search_for_a_world_does_not_lose_the_error_of_a_call(clock, monkeypatch):
    f = disttune.autotune([{"c": 1}, {"c": 2}], lambda x: x, timer=clock)(
        lambda x, c: clock.spend(c)
    )
    for name in ("first", "second"):  # a new module may be torch: it is looked for again
        monkeypatch.setitem(sys.modules, name, sys)
        with pytest.raises(ValueError, match="'c'"):
            f(1, c=1)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("a\0b", "a\N{REPLACEMENT CHARACTER}b"),
        ("\ud800x\udfff", "\N{REPLACEMENT CHARACTER}x\N{REPLACEMENT CHARACTER}"),
        ("\uacf5 \ud7ff", "\uacf5 \ud7ff"),
    ],
)
def test_all_of_a_failures_message_is_recorded(clock, message, text):
    @disttune.autotune([{"b": 1}, {"b": 2}], None, timer=clock, name="f", version="1")
    def f(b):
        if b == 1:
            raise ValueError(message)
        clock.spend(b)

    f()
    (failed,) = [c for c in f.result().candidates if c.status != "ok"]
    assert f"ValueError: {text}" in failed.reason
    assert not failed.reason.endswith("ValueError: a")


# ---- best_configs -------------------------------------------------------------------------------


def test_best_configs_is_a_mutable_mapping(clock):
    calls = []
    f = make(key_fn=lambda x, n=0: x, clock=clock, calls=calls)
    f(1)
    f(True)
    best = f.best_configs
    assert len(best) == 2
    assert best.get(1) == {"block": 2}
    assert best[True] == {"block": 2}
    assert best.get(1.0) is None
    assert 1 in best
    assert 1.0 not in best
    assert [(type(k), v) for k, v in best.items()] == [
        (int, {"block": 2}),
        (bool, {"block": 2}),
    ]
    with pytest.raises(KeyError):
        best[2]
    assert best.pop(True) == {"block": 2}
    assert list(best) == [1]
    best[5] = {"block": 3}
    calls.clear()
    assert f(5) == (5, 0, 3)
    assert len(calls) == 1
    del best[5]
    best.clear()
    assert len(f.best_configs) == 0
    calls.clear()
    f(1)
    assert len(calls) == 1, "the record is still in the store"


def test_what_best_configs_gives_is_the_callers_own(clock):
    f = make(key_fn=lambda x, n=0: x, clock=clock)
    f(1)
    f.best_configs[1]["block"] = 77
    assert f.best_configs[1] == {"block": 2}
    assert f(1) == (1, 0, 2)


# ---- candidate values ---------------------------------------------------------------------------


class Config:
    def __init__(self, block):
        self.kwargs = {"block": block}
        self.pre_hook = None


disttune.register_description(Config, lambda c: disttune.named("Config", c.kwargs))


def test_what_a_launcher_does_to_its_values_stays_its_own(clock):
    space = [{"cfg": Config(b)} for b in (1, 2)]
    seen = []

    @disttune.autotune(space, lambda x: x, timer=clock)
    def f(x, cfg):
        seen.append(cfg.kwargs["block"])
        clock.spend(cfg.kwargs["block"] * 100)
        cfg.kwargs["block"] += 1000
        return cfg

    kept = f(1)
    # A fresh copy a visit, and one for the decided key.
    assert seen[0] == 1
    assert seen[15] == 2
    assert seen[-1] == 1
    assert [e["cfg"].kwargs["block"] for e in space] == [1, 2]
    assert [e["cfg"].kwargs["block"] for e in f.config_space] == [1, 2]
    assert f.best_configs[1]["cfg"].kwargs["block"] == 1
    assert f.result(1).winner["cfg"].kwargs["block"] == 1
    assert f(1) is kept, "a warm call makes no copy"


def test_values_that_cannot_be_copied_are_passed_as_they_are(clock):
    class Stubborn:
        def __deepcopy__(self, memo):
            raise RuntimeError

        __copy__ = __deepcopy__

    disttune.register_description(Stubborn, lambda s: disttune.named("Stubborn"))
    only = Stubborn()

    @disttune.autotune([{"s": only}], None, timer=clock)
    def f(s):
        clock.spend(5)
        return s

    assert f() is only


def test_a_pre_hook_is_never_copied(clock):
    triton = pytest.importorskip("triton")

    def hook(args):
        return args

    config = triton.Config({"B": 1}, pre_hook=hook)

    @disttune.autotune([{"cfg": config}], None, timer=clock)
    def f(cfg):
        clock.spend(5)
        return cfg

    got = f()
    assert got is not config
    assert got.pre_hook is hook
    assert got.kwargs == config.kwargs


class Hook:
    def __call__(self, args):
        return args


@pytest.mark.parametrize("wrap", [lambda c: c, lambda c: [c], lambda c: ({"a": [c]},)])
@pytest.mark.parametrize("flat", [False, True])
def test_a_copied_configuration_keeps_every_attribute(wrap, flat):
    triton = pytest.importorskip("triton")

    class Tagged(triton.Config):
        def __init__(self, kwargs, tag, **more):
            super().__init__(kwargs, **more)
            self.tag = tag

    hook = Hook()
    config = Tagged({"B": [1]}, tag=["a"], num_warps=8, pre_hook=hook)
    config.extra = {"swizzle": [2]}
    if flat:
        config.lock = threading.Lock()  # it cannot be copied

    def inside(value):
        while not isinstance(value, triton.Config):
            value = value["a"] if isinstance(value, dict) else value[0]
        return value

    got = inside(disttune.private_copy(wrap(config)))
    assert type(got) is Tagged
    assert vars(got) == vars(config)
    assert got.pre_hook is hook
    if not flat:
        assert got is not config
        for name in ("kwargs", "tag", "extra"):
            assert getattr(got, name) is not getattr(config, name)
        assert got.extra["swizzle"] is not config.extra["swizzle"]
    elif wrap(config) is config:
        assert got is not config


def test_a_launcher_sees_the_attributes_of_its_configuration(clock):
    triton = pytest.importorskip("triton")
    config = triton.Config({"B": 1})
    config.extra = [3]

    @disttune.autotune([{"cfg": config}], None, timer=clock)
    def f(cfg):
        clock.spend(5)
        cfg.extra.append(cfg.extra[0])
        return cfg.extra

    assert f() == [3, 3]
    assert config.extra == [3]


# ---- the key of the call before ------------------------------------------------------------------


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


# ---- how tuned values reach the function --------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        "x, a, b",
        "x, b, a",
        "x, *, a, b",
        "x, n=0, a=1, b=1",
        "x, a, b, *rest",
        "x, a, b, **more",
        "x, a, *, b",
        "*args, a, b",
        "x, **kwargs",
    ],
)
def test_tuned_values_reach_their_parameters(head):
    scope = {}
    body = "(kwargs['a'], kwargs['b'])" if "kwargs" in head else "(a, b)"
    exec(f"def f({head}): return {body}", scope)
    for space in ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]):
        f = disttune.autotune(space, None, timer=ticking())(scope["f"])
        for _ in range(3):
            assert f(5) == (1, 2)
        for _ in range(3):
            if "args" not in head.replace("kwargs", ""):
                assert f(x=5) == (1, 2)
        assert f(5, autotune=False) == (1, 2)


def test_a_function_that_changes_its_code_is_called_as_it_is_now():
    def run(x, a, b):
        return (a, b)

    def turned(x, b, a):
        return (a, b)

    f = disttune.autotune([{"a": 1, "b": 2}], None, timer=ticking())(run)
    assert f(5) == f(5) == (1, 2)
    run.__code__ = turned.__code__
    assert f(5) == f(5) == (1, 2)


def test_a_wrapper_gets_keywords_whatever_signature_it_shows():
    def run(x, a, b):
        return (a, b)

    @functools.wraps(run)
    def wrapper(*args, **kwargs):
        return (args, kwargs)

    f = disttune.autotune([{"a": 1, "b": 2}], None, timer=ticking())(wrapper)
    for _ in range(3):
        assert f(5) == ((5,), {"a": 1, "b": 2})


# ---- manners ------------------------------------------------------------------------------------


def test_it_looks_like_the_function(clock):
    f = make(clock=clock)
    assert f.__name__ == "f"
    assert f.__doc__ == "Say what runs."
    assert f.__wrapped__ is f.fn
    assert f.__module__ == __name__
    assert list(inspect.signature(f).parameters) == ["x", "n", "block"]
    assert f.fn(1, block=5) == (1, 0, 5)
    assert f.config_space == [{"block": 1}, {"block": 2}, {"block": 3}]
    assert f.name == "f"
    assert callable(f.key_fn)
    assert f.prune_fn is None
    f.note = "mine"
    assert f.note == "mine"


def test_it_works_as_a_method(clock):
    class Layer:
        scale = 3

        @disttune.autotune([{"c": 1}, {"c": 2}], lambda self, x: x, timer=clock)
        def forward(self, x, c):
            clock.spend(c)
            return (self.scale, x, c)

        @staticmethod
        @disttune.autotune([{"c": 1}], lambda x: x, timer=clock)
        def static(x, c):
            clock.spend(c)
            return x

    layer = Layer()
    assert layer.forward(5) == (3, 5, 1)
    assert layer.forward(x=5) == (3, 5, 1)
    assert Layer.forward(layer, 5) == (3, 5, 1)
    bound = layer.forward
    assert bound(5) == (3, 5, 1)
    assert layer.static(4) == 4


@disttune.autotune([{"c": 1}], None)
def importable(c):
    return c


def test_S85_it_pickles_by_name():
    assert pickle.loads(pickle.dumps(importable)) is importable
    f = make()
    with pytest.raises(pickle.PicklingError, match="top level"):
        pickle.dumps(f)
    assert copy.copy(f) is f
    assert copy.deepcopy(f) is f


def test_S72_launchers_made_without_end_are_collected(clock):
    died = []

    class Captured:
        pass

    for _ in range(20):
        captured = Captured()
        weakref.finalize(captured, died.append, 1)

        def run(x, c, captured=captured):
            return captured

        disttune.autotune([{"c": 1}], lambda x: x, timer=clock)(run)(1, autotune=False)
        del captured, run
    gc.collect()
    assert len(died) == 20


def test_a_cycle_through_the_function_is_collected(clock):
    def build():
        holder = []

        @disttune.autotune([{"c": 1}], None, timer=lambda: holder and 1)
        def f(c):
            return holder

        holder.append(f)
        return weakref.ref(f)

    ref = build()
    gc.collect()
    assert ref() is None


def test_S73_a_warm_call_keeps_no_argument_alive(clock):
    class Argument:
        pass

    @disttune.autotune([{"c": 1}, {"c": 2}], lambda x, n: n, timer=clock)
    def f(x, n, c):
        clock.spend(c)

    argument = Argument()
    f(argument, 1)
    f(argument, n=1)
    f(x=argument, n=1)
    ref = weakref.ref(argument)
    del argument
    assert ref() is None, "neither the cold call nor the warm ones kept it"


def test_a_failing_candidate_keeps_nothing_alive(clock):
    class Argument:
        pass

    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)
    def f(x, c):
        clock.spend(c)
        if c == 1:
            raise RuntimeError("no", x)

    argument = Argument()
    f(argument)
    ref = weakref.ref(argument)
    del argument
    assert ref() is None


def test_S77_many_keys_whose_python_hashes_collide(clock):
    @disttune.autotune([{"c": 1}], lambda n: n * (2**61 - 1), timer=clock, repeat=1, warmup=0)
    def f(n, c):
        clock.spend(c)
        return n

    for n in range(300):
        f.best_configs[n * (2**61 - 1)] = {"c": 1}
    assert [f(n) for n in range(300)] == list(range(300))


def test_results_and_exceptions_of_warm_calls_are_the_callers(clock):
    fail = [False]

    @disttune.autotune([{"c": 1}], None, timer=clock)
    def f(c):
        clock.spend(c)
        if fail[0]:
            raise KeyError("mine")
        return c

    f()
    fail[0] = True
    with pytest.raises(KeyError, match="mine"):
        f()


def test_the_table_may_be_cleared_from_inside_the_function(clock):
    @disttune.autotune([{"c": [1, 2, 3]}], None, timer=clock)
    def f(c):
        f.best_configs.clear()
        clock.spend(5)
        gc.collect()
        return list(c)

    assert f() == [1, 2, 3]
    assert f() == [1, 2, 3]


def test_keyword_calls_of_many_shapes(clock):
    @disttune.autotune([{"c": 1}], lambda **kwargs: None, timer=clock)
    def f(*, c, **kwargs):
        clock.spend(c)
        return kwargs

    f()
    for i in range(100):
        given = {f"k{j}": j for j in range(i % 40)}
        assert f(**given) == given


def test_partials_and_callable_objects(clock):
    def run(a, x, c):
        clock.spend(c)
        return (a, x, c)

    f = disttune.autotune([{"c": 1}], None, timer=clock)(functools.partial(run, 5))
    assert f(6) == (5, 6, 1)
    assert f.name == "run"

    class Callable:
        def __call__(self, x, c):
            clock.spend(c)
            return (x, c)

    g = disttune.autotune([{"c": 1}], None, timer=clock)(Callable())
    assert g(6) == (6, 1)


def test_enum_members_and_dataclasses_in_keys(clock):
    f = make(key_fn=lambda x, n=0: x, clock=clock)
    f(Kind.A)
    f(Kind.B)
    f(1)
    assert list(f.best_configs) == [Kind.A, Kind.B, 1]


def test_a_daemon_thread_in_warm_calls_does_not_spoil_the_end_of_the_program(tmp_path):
    program = """
import threading, disttune

@disttune.autotune([{"b": 1}, {"b": 2}], key_fn=lambda x: x)
def f(x, b):
    started.set()
    return b

started = threading.Event()
f(0)

def serve():
    while True:
        f(0)

started.clear()
threading.Thread(target=serve, daemon=True).start()
started.wait()
print("bye")
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {**os.environ, "TRITON_DIST_AUTOTUNE_HOME": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "bye\n", "")


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


def test_a_daemon_thread_in_a_tuning_does_not_spoil_the_end_of_the_program(tmp_path):
    program = """
import sys, threading, time, disttune

started = threading.Event()

@disttune.autotune([{"b": 1}, {"b": 2}], None, name="f", version="1")
def f(b):
    started.set()
    while len(sys.argv) > 1:
        time.sleep(0.001)  # not for time: each end of it asks for the lock that the end takes away

if len(sys.argv) > 1:
    threading.Thread(target=f, daemon=True).start()
    started.wait()
else:
    f()
    print([c.status for c in f.result().tunings[0].candidates])
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {**os.environ, "TRITON_DIST_AUTOTUNE_HOME": str(tmp_path / "store")}

    def outcome(*arguments):
        done = subprocess.run(
            [sys.executable, path, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    assert outcome("leaves it behind") == (0, "", "")
    assert outcome() == (0, "['ok', 'ok']\n", "")


ENDLESS = """
import sys, threading, time, disttune
from disttune import _core

started = threading.Event()

def for_ever(*_):
    started.set()
    while True:
        time.sleep(0.001)  # not for time: each end of it asks for the lock that the end takes away

class Seat(disttune.ProcessGroup):
    def all_reduce_max(self, values, wait):
        return for_ever() if sys.argv[1] == "collective" else values

    def alive(self):
        if sys.argv[1] == "sign":
            for_ever()

    def abandon(self, sequence, why):
        pass

class Failure(Exception):
    __str__ = for_ever

class Result:
    __del__ = for_ever

class Attempt:
    run = property(for_ever)

def fail(b):
    raise Failure

def tune(fn, key_fn=None):
    f = disttune.autotune([{"b": 1}, {"b": 2}], key_fn, name="f", version="1")(fn)
    f(autotune_pg=Seat(0, 2) if sys.argv[1] == "sign" else None)

def decide():
    _core.decide(_core.make_kernel("k", "m", [{"b": 1}], dict), 1, Attempt())

work = {
    "collective": lambda: disttune.barrier(Seat(0, 2)),
    "key": lambda: tune(lambda b: b, for_ever),
    "message": lambda: tune(fail),
    "result": lambda: tune(lambda b: Result()),
    "sign": lambda: tune(lambda b: b),
    "attribute": decide,
}
threading.Thread(target=work[sys.argv[1]], daemon=True).start()
started.wait()
"""


@pytest.mark.parametrize("place", ["collective", "sign", "key", "message", "result", "attribute"])
def test_a_daemon_thread_may_be_left_in_any_code_of_the_callers(tmp_path, place):
    environment = {**os.environ, "TRITON_DIST_AUTOTUNE_HOME": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS, place],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_preparation_that_calls_the_launcher_runs_its_default(clock, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_WORKERS", "2")
    seen = []

    def prepare(entry, x):
        seen.append((entry["c"], f(x)))

    @disttune.autotune([{"c": 3}, {"c": 1}], None, timer=clock, prepare=prepare)
    def f(x, c):
        clock.spend(c)
        return c

    assert f(7) == 1
    assert sorted(seen) == [(1, 3), (3, 3)]


def test_a_launcher_that_calls_itself_without_end_is_a_recursion_error(tmp_path):
    program = textwrap.dedent(
        """
        import disttune

        @disttune.autotune([{"b": 1}, {"b": 2}], key_fn=lambda n: n, name="f", version="1")
        def f(n, b):
            return f(n + 1)

        try:
            f(0)
        except RecursionError:
            print("as it should be")
        """
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout == "as it should be\n", done.stderr[-2000:]


@pytest.mark.parametrize(
    "decorate",
    [disttune.autotune([{"b": 1}], None), disttune.contextual_autotune(), disttune.measure],
)
def test_what_only_starts_its_work_is_refused(decorate):
    class Asynchronous:
        async def __call__(self, b):
            pass

    async def generates(b):
        yield b

    for fn in (Asynchronous(), generates):
        with pytest.raises(TypeError, match="only starts its work"):
            decorate(fn)


def test_a_clock_in_code_wins_over_the_environments_timer(clock, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_TIMER", "graph")

    @disttune.autotune([{"b": 2}, {"b": 1}], key_fn=None, timer=clock)
    def f(b):
        clock.spend(b)
        return b

    assert f() == 1
    assert f.result().policy["launch"] == "eager"


def test_a_store_with_nul_in_its_name_is_refused():
    with pytest.raises(ValueError, match="NUL"):
        disttune.autotune([{"b": 1}], None, store="/x/a\0b")


def test_the_environment_may_change_while_other_threads_tune(clock):
    """A child does it: a race in the C library ends the process."""
    program = textwrap.dedent(
        """
        import itertools, os, sys, threading
        import disttune

        sys.setswitchinterval(1e-5)
        going = True

        def write():
            n = 0
            while going:
                n += 1
                os.environ[f"VARIABLE_{n % 997}"] = "x" * (n % 63)
                os.environ.pop(f"VARIABLE_{(n * 7) % 997}", None)

        @disttune.autotune([{"b": 1}, {"b": 2}], key_fn=lambda n: n, warmup=0, repeat=1,
                           timer=itertools.count(1).__next__, name="f", version="1")
        def f(n, b):
            pass

        writers = [threading.Thread(target=write, daemon=True) for _ in range(2)]
        for writer in writers:
            writer.start()
        for n in range(100):
            f(n)
        going = False
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
