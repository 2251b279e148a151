"""Two GPUs, one rank each, over NCCL: does the group pick well, and alike, and how fast?

The launcher gathers row shards of A and multiplies (24 candidates). The oracle takes interleaved
samples on both ranks behind a held stream, the slower rank's sample by sample. Then the group tunes
TUNES times (20), each time with an empty store; and once more with a record on rank 0 alone.
The alternatives, in the same run: each rank's own mean of 10 ungated runs, its own pick; and the
group's tuning with a meeting of the ranks before each visit.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import time
from typing import Any

from gate import tune_ungated
from harness import Report

TUNES = int(os.environ.get("TUNES", "20"))
ROUNDS = 50
HOLD_CYCLES = 1_500_000
SHAPES = ((512, 2048, 1024), (2048, 2048, 2048))


def oracle(torch: Any, dist: Any, launch: Any, space: list[dict[str, int]]) -> list[float]:
    """Medians in microseconds of the slower rank, sample by sample."""
    import random

    order = list(range(len(space)))
    shuffle = random.Random(7).shuffle  # the same order on both ranks
    samples: list[list[float]] = [[] for _ in space]
    for _ in range(ROUNDS):
        shuffle(order)
        for i in order:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(10)]
            dist.barrier()
            torch.cuda._sleep(HOLD_CYCLES)
            for start, stop in zip(events[::2], events[1::2], strict=True):
                start.record()
                launch(space[i])
                stop.record()
            torch.cuda.synchronize()
            samples[i].extend(
                1e3 * a.elapsed_time(b) for a, b in zip(events[2::2], events[3::2], strict=True)
            )
    block = torch.tensor(samples, device="cuda", dtype=torch.float64)
    dist.all_reduce(block, op=dist.ReduceOp.MAX)
    return block.median(dim=1).values.tolist()


def meeting_each_visit(torch: Any, dist: Any, launch: Any) -> Any:
    """Let the ranks meet in the first, untimed run of every visit."""
    met: list[Any] = [None]

    def meet(config: dict[str, int]) -> Any:
        if config != met[0]:
            met[0] = dict(config)
            dist.barrier()
            torch.cuda.synchronize()
        return launch(config)

    return meet


def tune(launch: Any, space: list[dict[str, int]], store: str) -> tuple[int, float]:
    import disttune

    tuned = disttune.autotune(
        [{"config": c} for c in space], None, store=store, name="allgather_matmul", version="1"
    )(lambda config: launch(config))
    before = time.perf_counter()
    tuned()
    return space.index(tuned.best_configs[None]["config"]), time.perf_counter() - before


def rank_main(rank: int, world: int, init: str, results: Any) -> None:
    import torch
    import torch.distributed as dist
    from gpu_workloads import AG_MATMUL_SPACE, allgather_matmul

    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", init_method=init, rank=rank, world_size=world, device_id=device)
    figures: dict[str, float] = {}
    for m, n, k in SHAPES:
        half = {"device": "cuda", "dtype": torch.float16}
        shard, b = torch.randn(m // world, k, **half), torch.randn(k, n, **half)

        def launch(config: dict[str, int], shard: Any = shard, b: Any = b) -> Any:
            return allgather_matmul(shard, b, config)

        space = []
        for config in AG_MATMUL_SPACE:
            launch(config)
            space.append(config)
        torch.cuda.synchronize()
        truth = oracle(torch, dist, launch, space)

        def everywhere(pick: int) -> list[int]:
            picks: list[Any] = [None] * world
            dist.all_gather_object(picks, pick)
            return picks

        meet = meeting_each_visit(torch, dist, launch)
        regrets, own, seconds, alike = [], [], [], 0
        met_regrets, met_seconds = [], []
        for _ in range(TUNES):
            with tempfile.TemporaryDirectory() as store:
                pick, spent = tune(launch, space, store)
            alike += len(set(everywhere(pick))) == 1
            regrets.append(100 * (truth[pick] / min(truth) - 1))
            seconds.append(spent)
            with tempfile.TemporaryDirectory() as store:
                pick, spent = tune(meet, space, store)
            met_regrets.append(100 * (truth[pick] / min(truth) - 1))
            met_seconds.append(spent)
            picks = everywhere(tune_ungated(torch, launch, space).pick)
            own.append(max(100 * (truth[p] / min(truth) - 1) for p in picks))
        with tempfile.TemporaryDirectory() as store:
            tune(launch, space, store)  # writes on both ranks
            dist.barrier()
            with tempfile.TemporaryDirectory() as empty:
                pick, spent = tune(launch, space, store if rank == 0 else empty)
            dist.barrier()
        shape = f"{m}x{n}x{k}"
        figures[f"regret_{shape}_mean_percent"] = statistics.mean(regrets)
        figures[f"regret_{shape}_max_percent"] = max(regrets)
        figures[f"regret_ungated_own_pick_{shape}_mean_percent"] = statistics.mean(own)
        figures[f"regret_ungated_own_pick_{shape}_max_percent"] = max(own)
        figures[f"tunings_that_differ_{shape}"] = TUNES - alike
        figures[f"tuning_{shape}_seconds"] = statistics.median(seconds)
        figures[f"adopting_{shape}_seconds"] = spent
        figures[f"regret_{shape}_meeting_each_visit_mean_percent"] = statistics.mean(met_regrets)
        figures[f"regret_{shape}_meeting_each_visit_max_percent"] = max(met_regrets)
        figures[f"tuning_{shape}_meeting_each_visit_seconds"] = statistics.median(met_seconds)
    if rank == 0:
        results.put(figures)
    dist.barrier()
    dist.destroy_process_group()


def main(report: Report) -> None:
    """Measure and report; needs two CUDA devices."""
    import ranks_gpu  # by this name the spawned processes can import it
    import torch

    if torch.cuda.device_count() < 2:
        raise SystemExit("bench ranks_gpu: two CUDA devices are needed")
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        init = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    ranks = torch.multiprocessing.spawn(
        ranks_gpu.rank_main, args=(2, init, results), nprocs=2, join=False
    )
    figures = results.get()
    while not ranks.join():
        pass
    for name, value in figures.items():
        report.figure(name, value, limit_of(name))


def limit_of(name: str) -> float | None:
    """The most that a figure may be, where there is such a limit."""
    alternative = "ungated" in name or "meeting" in name
    if name.startswith("regret_") and not alternative and "mean" in name:
        return 0.6
    return {"tunings": 0.0, "adopting": 1.0}.get(name.split("_")[0])
