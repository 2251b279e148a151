"""triton-ascend's AutoTilingTuner in contextual calls: its own key, its own configurations."""

import disttune
import pytest
import shim  # noqa: F401  repairs triton's interpreter
import torch
import triton
import triton.language as tl
from triton.runtime.autotiling_tuner import AutoTilingTuner
from triton.runtime.autotuner import Autotuner

FASTEST = 1024
HINTS = {"enable_ascend_autotune": True}
RUN = AutoTilingTuner.run, Autotuner.run


def make_kernel():
    @triton.jit
    def add_kernel(x_ptr, y_ptr, o_ptr, n, XBLOCK: tl.constexpr, XBLOCK_SUB: tl.constexpr):
        base = tl.program_id(0) * XBLOCK
        for i in range(0, XBLOCK, XBLOCK_SUB):
            offsets = base + i + tl.arange(0, XBLOCK_SUB)
            mask = offsets < n
            x = tl.load(x_ptr + offsets, mask=mask)
            y = tl.load(y_ptr + offsets, mask=mask)
            tl.store(o_ptr + offsets, x + y, mask=mask)

    return add_kernel


@pytest.fixture(autouse=True)
def put_back():
    yield
    assert (AutoTilingTuner.run, Autotuner.run) == RUN


class Clock:
    """A clock in nanoseconds that launches advance."""

    now = 1_000

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def launches(clock, monkeypatch):
    """Tiles of the launches so far; the farther from FASTEST, the longer the kernel."""
    tiles = []

    def run(self, *args, grid, warmup=False, XBLOCK, **options):
        if warmup:
            return
        tiles.append(XBLOCK)
        clock.now += 1000 * (300 + abs(XBLOCK - FASTEST))

    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", run)
    return tiles


def arguments(n):
    return (*(torch.ones(n, device="npu") for _ in range(3)), n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["XBLOCK"]),)


def outer_of(tuned, **options):
    passes = []

    @disttune.contextual_autotune(**{"n_repeat": 2, "n_warmup": 1, "cache": "hot", **options})
    def outer(*args):
        passes.append(1)
        tuned[grid](*args)
        return args[2]

    return outer, passes


def tile_of(config):
    return config.kwargs["XBLOCK"]


def closest(tiles):
    return min(abs(tile - FASTEST) for tile in tiles)


def test_generated_configurations_are_driven(launches, clock):
    tuned = triton.autotune(configs=[], key=["n"], hints=HINTS)(make_kernel())
    assert type(tuned) is AutoTilingTuner
    outer, passes = outer_of(tuned, timer=clock)
    call = arguments(1 << 16)
    outer(*call)

    assert len(tuned.gen_configs) > 1
    generated = {tile_of(config) for config in tuned.gen_configs}
    assert {tile_of(config) for config in tuned.configs_timings} == generated
    assert set(launches) == generated
    assert abs(tile_of(tuned.best_config) - FASTEST) == closest(generated)
    assert list(tuned.cache) == [(1 << 16, *["torch.float32"] * 3)]
    assert tuned.cache[next(iter(tuned.cache))] is tuned.best_config

    # The key is the tuner's own: a plain launch finds the choice, and measures nothing.
    count = len(launches)
    tuned[grid](*call)
    assert launches[count:] == [tile_of(tuned.best_config)]
    outer(*call)
    assert launches[count:] == [tile_of(tuned.best_config)] * 2
    assert passes.count(1) == len(passes)


def test_configurations_are_generated_for_each_key(launches, clock):
    tuned = triton.autotune(configs=[], key=["n"], hints=HINTS)(make_kernel())
    outer, _ = outer_of(tuned, timer=clock)
    numbers = {}
    for n in (1 << 16, 1 << 20):
        outer(*arguments(n))
        numbers[n] = len(tuned.configs_timings)
    assert len(tuned.cache) == 2
    assert numbers[1 << 16] != numbers[1 << 20]


def test_a_single_generated_configuration(launches, clock):
    tuned = triton.autotune(configs=[], key=["n"], hints=HINTS)(make_kernel())
    outer, passes = outer_of(tuned, timer=clock)
    outer(*arguments(4096))
    assert len(tuned.gen_configs) == 1
    assert len(set(launches)) == 1
    assert tuned.best_config is not None
    assert len(passes) <= 2


def test_user_configurations_join_the_generated_ones(launches, clock):
    user = triton.Config({"XBLOCK": FASTEST, "XBLOCK_SUB": 256})
    tuned = triton.autotune(configs=[user], key=["n"], hints=HINTS)(make_kernel())
    outer, _ = outer_of(tuned, timer=clock)
    outer(*arguments(1 << 20))
    assert user in tuned.configs_timings
    assert len(tuned.configs_timings) > 1
    assert tile_of(tuned.best_config) == FASTEST


def test_a_kernel_of_each_class_in_one_call(launches, clock):
    configs = [triton.Config({"XBLOCK": b, "XBLOCK_SUB": 256}) for b in (256, FASTEST, 4096)]
    plain = triton.autotune(configs=configs, key=["n"])(make_kernel())
    tiling = triton.autotune(configs=[], key=["n"], hints=HINTS)(make_kernel())
    assert type(plain) is Autotuner

    @disttune.contextual_autotune(n_repeat=2, n_warmup=1, cache="hot", timer=clock)
    def outer(*args):
        plain[grid](*args)
        tiling[grid](*args)

    outer(*arguments(1 << 16))
    assert tile_of(plain.best_config) == FASTEST
    assert len(tiling.cache) == 1
    assert {tile_of(c) for c in tiling.configs_timings} == {tile_of(c) for c in tiling.gen_configs}


def test_in_the_interpreter(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    tuned = triton.autotune(configs=[], key=["n"], hints=HINTS)(make_kernel())
    outer, _ = outer_of(tuned, n_repeat=1, n_warmup=0)
    x, y, o, n = arguments(1 << 14)
    torch.testing.assert_close(outer(x, 2 * y, o, n), 3 * torch.ones_like(x))
    assert len(tuned.cache) == 1


def test_a_launch_without_tensors_is_the_tuners_own_error(launches, clock):
    tuned = triton.autotune(configs=[], key=["n"], hints=HINTS)(make_kernel())
    outer, _ = outer_of(tuned, timer=clock)
    with pytest.raises(NotImplementedError, match="non-Tensor"):
        outer(1, 2, 3, 4096)
