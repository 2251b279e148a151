"""The tuned function in use: choosing and keeping, call keywords, how tuned values arrive."""

from __future__ import annotations

import functools
import sys
import warnings

import disttune
import pytest
from launcher_rig import make, ticking


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


def test_keyword_calls_of_many_shapes(clock):
    @disttune.autotune([{"c": 1}], lambda **kwargs: None, timer=clock)
    def f(*, c, **kwargs):
        clock.spend(c)
        return kwargs

    f()
    for i in range(100):
        given = {f"k{j}": j for j in range(i % 40)}
        assert f(**given) == given


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
