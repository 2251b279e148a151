"""How well device time chooses: regret and tuning time on one GPU, gated against not.

For each workload the truth is an oracle: all candidates in turns behind a held stream, 400 samples
each, their medians. The device's clock has ticks (32 ns on an H200, 1 % of the smallest kernels),
so medians are interpolated within a tick. Then the same list is tuned again and again

- by disttune's default protocol (5 + 10 runs, gated), hot and cold,
- by the mean of 10 ungated back-to-back runs after 5 (what timing from the host does),
- by ``triton.testing.do_bench`` (once: it takes long),

and the regret of each pick is how much slower it is than the oracle's best. All candidates are
compiled before any tuning is timed. TUNES in the environment sets the tunes a workload (20).

``ratio_tuning_time`` is the whole cold call of the hot default protocol, with its journal, log,
record and final run, to the bare ungated runs; ``ratio_measuring_time`` is what of that was
measuring, as the record says.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from harness import Report

Launcher = Callable[[dict[str, int]], Any]
TUNES = int(os.environ.get("TUNES", "20"))
ROUNDS = 100
#: GPU clock cycles for which a spinning kernel holds the stream while a visit is queued: 0.5 ms.
HOLD_CYCLES = 1_000_000


class Tune(NamedTuple):
    """One tuning: the index of the pick, seconds in all, seconds for measuring."""

    pick: int
    seconds: float
    measuring: float


class Oracle:
    """Medians of interleaved samples behind a kernel that spins, so independent of our own gate."""

    def __init__(self, torch: Any, launcher: Launcher, space: list[dict[str, int]]) -> None:
        self._torch = torch
        self._launcher = launcher
        self._flush = torch.empty(64 << 20, dtype=torch.int8, device="cuda")
        self.live = []
        for config in space:
            try:
                launcher(config)
                torch.cuda.synchronize()
            except Exception:
                continue
            self.live.append(config)

    def medians(self, cold: bool) -> list[float]:
        """Nanoseconds of each live candidate."""
        torch = self._torch
        samples: list[list[int]] = [[] for _ in self.live]
        order = list(range(len(self.live)))
        shuffle = random.Random(7).shuffle
        for _ in range(ROUNDS):
            shuffle(order)
            for i in order:
                events = [torch.cuda.Event(enable_timing=True) for _ in range(10)]
                torch.cuda._sleep(HOLD_CYCLES)
                for start, stop in zip(events[::2], events[1::2], strict=True):
                    if cold:
                        self._flush.zero_()
                    start.record()
                    self._launcher(self.live[i])
                    stop.record()
                torch.cuda.synchronize()
                # The first run after another candidate finds the cache as that one left it.
                samples[i].extend(
                    round(1e6 * a.elapsed_time(b))
                    for a, b in zip(events[2::2], events[3::2], strict=True)
                )
        # Of long times, which are 32-bit floats of milliseconds, the last digits are not exact.
        tick = math.gcd(*(ns for s in samples for ns in s if ns < 1_000_000))
        return [statistics.median_grouped(s, tick or 1) for s in samples]


def tune_with_disttune(launcher: Launcher, live: list[dict[str, int]], cache: str) -> Tune:
    import disttune

    with tempfile.TemporaryDirectory() as store:
        tuned = disttune.autotune(
            [{"config": c} for c in live],
            lambda: None,
            cache=cache,
            store=store,
            name="workload",
            version="1",
        )(lambda config: launcher(config))
        before = time.perf_counter()
        tuned()
        seconds = time.perf_counter() - before
        choice = tuned.best_configs[None]["config"]
        measuring = tuned.result().tunings[0].measure_seconds
    return Tune(live.index(choice), seconds, measuring)


def tune_ungated(torch: Any, launcher: Launcher, live: list[dict[str, int]]) -> Tune:
    """As a tuner does that times 10 back-to-back runs with one pair of events."""
    before = time.perf_counter()
    times = []
    for config in live:
        for _ in range(5):
            launcher(config)
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            launcher(config)
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 10)
    seconds = time.perf_counter() - before
    return Tune(times.index(min(times)), seconds, seconds)


def tune_with_do_bench(launcher: Launcher, live: list[dict[str, int]]) -> Tune:
    from triton.testing import do_bench

    before = time.perf_counter()
    times = [do_bench(lambda c=config: launcher(c)) for config in live]
    seconds = time.perf_counter() - before
    return Tune(times.index(min(times)), seconds, seconds)


def seconds_more_where_it_synchronises(torch: Any) -> float:
    """How much longer a launcher is tuned that waits for the device in every run."""
    import disttune

    x = torch.ones(1 << 16, device="cuda")

    def seconds(synchronises: bool) -> float:
        def launcher(x: Any, cycles: int) -> None:
            torch.cuda._sleep(cycles)
            x.add_(1)
            if synchronises:
                x[0].item()

        space = [{"cycles": c} for c in range(20_000, 28_000, 1_000)]
        with tempfile.TemporaryDirectory() as store:
            tuned = disttune.autotune(space, lambda x: None, store=store, name="sync", version="1")(
                launcher
            )
            before = time.perf_counter()
            tuned(x)
            return time.perf_counter() - before

    seconds(False)
    return statistics.median(seconds(True) - seconds(False) for _ in range(5))


def tuning_time(tunes: list[Tune]) -> float:
    return statistics.median(tune.seconds for tune in tunes)


def measuring_time(tunes: list[Tune]) -> float:
    return statistics.median(tune.measuring for tune in tunes)


def quantile(values: list[float], p: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(p * len(ordered)))]


class Tally:
    """Regrets and times of one way to tune, over all workloads."""

    def __init__(self) -> None:
        self.regrets: list[float] = []
        self.by_workload: dict[str, float] = {}

    def add(self, workload: str, regrets: list[float]) -> None:
        self.regrets += regrets
        self.by_workload[workload] = statistics.mean(regrets)

    def report(self, report: Report, name: str, limits: tuple[float, float, float] | None) -> None:
        mean, p95, worst = limits or (None, None, None)
        report.figure(f"regret_{name}_mean_percent", statistics.mean(self.regrets), mean)
        report.figure(f"regret_{name}_p95_percent", quantile(self.regrets, 0.95), p95)
        report.figure(
            f"regret_{name}_worst_workload_percent", max(self.by_workload.values()), worst
        )
        report.figure(f"regret_{name}_max_percent", max(self.regrets))


def main(report: Report) -> None:
    """Measure and report; needs a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("bench gate: no CUDA device here")
    from gpu_workloads import single_gpu

    ways = {name: Tally() for name in ("hot", "cold", "ungated", "do_bench")}
    for workload, launcher, space in single_gpu():
        oracle = Oracle(torch, launcher, space)
        live = oracle.live
        truth = {"hot": oracle.medians(cold=False), "cold": oracle.medians(cold=True)}

        def regret(pick: int, policy: str, truth: dict[str, list[float]] = truth) -> float:
            return 100 * (truth[policy][pick] / min(truth[policy]) - 1)

        tune_with_disttune(launcher, live[:2], "hot")  # what only a first tuning pays
        allocated = torch.cuda.memory_allocated()
        free, _ = torch.cuda.mem_get_info()
        tunes: dict[str, list[Tune]] = {name: [] for name in ways}
        for _ in range(TUNES):
            for way in ("hot", "cold"):
                tunes[way].append(tune_with_disttune(launcher, live, way))
            tunes["ungated"].append(tune_ungated(torch, launcher, live))
        torch.cuda.synchronize()
        if torch.cuda.memory_allocated() > allocated:
            raise SystemExit(f"{workload}: a tuning left memory allocated")
        lost = free - torch.cuda.mem_get_info()[0]
        tunes["do_bench"].append(tune_with_do_bench(launcher, live))
        best = min(truth["hot"]) / 1e3
        limit = 1.1 if statistics.median(truth["hot"]) > 50_000 else 1.5
        bare = tuning_time(tunes["ungated"])
        report.figure(f"ratio_tuning_time_{workload}", tuning_time(tunes["hot"]) / bare, limit)
        report.figure(f"ratio_measuring_time_{workload}", measuring_time(tunes["hot"]) / bare)
        report.figure(f"free_memory_lost_mib_{workload}", lost / 2**20)
        print(f"{workload}: {len(live)} of {len(space)} candidates, best {best:.1f} us")
        for name, tally in ways.items():
            policy = {"ungated": "hot", "do_bench": "cold"}.get(name, name)
            regrets = [regret(tune.pick, policy) for tune in tunes[name]]
            tally.add(workload, regrets)
            print(
                f"  {name:9} regret mean {statistics.mean(regrets):7.3f} %  "
                f"max {max(regrets):7.3f} %  tuning {1e3 * tuning_time(tunes[name]):9.3f} ms"
                f"  measuring {1e3 * measuring_time(tunes[name]):9.3f} ms"
            )
    more = seconds_more_where_it_synchronises(torch)
    report.figure("seconds_more_for_a_launcher_that_synchronises", more, 0.2)
    ways["hot"].report(report, "hot", (0.15, 1.2, 0.6))
    ways["cold"].report(report, "cold", (0.25, 1.2, 0.6))
    ways["ungated"].report(report, "ungated", None)
    ways["do_bench"].report(report, "do_bench", None)
