"""Two GPUs over NCCL, one rank each: the same choice, control traffic beside the collectives."""

from __future__ import annotations

import socket
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two CUDA devices"
)

import torch.distributed as dist  # noqa: E402
import triton.language as tl  # noqa: E402

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 1024) for w in (1, 4)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def scale_kernel(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, alpha * tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


def contextual(rank: int) -> Any:
    from disttune import contextual_autotune

    @contextual_autotune(is_dist=True, n_repeat=3, n_warmup=2)
    def step(x: Any) -> Any:
        y = torch.empty_like(x)
        scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, 2.0, x.numel())
        dist.all_reduce(y)  # the outer function communicates itself
        return y

    x = torch.full((1 << 20,), float(rank + 1), device="cuda")
    y = step(x)
    assert float(y[0]) == 6.0
    return str(scale_kernel.best_config)


def function_level(rank: int) -> Any:
    import disttune

    @disttune.autotune([{"cycles": 200_000}, {"cycles": 20_000}], lambda x: x.numel())
    def launch(x: Any, cycles: int) -> Any:
        torch.cuda._sleep(cycles)
        dist.all_reduce(x)
        return x

    launch(torch.ones(1 << 16, device="cuda"))
    return launch.best_configs[1 << 16]["cycles"]


def rank_main(rank: int, port: int, body: Any, store: str, results: Any) -> None:
    import os

    os.environ["TRITON_DIST_AUTOTUNE_HOME"] = os.path.join(store, str(rank))
    os.environ["TRITON_DIST_AUTOTUNE_CONTEXT_LOGS"] = store
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    results.put(body(rank))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("body", [function_level, contextual])
def test_two_ranks_choose_alike(body: Any, tmp_path: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    ranks = torch.multiprocessing.spawn(
        rank_main, args=(port, body, str(tmp_path), results), nprocs=2, join=False
    )
    while not ranks.join():
        pass
    first, second = results.get(), results.get()
    assert first == second
    if body is function_level:
        assert first == 20_000
