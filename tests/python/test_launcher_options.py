"""What the decorator refuses, and what cold calls raise."""

from __future__ import annotations

import math
import re
import threading
import time

import disttune
import pytest
from disttune.__main__ import main


def launcher(c=0):
    return c


def test_S83_unknown_renamed_and_misplaced_options():
    for option, said in [
        ("strategi", "did you mean 'strategy'"),
        ("warmups", "it is 'warmup' here"),
        ("n_repeat", "it is 'repeat' here"),
        ("configs", "it is 'config_space' here"),
        ("reset_to_zero", "it is 'reset' here"),
        ("autotune_pg", "belongs to the call"),
        ("is_dist", "contextual_autotune takes it"),
        ("persist", "contextual_autotune"),
        ("frobnicate", "Options: strategy, warmup"),
    ]:
        with pytest.raises(TypeError, match=said):
            disttune.autotune([{"c": 1}], None, **{option: 1})


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"strategy": "fixd"}, ValueError, "did you mean 'fixed'"),
        ({"strategy": 3}, TypeError, "'fixed'"),
        ({"warmup": -1}, ValueError, "from 0"),
        ({"warmup": 1.5}, TypeError, "whole number"),
        ({"repeat": 0}, ValueError, "from 1"),
        ({"repeat": True}, TypeError, "whole number"),
        ({"timer": "devise"}, ValueError, "did you mean 'device'"),
        ({"cache": "lukewarm"}, ValueError, "'hot', 'cold'"),
        ({"store": 3}, TypeError, "folder"),
        ({"name": ""}, ValueError, "empty"),
        ({"version": 3}, TypeError, "text"),
        ({"check": 3}, TypeError, "reference"),
        ({"prepare": 3}, TypeError, "callable"),
        ({"ignore": 3}, TypeError, "names"),
        ({"restore": ["nobody"]}, ValueError, "nobody"),
    ],
)
def test_S83_option_values_are_checked_at_decoration(options, error, said):
    with pytest.raises(error, match=said):
        disttune.autotune([{"c": 1}], None, **options)(launcher)


@pytest.mark.parametrize(
    ("space", "error", "said"),
    [
        ([], ValueError, "empty"),
        ({"c": 1}, TypeError, "list of mappings"),
        ("c", TypeError, "list of mappings"),
        (3, TypeError, "list of mappings"),
        (lambda: [], TypeError, "call it"),
        ([3], TypeError, r"config_space\[0\] is a int"),
        ([{"c": 1}, ("c", 1)], TypeError, r"config_space\[1\]"),
        ([{3: 1}], TypeError, "names of parameters are strings"),
        ([{"d": 1}], ValueError, "no such parameter; it has c"),
        ([{"c": 1}, {"c": 1, "x": 2}], ValueError, r"config_space\[1\] sets 'x'"),
        ([{"c": threading.Lock()}], TypeError, r"config_space\[0\]\['c'\].*lock"),
        ([{"autotune": 1}], ValueError, "keyword of tuned calls"),
    ],
)
def test_bad_spaces_are_refused_at_decoration(space, error, said):
    with pytest.raises(error, match=said):
        disttune.autotune(space, None)(launcher)


def test_generators_and_mappings_of_any_kind_are_spaces(clock):
    import types

    f = disttune.autotune((types.MappingProxyType({"c": c}) for c in (1, 2)), None, timer=clock)(
        launcher
    )
    assert f.config_space == [{"c": 1}, {"c": 2}]


def test_key_and_prune_functions_are_checked():
    with pytest.raises(TypeError, match=r"disttune\.key\('x', 'y'\)"):
        disttune.autotune([{"c": 1}], ["x", "y"])
    with pytest.raises(TypeError, match="prune_fn"):
        disttune.autotune([{"c": 1}], None, "no")


def test_functions_that_cannot_be_tuned():
    with pytest.raises(TypeError, match="decorates functions"):
        disttune.autotune([{"c": 1}], None)(3)

    async def later(c):
        return c

    with pytest.raises(TypeError, match="awaited"):
        disttune.autotune([{"c": 1}], None)(later)

    def taken(c, autotune):
        return c

    with pytest.raises(ValueError, match="'autotune'"):
        disttune.autotune([{"c": 1}], None)(taken)

    def by_position(c, /):
        return c

    with pytest.raises(ValueError, match="position only"):
        disttune.autotune([{"c": 1}], None)(by_position)


# ---- cold calls ---------------------------------------------------------------------------------


def test_a_call_that_does_not_fit_is_the_callers_error(clock):
    calls = []

    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)
    def f(x, c):
        calls.append(c)

    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        f()
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        f(1, y=2)
    assert calls == []


def test_key_and_prune_functions_that_raise(clock):
    class Mine(Exception):
        pass

    def raising(*args, **kwargs):
        raise Mine("here")

    f = disttune.autotune([{"c": 1}], raising, timer=clock)(launcher)
    with pytest.raises(Mine):
        f()
    g = disttune.autotune([{"c": 1}, {"c": 2}], None, raising, timer=clock)(launcher)
    for _ in range(2):
        with pytest.raises(Mine, match="here") as caught:
            g()
    assert "raising" in [entry.name for entry in caught.traceback]


def test_prune_sees_the_entry_and_the_arguments(clock):
    seen = []

    def prune(entry, *args, **kwargs):
        seen.append((dict(entry), args, kwargs))
        return entry["c"] != 1

    @disttune.autotune([{"c": 1}, {"c": 2}, {"c": 3}], None, prune, timer=clock)
    def f(x, y=0, *, c):
        clock.spend(c)
        return c

    assert f(5, y=6) == 2
    assert seen == [({"c": c}, (5,), {"y": 6}) for c in (1, 2, 3)]
    statuses = [(c.config["c"], c.status) for c in f.result(5, y=6).candidates]
    assert statuses == [(1, "pruned"), (2, "ok"), (3, "ok")]


def test_S53_nothing_left_is_no_valid_config(clock):
    @disttune.autotune([{"c": 1}, {"c": 2}], None, lambda *a: False, timer=clock)
    def f(c):
        return c

    with pytest.raises(disttune.NoValidConfig, match=r"(?s)c=1.*c=2") as caught:
        f()
    assert isinstance(caught.value, disttune.Error)

    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)
    def g(c):
        raise RuntimeError(f"bad {c}")

    with pytest.raises(disttune.NoValidConfig, match=r"(?s)RuntimeError: bad 1.*bad 2"):
        g()
    assert len(g.best_configs) == 0


def test_S49_failures_of_any_type_are_recorded_alike(clock):
    class OutOfResources(Exception):
        pass

    class CompilationError(Exception):
        pass

    class Silent(Exception):
        pass

    errors = {
        1: OutOfResources("smem"),
        2: CompilationError("line 3"),
        3: Silent(),
        4: MemoryError(),
    }

    @disttune.autotune([{"c": c} for c in (1, 2, 3, 4, 5)], None, timer=clock)
    def f(c):
        clock.spend(c)
        if c in errors:
            raise errors[c]
        return c

    assert f() == 5
    record = f.result()
    assert [c.status for c in record.candidates] == [
        "out_of_resources",
        "compile_failed",
        "launch_failed",
        "out_of_resources",
        "ok",
    ]
    assert "OutOfResources: smem" in record.candidates[0].reason
    assert record.candidates[2].reason.endswith("Silent")
    assert record.winner == {"c": 5}
    assert record.candidates[4].samples_ns == [5] * 10
    assert record.candidates[4].score_ns == 5.0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_at_once_and_leave_nothing(clock, kind):
    calls = []

    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)
    def f(c):
        calls.append(c)
        clock.spend(c)
        if len(calls) == 20:
            raise stop
        return c

    stop = kind("now")
    with pytest.raises(kind) as caught:
        f()
    assert caught.value is stop
    assert "f" in [entry.name for entry in caught.traceback]
    assert len(calls) == 20
    calls[:] = [0] * 100
    assert f() == 1


def test_a_clock_that_never_moves_is_named(clock):
    @disttune.autotune([{"c": 1}], None, timer=clock)
    def f(c):
        return c

    with pytest.raises(disttune.NoValidConfig, match="clock"):
        f()


def test_a_clock_that_raises_is_the_callers(clock):
    def broken():
        raise ZeroDivisionError("tick")

    @disttune.autotune([{"c": 1}], None, timer=broken)
    def f(c):
        return c

    with pytest.raises(ZeroDivisionError, match="tick"):
        f()


@pytest.mark.parametrize("reading", [None, "12", math.nan, math.inf, [1]])
def test_a_clock_that_gives_no_number_is_named(reading):
    def broken():
        return reading

    f = disttune.autotune([{"c": 1}], None, timer=broken)(launcher)
    with pytest.raises(TypeError, match=rf"timer=.*broken.*returned {re.escape(repr(reading))}"):
        f()


class Nanoseconds:
    def __init__(self, ns):
        self.ns = ns

    def __index__(self):
        return self.ns


@pytest.mark.parametrize("kind", [int, float, Nanoseconds])
def test_a_clock_may_give_numbers_of_any_kind(clock, kind):
    @disttune.autotune([{"c": 2}, {"c": 1}], None, timer=lambda: kind(clock()))
    def f(c):
        clock.spend(c)
        return c

    assert f() == 1
    assert f.result().candidates[0].samples_ns == [2] * 10


def test_S23_a_single_candidate_is_cached(clock):
    calls = []

    @disttune.autotune([{"c": 1}, {"c": 2}], None, lambda e: e["c"] == 2, timer=clock)
    def f(c):
        calls.append(c)
        clock.spend(5)
        return c

    f()
    calls.clear()
    assert f() == 2
    assert calls == [2]


def test_explain_and_result(clock, store):
    @disttune.autotune([{"c": 1}, {"c": 2}], lambda x: x, timer=clock)
    def f(x, c):
        clock.spend(c)

    assert f.result(1) is None
    before = f.explain(1)
    assert before.source == "none"
    assert before.config is None
    assert before.miss_reason
    f(1)
    after = f.explain(1)
    assert after.source == "memory"
    assert after.config == {"c": 1}
    assert after.file.startswith(str(store))
    f.best_configs.clear()
    assert f.explain(1).source == "store"
    assert "c" in str(f.explain(1))
    record = f.result(1)
    assert record.name == "f"
    assert record.key == 1
    assert record.winner == {"c": 1}
    assert record.default == {"c": 1}
    assert (record.warmup, record.repeat, record.strategy) == (5, 10, "fixed")
    assert len(record.tunings) == 1
    assert f.func_dir() == str(store / "f")
    other = f.explain(2)
    assert any("key" in line for line in other.differences)


def test_explain_shows_an_entry_that_the_caller_has_put_into_best_configs(clock):
    @disttune.autotune([{"c": 1}, {"c": 2}], lambda x: x, timer=clock)
    def f(x, c):
        clock.spend(1)
        return c

    thing = object()
    f(1)
    for key, entry in [(1, {"c": 2}), (2, {"c": 3}), (3, {"c": thing})]:
        f.best_configs[key] = entry
        assert f.explain(key).source == "memory"
        assert f.explain(key).config == entry
        assert f(key) is entry["c"]
    assert "c=3" in str(f.explain(2))
    assert "object object at" in str(f.explain(3))


def test_explain_says_what_the_mode_and_the_prune_function_make_of_a_record(clock, monkeypatch):
    def make(**options):
        @disttune.autotune(
            [{"c": c} for c in (3, 1, 2)],
            lambda x: x,
            timer=clock,
            name="f",
            version="1",
            **options,
        )
        def f(x, c):
            clock.spend(c)
            return c

        return f

    assert make()(7) == 1
    pruned = make(prune_fn=lambda entry, x: entry["c"] != 1)
    assert pruned.explain(7).config == {"c": 2}
    assert pruned.explain(7).source == "store"
    assert pruned(7) == 2

    def broken(entry, x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make(prune_fn=broken).explain(7)
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_ALWAYS_TUNE", "1")
    assert make().explain(7).source == "none"
    assert "ALWAYS_TUNE" in make().explain(7).miss_reason
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "off")
    off = make().explain(7)
    assert (off.source, off.config) == ("default", {"c": 3})
    assert "MODE=off" in str(off)


def test_mode_first_takes_the_first_with_a_right_result(clock, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "first")

    @disttune.autotune([{"c": c} for c in (3, 1, 2)], None, timer=clock, check=lambda: 1)
    def f(c):
        return c

    assert f() == 1


def test_store_and_name_options(clock, tmp_path):
    @disttune.autotune([{"c": 1}], None, timer=clock, store=tmp_path / "mine", name="a/b")
    def f(c):
        clock.spend(c)

    f()
    assert f.func_dir().startswith(str(tmp_path / "mine"))
    assert "/b" not in f.func_dir()[len(str(tmp_path / "mine")) + 1 :]
    assert f.result().name == "a/b"


def test_warmup_and_repeat(clock):
    calls = []

    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock, warmup=0, repeat=2)
    def f(c):
        calls.append(c)
        clock.spend(c)

    f()
    assert calls == [1, 1, 2, 2, 1]


def test_equal_entries_are_one_candidate(clock):
    calls = []

    @disttune.autotune([{"c": 1}, {"c": 1}, {"c": 2}], None, timer=clock)
    def f(c):
        calls.append(c)
        clock.spend(c)

    f()
    assert calls.count(2) == 15
    assert calls.count(1) == 16


def test_restore_puts_arguments_back_before_every_run(clock):
    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock, restore=["y"])
    def f(y, c):
        y[0] += 1
        clock.spend(c)

    y = [10]
    f(y)
    assert y == [11], "as after exactly one call"
    f(y)
    assert y == [12], "warm calls are left alone"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_restored_arguments_are_put_back_after_a_tuning_that_failed(clock, kind):
    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock, restore=["y"])
    def f(y, c):
        y[0] += 1
        raise kind("now")

    y = [10]
    with pytest.raises(KeyboardInterrupt if kind is KeyboardInterrupt else disttune.NoValidConfig):
        f(y)
    assert y == [10]


def test_a_comparison_may_answer_with_a_truth_value_of_any_kind(clock):
    numpy = pytest.importorskip("numpy")

    @disttune.autotune(
        [{"c": 1}, {"c": 2}],
        None,
        timer=clock,
        check=disttune.Check(lambda x: numpy.ones(2), compare=lambda a, b: (a == b).all()),
    )
    def f(x, c):
        clock.spend(10 // c)
        return numpy.full(2, c)

    f(1)
    assert [c.status for c in f.result(1).tunings[0].candidates] == ["ok", "wrong_result"]


def test_check_refuses_wrong_results(clock):
    @disttune.autotune([{"c": 1}, {"c": 2}, {"c": 3}], None, timer=clock, check=lambda x: x * 2)
    def f(x, c):
        clock.spend(c)
        return x * 2 if c != 1 else 0

    assert f(4) == 8
    statuses = [c.status for c in f.result(4).candidates]
    assert statuses == ["wrong_result", "ok", "ok"]
    assert f.best_configs[None] == {"c": 2}


@pytest.mark.parametrize("module", ["numpy", "torch"])
def test_a_comparison_that_asserts_says_what_is_wrong(clock, module, capsys):
    found = pytest.importorskip(module)
    compare = {
        "numpy": lambda: found.testing.assert_allclose,
        "torch": lambda: found.testing.assert_close,
    }[module]()
    x = found.ones(3)

    @disttune.autotune(
        [{"c": 1}, {"c": 2}, {"c": 3}],
        None,
        timer=clock,
        check=disttune.Check(lambda x: 2 * x, compare=compare),
    )
    def f(x, c):
        clock.spend(c)
        return x * c

    assert f(x).tolist() == [2, 2, 2]
    candidates = f.result(x).candidates
    assert [c.status for c in candidates] == ["wrong_result", "ok", "wrong_result"]
    assert "Mismatched elements: 3 / 3" in candidates[0].reason
    assert main(["show", "f"]) == 0
    first = candidates[0].reason.splitlines()[0]
    assert first and first in capsys.readouterr().out


def test_what_a_comparison_raises_beside_assertions_is_no_verdict(clock):
    def broken(result, expected):
        raise ZeroDivisionError("compare")

    @disttune.autotune(
        [{"c": 1}], None, timer=clock, check=disttune.Check(lambda: 1, compare=broken)
    )
    def f(c):
        clock.spend(c)
        return c

    with pytest.raises(disttune.NoValidConfig, match=r"launch_failed: check: .*compare"):
        f()


def test_prepare_is_called_for_each_candidate(clock):
    prepared = []

    def prepare(entry, x):
        prepared.append((entry["c"], x))
        if entry["c"] == 1:
            raise RuntimeError("does not compile")

    @disttune.autotune([{"c": 1}, {"c": 2}, {"c": 3}], None, timer=clock, prepare=prepare)
    def f(x, c):
        clock.spend(c)
        return c

    assert f(9) == 2
    assert sorted(prepared) == [(1, 9), (2, 9), (3, 9)]
    assert "does not compile" in f.result(9).candidates[0].reason


def test_mode_strict_and_cached(clock, monkeypatch):
    @disttune.autotune([{"c": 1}, {"c": 2}], lambda x: x, timer=clock)
    def f(x, c):
        clock.spend(c)
        return c

    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "strict")
    with pytest.raises(disttune.NotTuned):
        f(1)
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "off")
    assert f(1) == 1
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "cached")
    with pytest.warns(disttune.DisttuneWarning):
        assert f(2) == 1


def test_a_bad_environment_value_is_a_value_error(clock, monkeypatch):
    f = disttune.autotune([{"c": 1}], None, timer=clock)(launcher)
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "sometimes")
    with pytest.raises(ValueError, match="MODE"):
        f()


def test_a_warning_made_an_error_is_raised_where_the_caller_stands(clock, monkeypatch):
    import warnings

    f = disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)(launcher)
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "cached")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(disttune.DisttuneWarning):
            f()


def test_verbose_tells_what_happens(clock, capfd, caplog):
    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)
    def f(c):
        clock.spend(c)

    f(autotune_verbose=True)
    assert "c=2" in caplog.text + capfd.readouterr().err


# ---- threads ------------------------------------------------------------------------------------


def test_one_key_is_tuned_once_for_many_threads(clock):
    calls = []
    start = threading.Barrier(4)
    results = []

    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)
    def f(c):
        calls.append(c)
        clock.spend(c)
        return c

    def work():
        start.wait()
        results.append(f())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 4
    assert len(calls) == 30 + 4


def test_S76_a_warm_key_is_served_while_another_is_tuned(clock):
    inside = threading.Event()
    go_on = threading.Event()

    @disttune.autotune([{"c": 1}, {"c": 2}], lambda x: x, timer=clock)
    def f(x, c):
        if x == "slow":
            inside.set()
            go_on.wait(30)
        clock.spend(c)
        return (x, c)

    assert f("warm") == ("warm", 1)
    thread = threading.Thread(target=f, args=("slow",))
    thread.start()
    assert inside.wait(30)
    assert f("warm") == ("warm", 1)
    go_on.set()
    thread.join()


def test_a_tuned_launcher_inside_a_tuned_launcher(clock):
    inner_calls = []

    @disttune.autotune([{"c": 1}, {"c": 2}], None, timer=clock)
    def inner(c):
        inner_calls.append(c)
        clock.spend(10 * c)
        return c

    @disttune.autotune([{"d": 1}, {"d": 2}], None, timer=clock)
    def outer(d):
        clock.spend(d)
        return (d, inner())

    assert outer() == (1, 1)
    assert inner.best_configs[None] == {"c": 1}
    assert outer.result().candidates[0].samples_ns == [11] * 10


def test_a_launcher_that_calls_itself_for_the_key_being_tuned_runs_the_default(clock):
    inner = []

    @disttune.autotune([{"c": 2}, {"c": 1}], None, timer=clock)
    def f(c):
        clock.spend(c)
        if not inner:
            inner.append(None)
            inner[0] = f()
        return c

    assert f() == 1
    assert inner == [2]


@pytest.mark.parametrize("clock_of", [time.perf_counter, time.time, time.monotonic])
def test_a_clock_that_gives_seconds_is_refused(clock_of):
    for make in (
        lambda: disttune.autotune([{"b": 1}], None, timer=clock_of),
        lambda: disttune.contextual_autotune(timer=clock_of),
    ):
        with pytest.raises(ValueError, match=rf"seconds.*time\.{clock_of.__name__}_ns"):
            make()


# ---- declared keys, names and clocks -------------------------------------------------------------


@pytest.mark.parametrize(
    "field, launcher, text",
    [
        ("c", lambda x, c: 0, "'c', which is tuned"),
        ("c.n", lambda x, c=1: 0, "'c', which is tuned"),
        ("rest", lambda x, *rest, c: 0, r"\*rest, whose arguments"),
        ("more", lambda x, c, **more: 0, r"\*\*more, whose arguments"),
    ],
)
def test_a_declared_key_that_no_call_could_answer_is_refused_at_decoration(field, launcher, text):
    with pytest.raises(ValueError, match=text):
        disttune.autotune([{"c": 1}, {"c": 2}], disttune.key(field))(launcher)


def test_names_of_all_languages_can_be_declared(clock):
    class Größe:
        länge = 3

    f = disttune.autotune([{"c": 1}, {"c": 2}], disttune.key("größe.länge"), timer=clock)(
        lambda größe, c: clock.spend(c)
    )
    f(Größe())
    assert list(f.best_configs) == [(3,)]
    assert disttune.key("ﬁ") == disttune.key("fi")  # as in a program
    for wrong in ("x.", "x()", "1x", "x.y()z", "x y", ""):
        with pytest.raises(ValueError, match="followed by attributes"):
            disttune.key(wrong)


@pytest.mark.parametrize("option", ["name", "version", "store"])
def test_texts_that_are_not_unicode_are_refused(option):
    with pytest.raises(ValueError, match=f"{option}=.*not valid Unicode"):
        disttune.autotune([{"c": 1}], None, **{option: "a\ud800"})(lambda c: 0)


@pytest.mark.parametrize(
    "reading", [2**63, -(2**63) - 1, 1e300, 1 << 9999], ids=["above", "below", "float", "far"]
)
def test_a_clock_beyond_all_nanoseconds_is_named(reading):
    def my_clock():
        return reading

    f = disttune.autotune([{"c": 1}, {"c": 2}], None, timer=my_clock)(lambda c: 0)
    with pytest.raises(OverflowError, match=r"my_clock.*bits"):
        f()
