"""What contextual tuning adds once everything is decided: to a launch, and to the outer call.

A launch is compared with the direct launch of the JIT function and with Triton's own hit in its
tuner's cache. On a GPU the kernel is a real one; without one a function that does nothing stands in
for the JIT, so that only what is added to it is measured.
"""

from __future__ import annotations

import gc
import os
import tempfile
from itertools import repeat
from typing import Any

import disttune
from harness import Report, in_turns
from triton.runtime.autotuner import Autotuner, Config

LAUNCHES = 300
CALLS = 2_000
ROUNDS = 31
WARPS = (4, 8)


class StandIn:
    """In the place of a JIT function: launches that do nothing."""

    arg_names = ("x", "y", "alpha", "n", "BLOCK")

    @staticmethod
    def fn() -> None:
        """Be the function at the bottom."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        """Launch nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)


def on_gpu() -> tuple[Any, Any] | None:
    """Return a real kernel and a tensor, where there is a GPU."""
    try:
        import torch
        import triton
        import triton.language as tl
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None

    @triton.jit
    def scale_kernel(x, y, alpha, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(y + offsets, alpha * tl.load(x + offsets, mask=mask), mask=mask)

    return scale_kernel, torch.ones(512, device="cuda")


def stand_in() -> tuple[Any, Any]:
    """Return a stand-in for a kernel, and something with a dtype and a device."""

    class Tensor:
        dtype = "float32"
        device = "cpu"

    return StandIn(), Tensor()


def tuner(kernel: Any) -> Any:
    configs = [Config({"BLOCK": 512}, num_warps=warps) for warps in WARPS]
    return Autotuner(kernel, list(kernel.arg_names), configs, ["n"], None, None)


def main(report: Report) -> None:
    """Measure and report."""
    found = on_gpu()
    kernel, x = found or stand_in()
    theirs, ours = tuner(kernel), tuner(kernel)
    grid = (1,)

    def direct() -> None:
        for _ in repeat(None, LAUNCHES):
            kernel[grid](x, x, 2.0, 512, BLOCK=512, num_warps=4, num_ctas=1, num_stages=3)

    def triton_hit() -> None:
        for _ in repeat(None, LAUNCHES):
            theirs[grid](x, x, 2.0, 512)

    def decided() -> None:
        for _ in repeat(None, LAUNCHES):
            ours[grid](x, x, 2.0, 512)

    def nothing() -> None:
        return None

    with tempfile.TemporaryDirectory() as logs:
        os.environ["TRITON_DIST_AUTOTUNE_CONTEXT_LOGS"] = logs
        tune = disttune.contextual_autotune(n_warmup=1, n_repeat=1)
        # Both tuners have decided for the configuration that the direct launch uses.
        once = tune(lambda: ours[grid](x, x, 2.0, 512))
        once()
        (key,) = ours.cache
        theirs.cache[key], ours.cache[key] = theirs.configs[0], ours.configs[0]
        inside = tune(decided)
        around = tune(nothing)
        inside()

        def calls_around() -> None:
            for _ in repeat(None, CALLS):
                around()

        def calls() -> None:
            for _ in repeat(None, CALLS):
                nothing()

        gc.disable()
        launch = [t / LAUNCHES for t in in_turns([direct, triton_hit, inside], ROUNDS)]
        call = [t / CALLS for t in in_turns([calls, calls_around], ROUNDS)]
        gc.enable()
    hit, short = launch[1] - launch[0], launch[2] - launch[0]
    report.figure("contextual_on_gpu", float(found is not None))
    report.figure("contextual_direct_launch_ns", launch[0])
    report.figure("contextual_triton_hit_added_ns", hit)
    report.figure("contextual_decided_launch_added_ns", short)
    report.figure("contextual_steady_call_added_ns", call[1] - call[0])
    report.figure("ratio_decided_launch_added_to_triton_hit_added", short / hit, 0.15)
    report.figure("ratio_steady_call_added_to_triton_hit_added", (call[1] - call[0]) / hit, 0.06)
