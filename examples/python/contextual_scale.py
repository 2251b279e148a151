"""Scale a tensor in an outer function: the example of contextual tuning.

The kernel inside is tuned during complete runs of the function. Without a GPU, run it in Triton's
interpreter: TRITON_INTERPRET=1 python contextual_scale.py
"""

import torch
import triton
import triton.language as tl
from triton_dist.autotuner import contextual_autotune

BLOCK = 512


@triton.autotune(
    configs=[triton.Config({"BLOCK": BLOCK}, num_warps=warps) for warps in (4, 8)],
    key=["n"],
)
@triton.jit
def scale_kernel(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, alpha * x, mask=mask)


@contextual_autotune(is_dist=False, n_repeat=3, n_warmup=2)
def run_scale(x, alpha):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    scale_kernel[grid](x, y, alpha, x.numel())
    return y


x = torch.randn(1 << 18, device="cpu", dtype=torch.float32)
y = run_scale(x, 3.0)
torch.testing.assert_close(y, 3.0 * x, atol=1e-5, rtol=1e-4)
assert scale_kernel.best_config is not None
print(f"chosen: {scale_kernel.best_config}")
