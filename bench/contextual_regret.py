"""How well contextual tuning chooses: regret of kernels tuned inside an outer function on one GPU.

The outer function does other work before and after the kernel. The truth is the oracle of the gate
benchmark: all configurations in turns behind a held stream, the cache flushed before each run, the
medians of at least 200 samples. Then a new tuner of the same kernel is tuned TUNES times (10), and
the regret of each pick is how much slower it is than the oracle's best. Beside it, the pick of
Triton's own tuner in the same outer function.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from gate import Oracle
from harness import Report

TUNES = int(os.environ.get("TUNES", "10"))
META = ("num_warps", "num_stages")
#: ``step(kernel, **tuned)``: one launch of the kernel, or of its tuner without the tuned values.
Step = Callable[..., Any]


def product(m: int, n: int, k: int) -> Step:
    import torch
    import triton

    half = {"device": "cuda", "dtype": torch.float16}
    a, b = torch.randn(m, k, **half), torch.randn(k, n, **half)

    def step(kernel: Any, **tuned: int) -> Any:
        c = torch.empty((m, n), **half)
        strides = (*a.stride(), *b.stride(), *c.stride())

        def grid(meta: dict[str, int]) -> tuple[int]:
            return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

        kernel[grid](a, b, c, m, n, k, *strides, **tuned)
        return c

    return step


def softmax(rows: int, columns: int) -> Step:
    import torch
    import triton

    x = torch.randn(rows, columns, device="cuda")

    def step(kernel: Any, **tuned: int) -> Any:
        y = torch.empty_like(x)

        def grid(meta: dict[str, int]) -> tuple[int]:
            return (triton.cdiv(rows, meta["BR"]),)

        kernel[grid](x, y, rows, columns, BC=triton.next_power_of_2(columns), **tuned)
        return y

    return step


def workloads() -> Iterator[tuple[str, Any, list[str], list[dict[str, int]], Step]]:
    """Yield name, JIT kernel, key, space, and the outer function's step with the kernel."""
    import gpu_workloads as w

    for size in ((1024, 1024, 1024), (2048, 2048, 2048), (512, 4096, 1024)):
        name = "matmul_" + "x".join(map(str, size))
        yield name, w.matmul_kernel, ["M", "N", "K"], w.MATMUL_SPACE, product(*size)
    for rows, columns in ((4096, 1024), (32768, 256)):
        name = f"softmax_{rows}x{columns}"
        yield name, w.softmax_kernel, ["R", "C"], w.SOFTMAX_SPACE, softmax(rows, columns)


def tuner(jit: Any, key: list[str], live: list[dict[str, int]]) -> Any:
    import triton

    configs = [
        triton.Config(
            {k: v for k, v in config.items() if k not in META},
            **{k: config[k] for k in META if k in config},
        )
        for config in live
    ]
    return triton.autotune(configs=configs, key=key)(jit)


def main(report: Report) -> None:
    """Measure and report; needs a CUDA device."""
    import disttune
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("bench contextual_regret: no CUDA device here")
    other = torch.randn(1 << 20, device="cuda")
    regrets: list[float] = []
    logs = tempfile.TemporaryDirectory()
    os.environ["TRITON_DIST_AUTOTUNE_CONTEXT_LOGS"] = logs.name
    for name, jit, key, space, step in workloads():

        def one(config: dict[str, int], jit: Any = jit, step: Any = step) -> Any:
            return step(jit, **config)

        oracle = Oracle(torch, one, space)
        live, truth = oracle.live, oracle.medians(cold=True)

        def outer(kernel: Any, step: Any = step) -> Any:
            before = torch.relu(other) + 1
            result = step(kernel)
            return result, before.sum()

        def regret_of(
            kernel: Any, live: list[dict[str, int]] = live, truth: list[float] = truth
        ) -> float:
            return 100 * (truth[kernel.configs.index(kernel.best_config)] / min(truth) - 1)

        here, seconds = [], []
        for _ in range(TUNES):
            kernel = tuner(jit, key, live)
            run = disttune.contextual_autotune()(outer)
            begin = time.perf_counter()
            run(kernel)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
            here.append(regret_of(kernel))
        theirs = tuner(jit, key, live)
        begin = time.perf_counter()
        outer(theirs)
        torch.cuda.synchronize()
        spent = time.perf_counter() - begin
        regrets += here
        report.figure(f"regret_{name}_mean_percent", statistics.mean(here))
        report.figure(f"regret_of_tritons_tuner_{name}_percent", regret_of(theirs))
        report.figure(f"ratio_tuning_time_to_tritons_{name}", statistics.median(seconds) / spent)
        report.figure(f"tuning_{name}_seconds", statistics.median(seconds))
    report.figure("regret_mean_percent", statistics.mean(regrets), 0.5)
    report.figure("regret_max_percent", max(regrets))
    logs.cleanup()
