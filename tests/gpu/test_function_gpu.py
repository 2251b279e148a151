"""Function-level tuning on a real GPU: the gate, and launchers that defeat it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

import disttune  # noqa: E402

SPACE = [{"cycles": 200_000}, {"cycles": 20_000}, {"cycles": 100_000}]


def key(*args: Any, **kwargs: Any) -> Any:
    return "spin"


def tuning(tuned: Any, *args: Any) -> Any:
    return tuned.result(*args).tunings[0]


def test_a_gated_tuning_picks_by_device_time_and_frees_all_it_took() -> None:
    @disttune.autotune(SPACE, key)
    def spin(x: Any, cycles: int) -> Any:
        torch.cuda._sleep(cycles)
        return x

    x = torch.ones(8, device="cuda")
    before = torch.cuda.memory_allocated()
    assert spin(x) is x
    assert spin.best_configs["spin"] == {"cycles": 20_000}
    record = tuning(spin, x)
    assert record.gate == "stream_wait"
    assert not record.quality
    assert torch.cuda.memory_allocated() == before


def test_S64_launch_cost_does_not_decide() -> None:
    def busy_host(microseconds: int) -> None:
        import time

        end = time.perf_counter_ns() + 1000 * microseconds
        while time.perf_counter_ns() < end:
            pass

    @disttune.autotune([{"cycles": 60_000, "host": 0}, {"cycles": 20_000, "host": 200}], key)
    def spin(x: Any, cycles: int, host: int) -> None:
        busy_host(host)
        torch.cuda._sleep(cycles)

    spin(torch.ones(8, device="cuda"))
    assert spin.best_configs["spin"]["cycles"] == 20_000


def test_a_launcher_that_synchronises_is_timed_without_the_gate_and_says_so() -> None:
    @disttune.autotune(SPACE, key)
    def spin(x: Any, cycles: int) -> float:
        torch.cuda._sleep(cycles)
        return float(x.sum().item())

    x = torch.ones(8, device="cuda")
    assert spin(x) == 8.0
    assert spin.best_configs["spin"] == {"cycles": 20_000}
    assert "ungated" in tuning(spin, x).quality


def test_a_launcher_that_queues_more_than_the_queue_holds() -> None:
    @disttune.autotune([{"n": 3000}, {"n": 1500}], key)
    def many(x: Any, n: int) -> None:
        for _ in range(n):
            x.add_(1)

    x = torch.zeros(8, device="cuda")
    many(x)
    assert many.best_configs["spin"] == {"n": 1500}


def test_a_launcher_that_never_touches_the_device() -> None:
    @disttune.autotune([{"n": 1}, {"n": 2}], key)
    def idle(x: Any, n: int) -> int:
        return n

    x = torch.zeros(8, device="cuda")
    assert idle(x) in (1, 2)
    assert len(tuning(idle, x).candidates) == 2


def test_side_streams_that_fork_and_join_are_inside_the_sample() -> None:
    side = torch.cuda.Stream()

    @disttune.autotune(SPACE, key)
    def fork(x: Any, cycles: int) -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(cycles)
        torch.cuda.current_stream().wait_stream(side)

    fork(torch.ones(8, device="cuda"))
    assert fork.best_configs["spin"] == {"cycles": 20_000}


def test_a_current_stream_that_is_not_the_default_is_the_one_that_is_timed() -> None:
    @disttune.autotune(SPACE, key)
    def spin(x: Any, cycles: int) -> None:
        torch.cuda._sleep(cycles)

    x = torch.ones(8, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        spin(x)
    assert spin.best_configs["spin"] == {"cycles": 20_000}
    assert tuning(spin, x).gate == "stream_wait"


def test_cold_and_hot_are_records_of_their_own() -> None:
    x = torch.ones(1 << 20, device="cuda")
    for cache in ("hot", "cold"):

        @disttune.autotune([{"n": 1}, {"n": 2}], key, name="adds", version="1", cache=cache)
        def adds(x: Any, n: int) -> None:
            for _ in range(n):
                x.add_(1)

        assert adds.explain(x).source == "none"
        adds(x)
        assert adds.best_configs["spin"] == {"n": 1}


def test_capture_serves_what_is_decided_and_refuses_what_is_not() -> None:
    @disttune.autotune(SPACE, lambda x: x.shape[0])
    def add(x: Any, cycles: int) -> None:
        x.add_(1)

    x, y = torch.zeros(8, device="cuda"), torch.zeros(16, device="cuda")
    add(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(x)
        with pytest.raises(disttune.CaptureError):
            add(y)
    before = x[0].item()
    graph.replay()
    assert x[0].item() == before + 1
    add(y)


def test_the_graph_timer_replays_the_launcher() -> None:
    calls = []

    @disttune.autotune(SPACE, key, timer="graph")
    def spin(x: Any, cycles: int) -> None:
        calls.append(cycles)
        x.add_(1)
        torch.cuda._sleep(cycles)

    x = torch.zeros(8, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        spin(x)
    assert spin.best_configs["spin"] == {"cycles": 20_000}
    assert calls.count(200_000) < 15


def test_the_graph_timer_refuses_a_stream_that_cannot_be_captured() -> None:
    @disttune.autotune(SPACE, key, timer="graph")
    def spin(x: Any, cycles: int) -> None:
        torch.cuda._sleep(cycles)

    with pytest.raises(disttune.Error, match=r"graph.*auto"):  # the default stream
        spin(torch.zeros(8, device="cuda"))


def test_measure_on_the_device() -> None:
    def spin() -> None:
        torch.cuda._sleep(50_000)

    x = torch.ones(1, device="cuda")
    result = disttune.measure(lambda t: spin(), x, repeat=20)
    assert len(result.samples_ns) == 20
    assert result.median_ns > 1000
    assert result.gate == "stream_wait"


FAULT = """
import disttune, torch, triton, triton.language as tl

@triton.jit
def poke(p, offset, BAD: tl.constexpr):
    if BAD:
        tl.store(p + offset, 1.0)
    else:
        tl.store(p, 1.0)

@disttune.autotune([{"bad": False}, {"bad": True}, {"bad": False, "third": 1}], lambda x: None)
def launch(x, bad, third=0):
    poke[(1,)](x, 1 << 40, BAD=bad)

try:
    launch(torch.zeros(8, device="cuda"))
    print("works")
except disttune.Error as e:
    print(type(e).__name__, str(e))
"""


def test_S47_a_candidate_that_faults_stops_the_tuning_and_is_skipped_next_time(
    store: Any, tmp_path: Any
) -> None:
    def run() -> str:
        script = tmp_path / "fault.py"
        script.write_text(FAULT)
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
        )
        return done.stdout + done.stderr

    first = run()
    assert "DeviceLost" in first and "bad=True" in first, first
    second = run()
    assert "works" in second and "DeviceLost" not in second, second
