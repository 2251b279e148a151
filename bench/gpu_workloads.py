"""The GPU workloads of the device figures: kernels, launchers, configuration spaces.

Each entry of ``single_gpu()`` is ``(name, launcher, space)``; ``launcher(config)`` issues one run
on the current stream.
Written against Triton 3.6; needs a CUDA device.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GM: tl.constexpr,
):
    pid = tl.program_id(0)
    rows, cols = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GM * cols)
    first = group * GM
    size = min(rows - first, GM)
    pm = first + ((pid % (GM * cols)) % size)
    pn = (pid % (GM * cols)) // size
    om = (pm * BM + tl.arange(0, BM)) % M
    on = (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    ap = a + om[:, None] * stride_am + ok[None, :] * stride_ak
    bp = b + ok[:, None] * stride_bk + on[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(ap, mask=ok[None, :] < K - k * BK, other=0.0)
        y = tl.load(bp, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        ap += BK * stride_ak
        bp += BK * stride_bk
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    out = c + om[:, None] * stride_cm + on[None, :] * stride_cn
    tl.store(out, acc.to(tl.float16), mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def scale_kernel(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, alpha * tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


@triton.jit
def softmax_kernel(x, y, R, C, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    mask = (r[:, None] < R) & (c[None, :] < C)
    v = tl.load(x + r[:, None] * C + c[None, :], mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + r[:, None] * C + c[None, :], e / tl.sum(e, 1)[:, None], mask=mask)


MATMUL_SPACE = [
    dict(BM=bm, BN=bn, BK=bk, GM=8, num_warps=w, num_stages=s)
    for bm in (64, 128, 256)
    for bn in (64, 128, 256)
    for bk in (32, 64)
    for w in (4, 8)
    for s in (3, 4)
]
SCALE_SPACE = [dict(BLOCK=b, num_warps=w) for b in (256, 512, 1024, 2048) for w in (4, 8)]
SOFTMAX_SPACE = [
    dict(BR=r, num_warps=w, num_stages=2) for r in (1, 2, 4, 8, 16) for w in (1, 2, 4, 8, 16)
]
AG_MATMUL_SPACE = [
    dict(BM=bm, BN=bn, BK=64, GM=8, num_warps=w, num_stages=s)
    for bm in (64, 128)
    for bn in (64, 128, 256)
    for w in (4, 8)
    for s in (3, 4)
]


def matmul(a, b, config):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, config["BM"]) * triton.cdiv(N, config["BN"]),)
    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), **config)
    return c


def scale(x, alpha, config):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), config["BLOCK"]),)](x, y, alpha, x.numel(), **config)
    return y


def softmax(x, config):
    y = torch.empty_like(x)
    rest = dict(config)
    br = rest.pop("BR")
    R, C = x.shape
    softmax_kernel[(triton.cdiv(R, br),)](x, y, R, C, BR=br, BC=triton.next_power_of_2(C), **rest)
    return y


def allgather_matmul(shard, b, config, group=None):
    """Two or more GPUs: gather the row shards of A over NCCL, then multiply.

    ``shard`` is (M / world, K).
    """
    world = torch.distributed.get_world_size(group)
    a = torch.empty(
        (shard.shape[0] * world, shard.shape[1]), device=shard.device, dtype=shard.dtype
    )
    torch.distributed.all_gather_into_tensor(a, shard, group=group)
    return matmul(a, b, config)


def single_gpu(device="cuda"):
    half = dict(device=device, dtype=torch.float16)
    for M, N, K in [
        (4096, 4096, 4096),
        (2048, 2048, 2048),
        (1024, 1024, 1024),
        (512, 4096, 1024),
        (128, 4096, 4096),
        (16, 4096, 4096),
    ]:
        a, b = torch.randn(M, K, **half), torch.randn(K, N, **half)
        yield f"matmul_fp16_{M}x{N}x{K}", (lambda c, a=a, b=b: matmul(a, b, c)), MATMUL_SPACE
    for n in (1 << 18, 1 << 22, 1 << 26):
        x = torch.randn(n, device=device)
        yield f"scale_fp32_{n}", (lambda c, x=x: scale(x, 2.5, c)), SCALE_SPACE
    for R, C in ((4096, 1024), (32768, 256)):
        x = torch.randn(R, C, device=device)
        yield f"softmax_fp32_{R}x{C}", (lambda c, x=x: softmax(x, c)), SOFTMAX_SPACE
