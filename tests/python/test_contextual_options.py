"""Options of a contextual call, its environment, its log and its warnings."""

import inspect
import json

import disttune
import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, blocks_of, log_text, make_kernel


@pytest.mark.parametrize(
    "options, kind, text",
    [
        ({"n_repeat": 0}, ValueError, "n_repeat"),
        ({"n_warmup": -1}, ValueError, "n_warmup"),
        ({"n_repeat": 2.5}, TypeError, "n_repeat"),
        ({"n_repeat": True}, TypeError, "n_repeat"),
        ({"is_dist": 1}, TypeError, "is_dist"),
        ({"warmups": 3}, TypeError, "Options: is_dist, n_repeat, n_warmup, group, cache, strategy"),
        ({"cahce": "hot"}, TypeError, "did you mean 'cache'"),
        ({"cache": "warm"}, ValueError, "'cold', 'hot'"),
        ({"strategy": "best"}, ValueError, "'fixed'"),
        ({"timer": "sun"}, ValueError, "'auto'"),
        ({"group": object()}, ValueError, "is_dist=True"),
    ],
)
def test_options_are_refused_at_decoration(options, kind, text):
    with pytest.raises(kind, match=text):
        disttune.contextual_autotune(**options)


def test_a_clock_that_gives_no_number_is_named(clock):
    kernel = make_kernel(clock)
    outer = disttune.contextual_autotune(timer=lambda: None)(lambda: kernel[(1,)](Tensor(), 1))
    with pytest.raises(TypeError, match=r"contextual_autotune\(timer=.*the clock returned None"):
        outer()


def test_what_cannot_be_decorated():
    with pytest.raises(TypeError, match=r"@contextual_autotune\(\)"):
        disttune.contextual_autotune(lambda: None)

    async def later():
        pass

    with pytest.raises(TypeError, match="awaited"):
        disttune.contextual_autotune()(later)
    with pytest.raises(TypeError, match="functions"):
        disttune.contextual_autotune()(3)
    with pytest.raises(TypeError, match="staticmethod"):
        disttune.contextual_autotune()(staticmethod(lambda: None))


def test_is_dist_without_a_group(clock, tune):
    kernel = make_kernel(clock)
    outer = tune(is_dist=True)(lambda: kernel[(1,)](Tensor(), 1))
    with pytest.raises(ValueError, match=r"is_dist=True.*init_process_group"):
        outer()
    assert kernel.fn.launches == []


def test_is_dist_with_local_decides_alone(clock, tune):
    kernel = make_kernel(clock)
    outer = tune(is_dist=True, group=disttune.LOCAL)(lambda: kernel[(1,)](Tensor(), 1))
    assert outer() == ("compiled", 2)


def test_mode_off_and_strict(clock, tune, monkeypatch):
    kernel = make_kernel(clock, name="gemm7")
    outer = tune()(lambda: kernel[(1,)](Tensor(), 1))
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "off")
    assert outer() == ("compiled", 4)
    assert kernel.cache == {}
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_MODE", "strict")
    with pytest.raises(disttune.NotTuned, match="gemm7"):
        outer()


def test_the_log_has_one_line_a_step_and_is_appended(clock, tune, logs):
    kernel = make_kernel(clock)
    outer = tune()(lambda n: kernel[(1,)](Tensor(), n))
    outer(1)
    assert len(log_text(logs).splitlines()) == 2 * 3 + 1
    assert "decided: candidate 1 [BLOCK=2" in log_text(logs)
    outer(2)
    assert len(log_text(logs).splitlines()) == 2 * (2 * 3 + 1)
    outer(2)
    assert len(log_text(logs).splitlines()) == 2 * (2 * 3 + 1)


def test_a_folder_that_cannot_be_written_costs_the_log_only(clock, tune, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_CONTEXT_LOGS", str(tmp_path / "file" / "below"))
    kernel = make_kernel(clock)
    with pytest.warns(disttune.DisttuneWarning, match="without a log"):
        assert tune()(lambda: kernel[(1,)](Tensor(), 1))() == ("compiled", 2)


def test_counts_of_the_environment_hold_where_none_are_given(clock, monkeypatch):
    def passes(**options):
        kernel, count = make_kernel(clock), []

        @disttune.contextual_autotune(timer=clock, cache="hot", **options)
        def outer():
            count.append(1)
            kernel[(1,)](Tensor(), 1)

        outer()
        return len(count)

    each = (passes() - 1) // 8
    assert passes() == each * (3 + 5) + 1
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_WARMUP", "1")
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_REPEAT", "2")
    assert passes() == each * (1 + 2) + 1
    assert passes(n_warmup=3, n_repeat=5) == each * (3 + 5) + 1
    signature = str(inspect.signature(disttune.contextual_autotune))
    assert "n_repeat: 'int' = 5, n_warmup: 'int' = 3" in signature


def test_the_budget_of_the_environment_ends_a_tuning_between_candidates(clock, tune, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_BUDGET", "0.000001")
    kernel = make_kernel(clock, (4, 2, 8))
    tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert blocks_of(kernel) == [4] * 4


def test_a_clock_that_never_moves_is_named(clock):
    kernel = make_kernel(clock)
    outer = disttune.contextual_autotune(timer=lambda: 7)(lambda: kernel[(1,)](Tensor(), 1))
    with pytest.raises(disttune.NoValidConfig, match="the <lambda> clock gave no usable time"):
        outer()


def test_another_strategy(clock, tune):
    kernel = make_kernel(clock, (8, 4, 2, 1))
    assert tune(strategy="race")(lambda: kernel[(1,)](Tensor(), 1))() == ("compiled", 1)


@pytest.mark.parametrize(
    "environment, options, policy",
    [
        ({}, {}, ("cold", "host")),
        ({"CACHE": "hot"}, {}, ("hot", "host")),
        ({"CACHE": "hot"}, {"cache": "cold"}, ("cold", "host")),
        ({"TIMER": "host"}, {}, ("cold", "host")),
        ({"TIMER": "graph"}, {}, ("cold", "host")),
    ],
)
def test_what_is_not_given_is_up_to_the_environment(
    environment, options, policy, clock, store, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(f"TRITON_DIST_AUTOTUNE_{name}", value)
    kernel = make_kernel(clock)
    tune = disttune.contextual_autotune(n_warmup=0, n_repeat=1, persist=True, **options)
    tune(lambda: kernel[(1,)](Tensor(), 1))()
    (file,) = store.rglob("*.json")
    cache, read_from = policy
    kept = json.loads(file.read_text())["policy"]
    assert kept.startswith(f'{{"cache": "{cache}", "clock": "{read_from}", "inside": ')
    assert kept.endswith('"launch": "eager"}')


def test_warnings_name_the_callers_line(clock, tune):
    kernel = make_kernel(clock)
    passes = []

    def outer():
        passes.append(1)
        if len(passes) < 3:
            kernel[(1,)](Tensor(), 1)

    with pytest.warns(disttune.DisttuneWarning, match="not launched in three passes") as caught:
        tune()(outer)()
    (starved,) = [w for w in caught if "three passes" in str(w.message)]
    assert starved.filename == __file__


@pytest.mark.parametrize("option", ["cache", "timer", "strategy"])
@pytest.mark.parametrize("value", ["", 0, []])
def test_no_value_of_an_option_is_taken_silently(option, value):
    with pytest.raises((TypeError, ValueError), match=option):
        disttune.contextual_autotune(**{option: value})


def test_none_is_every_options_not_given():
    names = ("n_repeat", "n_warmup", "cache", "timer", "strategy", "persist", "group")
    disttune.contextual_autotune(**dict.fromkeys(names))
