"""Contextual tuning on a real GPU: kernels in the middle of queued work."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

import triton.language as tl  # noqa: E402
from disttune import contextual_autotune  # noqa: E402

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 1024) for w in (1, 4)]


def scale_body(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, alpha * tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


def a_kernel(configs: Any = None) -> Any:
    return triton.autotune(configs=configs or CONFIGS, key=["n"])(triton.jit(scale_body))


def launch(kernel: Any, x: Any, alpha: float) -> Any:
    y = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, alpha, x.numel())
    return y


def test_one_kernel_inside_an_outer_function() -> None:
    kernel = a_kernel()
    passes = []

    @contextual_autotune(is_dist=False, n_repeat=3, n_warmup=2)
    def run(x: Any, alpha: float) -> Any:
        passes.append(alpha)
        return launch(kernel, x, alpha)

    x = torch.randn(1 << 18, device="cuda")
    torch.testing.assert_close(run(x, 3.0), 3.0 * x)
    assert kernel.best_config in CONFIGS
    assert len(passes) <= 1 + len(CONFIGS) * 5 + 1
    passes.clear()
    torch.testing.assert_close(run(x, 2.0), 2.0 * x)
    assert len(passes) == 1
    torch.testing.assert_close(launch(kernel, x, 4.0), 4.0 * x)  # Triton's own hit


def test_two_kernels_with_work_before_and_after() -> None:
    first, second = a_kernel(), a_kernel()

    @contextual_autotune(is_dist=False)
    def pipeline(x: Any) -> Any:
        h = torch.relu(x)
        h = launch(first, h, 2.0)
        h = h + 1
        return launch(second, h, 0.5) - x

    x = torch.randn(1 << 20, device="cuda")
    torch.testing.assert_close(pipeline(x), (2 * torch.relu(x) + 1) * 0.5 - x)
    assert first.best_config is not None and second.best_config is not None
    # the obviously slow one never wins behind a gate
    for kernel in (first, second):
        assert (kernel.best_config.kwargs["BLOCK"], kernel.best_config.num_warps) != (64, 1)


def test_capture_into_a_graph_after_tuning() -> None:
    kernel = a_kernel()

    @contextual_autotune(is_dist=False)
    def run(x: Any) -> Any:
        return launch(kernel, x, 2.0)

    x = torch.ones(1 << 16, device="cuda")
    run(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run(x)
    x.fill_(3.0)
    graph.replay()
    assert float(y[0]) == 6.0


def test_nothing_stays_patched_or_allocated() -> None:
    from triton.runtime.autotuner import Autotuner

    before = Autotuner.run
    kernel = a_kernel()

    @contextual_autotune(is_dist=False)
    def run(x: Any) -> Any:
        return launch(kernel, x, 2.0)

    x = torch.ones(1 << 16, device="cuda")
    allocated = torch.cuda.memory_allocated()
    run(x)
    torch.cuda.synchronize()
    assert Autotuner.run is before
    assert torch.cuda.memory_allocated() == allocated
