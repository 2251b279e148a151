"""best_configs, and what a launcher is given of its candidates' values."""

from __future__ import annotations

import copy
import threading

import disttune
import pytest
from launcher_rig import make


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


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": "x"},
        [1, 2.5, None],
        {"a": [1], "b": {"c": 2}},
        [[1], {"a": (2,)}],
        {"a": (1, [2])},
    ],
)
def test_a_container_is_copied_as_deepcopy_copies_it(clock, value):
    original = copy.deepcopy(value)
    seen = []

    def spoil(part):
        """Change everything in it that can be changed."""
        for item in part.values() if isinstance(part, dict) else part:
            if isinstance(item, (dict, list, tuple)):
                spoil(item)
        if isinstance(part, (dict, list)):
            part.clear()

    @disttune.autotune([{"cfg": value, "cost": 1}, {"cfg": [], "cost": 2}], None, timer=clock)
    def f(cfg, cost):
        if cfg:
            seen.append(copy.deepcopy(cfg))
            spoil(cfg)
        clock.spend(cost)

    f()
    assert seen == [original] * 2, "one copy for the visit and one for the decided key"
    assert value == original
    f()
    assert len(seen) == 2, "a warm call makes no copy"


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
