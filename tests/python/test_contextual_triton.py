"""contextual_autotune with real kernels in Triton's interpreter, on a host without a GPU."""

import pathlib
import subprocess
import sys

import disttune
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from disttune._software import versions  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def scale():
    @triton.jit
    def scale_kernel(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        tl.store(y_ptr + offsets, alpha * x, mask=mask)

    return scale_kernel


def add_to():
    @triton.jit
    def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
        tl.store(y_ptr + offsets, x + y, mask=mask)

    return add_kernel


def configs(*blocks):
    return [triton.Config({"BLOCK": block}) for block in blocks]


def grid(meta):
    """For 256 elements. (The interpreter of 3.6 gives run-time arguments as tensors of its own.)"""
    return (triton.cdiv(256, meta["BLOCK"]),)


contextual = disttune.contextual_autotune(n_warmup=0, n_repeat=1, cache="hot")


def test_a_pipeline_of_two_kernels():
    first = triton.autotune(configs(64, 128), key=["n"])(scale())
    second = triton.autotune(configs(32, 256), key=["n"])(scale())

    @contextual
    def pipeline(x):
        y, z = torch.empty_like(x), torch.empty_like(x)
        first[grid](x, y, 2.0, n=x.numel())
        second[grid](y, z, 3.0, n=x.numel())
        return z

    x = torch.randn(256)
    for _ in range(2):
        torch.testing.assert_close(pipeline(x), 6.0 * x)
    for kernel in (first, second):
        ((key, config),) = kernel.cache.items()
        assert key == (256, "torch.float32", "torch.float32")
        assert config in kernel.configs
        assert len(kernel.configs_timings) == 2
    # Plain launches find the choice: without a driver Triton could not tune here itself.
    y = torch.empty_like(x)
    first[grid](x, y, 2.0, n=x.numel())
    torch.testing.assert_close(y, 2.0 * x)


def test_s58_the_first_call_gives_what_the_second_gives():
    kernel = triton.autotune(configs(64, 128), key=["n"], reset_to_zero=["y_ptr"])(add_to())
    x, y = torch.randn(128), torch.zeros(128)

    @contextual
    def accumulate():
        kernel[grid](x, y, n=x.numel())

    accumulate()
    torch.testing.assert_close(y, x)
    accumulate()
    torch.testing.assert_close(y, 2 * x)


def test_s56_an_in_place_kernel_counts_once():
    kernel = triton.autotune(configs(64, 128), key=["n"], restore_value=["y_ptr"])(add_to())
    x, y = torch.randn(128), torch.ones(128)

    @contextual
    def accumulate():
        kernel[grid](x, y, n=x.numel())

    accumulate()
    torch.testing.assert_close(y, x + 1)


@pytest.mark.parametrize("above", [True, False])
def test_heuristics_above_and_below(above):
    values = {"BLOCK": lambda args: 128} if above else {"alpha": lambda args: 2.0}
    heuristics = triton.heuristics(values)
    autotune = triton.autotune(
        [triton.Config({}, num_warps=w) for w in (4, 8)] if above else configs(64, 128), key=["n"]
    )
    kernel = heuristics(autotune(scale())) if above else autotune(heuristics(scale()))
    tuned = kernel.fn if above else kernel

    @contextual
    def outer(x):
        y = torch.empty_like(x)
        if above:
            kernel[(2,)](x, y, 2.0, n=x.numel())
        else:
            kernel[grid](x, y, n=x.numel())
        return y

    x = torch.randn(256)
    torch.testing.assert_close(outer(x), 2.0 * x)
    assert len(tuned.cache) == 1
    assert tuned.best_config in tuned.configs


def test_what_the_launch_site_passes_by_position_and_by_keyword():
    kernel = triton.autotune(configs(64, 128), key=["n"])(scale())

    @contextual
    def outer(x):
        y = torch.empty_like(x)
        kernel[(8,)](x, y, 2.0, x.numel(), 32, num_warps=2)
        return y

    x = torch.randn(256)
    torch.testing.assert_close(outer(x), 2.0 * x)


def test_an_error_inside_a_kernel_names_it():
    @triton.jit
    def broken_kernel(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), undefined_name)  # noqa: F821

    kernel = triton.autotune(configs(64, 128), key=["n"])(broken_kernel)
    outer = contextual(lambda x: kernel[(1,)](x, n=1))
    with pytest.raises(disttune.NoValidConfig, match=r"broken_kernel(.|\n)*undefined_name"):
        outer(torch.zeros(128))


def test_a_collective_of_the_outer_functions_own(tmp_path):
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        kernel = triton.autotune(configs(64, 128), key=["n"])(scale())

        @disttune.contextual_autotune(is_dist=True, n_warmup=0, n_repeat=1)
        def outer(x):
            y = torch.empty_like(x)
            kernel[grid](x, y, 2.0, n=x.numel())
            dist.all_reduce(y)
            return y

        x = torch.randn(128)
        torch.testing.assert_close(outer(x), 2.0 * x)
    finally:
        dist.destroy_process_group()


def test_launches_of_autograds_threads_belong_to_the_call():
    forward = triton.autotune(configs(64, 128), key=["n"])(scale())
    backward = triton.autotune(configs(64, 128), key=["n"])(scale())

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.empty_like(x)
            forward[grid](x, y, 2.0, n=x.numel())
            return y

        @staticmethod
        def backward(ctx, gradient):
            out = torch.empty_like(gradient)
            backward[grid](gradient.contiguous(), out, 2.0, n=gradient.numel())
            return out

    @contextual
    def step(x):
        x.grad = None
        Twice.apply(x).sum().backward()
        return x.grad

    x = torch.randn(128, requires_grad=True)
    torch.testing.assert_close(step(x), torch.full((128,), 2.0))
    assert backward.best_config in backward.configs


def test_the_example(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "python" / "contextual_scale.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("chosen: BLOCK: 512")


def test_variables_that_change_what_is_compiled_are_among_the_versions(monkeypatch):
    monkeypatch.delenv("DISABLE_LLVM_OPT", raising=False)
    before = versions().get("triton.environment")
    if before is None:
        pytest.skip("this Triton does not say which variables these are")
    monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    assert "DISABLE_LLVM_OPT=" in versions()["triton.environment"] != before
