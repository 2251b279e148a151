"""Scale a tensor: the first example of function-level tuning.

Run it twice: the first process tunes, the second one uses what the first learned. Without a GPU,
run it in Triton's interpreter: TRITON_INTERPRET=1 python scale.py
"""

import torch
import triton
import triton.language as tl
from triton_dist.tune import autotune


@triton.jit
def scale_kernel(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, alpha * x, mask=mask)


def config_space():
    return [
        {"cfg": triton.Config({"BLOCK": block}, num_warps=warps)}
        for block in (256, 512, 1024, 2048)
        for warps in (4, 8)
    ]


def key_fn(x, alpha, *args, **kwargs):
    return (tuple(x.shape), str(x.dtype))


def prune_fn(entry, x, alpha, *args, **kwargs):
    block = entry["cfg"].all_kwargs()["BLOCK"]
    return block * x.element_size() < 32 * 1024


@autotune(
    config_space=config_space(),
    key_fn=key_fn,
    prune_fn=prune_fn,
)
def scale(x, alpha, cfg):
    y = torch.empty_like(x)
    meta = cfg.all_kwargs()
    grid = (triton.cdiv(x.numel(), meta["BLOCK"]),)
    scale_kernel[grid](x, y, alpha, x.numel(), **meta)
    return y


def report(known):
    """Print every candidate with its time, the choice, and where it came from."""
    record = scale.result(x, 2.5)
    for candidate in record.candidates:
        time = f"{candidate.score_ns / 1e6:9.3f} ms" if candidate.score_ns else candidate.status
        print(f"  {candidate.config['cfg']}: {time}")
    print(f"chosen: {scale.best_configs[key_fn(x, 2.5)]['cfg']}")
    print(f"record: {scale.explain(x, 2.5).file}")
    print("this process used the record, without tuning" if known else "this process tuned")


x = torch.randn(1 << 18, device="cpu", dtype=torch.float32)
known = scale.explain(x, 2.5).source == "store"
y = scale(x, 2.5, autotune=True, autotune_verbose=True)
torch.testing.assert_close(y, 2.5 * x, atol=1e-5, rtol=1e-4)
report(known)
