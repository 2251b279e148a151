"""One rank for test_contextual_ranks.py: scenarios, rank, size, init."""

import json
import os
import pathlib
import shutil
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
os.environ["TRITON_DIST_AUTOTUNE_CONTEXT_LOGS"] = tempfile.mkdtemp()

import disttune
import torch
import torch.distributed as dist
from conftest import ScriptedClock
from contextual_rig import Tensor, blocks_of, make_kernel

SCENARIOS, RANK, SIZE, INIT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
clock = ScriptedClock()


def tuned(group=None, **options):
    return disttune.contextual_autotune(
        is_dist=True, n_warmup=1, n_repeat=2, timer=clock, cache="hot", group=group, **options
    )


def best(kernel):
    return kernel.best_config.kwargs["BLOCK"]


def slowest():
    cost = (lambda b: 100 * b) if RANK == 0 else (lambda b: 500 // b)
    kernel = make_kernel(clock, (1, 2, 4), cost=cost)
    passes = []

    @tuned()
    def outer():
        passes.append(1)
        kernel[(1,)](Tensor(), 1)

    outer()
    count = len(passes)
    outer()
    return {"best": best(kernel), "passes": count, "steady": len(passes) - count}


def failing_one():
    kernel = make_kernel(clock, (4, 1, 2))

    def fail(launch):
        if RANK == 1 and launch.block == 1:
            raise ValueError("fails here")

    kernel.fn.on_launch = fail
    passes = []

    @tuned(dist.group.WORLD)
    def outer():
        passes.append(1)
        kernel[(1,)](Tensor(), 1)

    outer()
    return {"best": best(kernel), "passes": len(passes),
            "launches_of_failing": blocks_of(kernel).count(1)}  # fmt: skip


def collectives():
    kernel = make_kernel(clock)

    @tuned()
    def outer():
        kernel[(1,)](Tensor(), 1)
        total = torch.tensor([float(RANK + 1)])
        dist.all_reduce(total)
        return total.item()

    return {"sum": outer(), "best": best(kernel)}


def held():
    same, mixed = make_kernel(clock, (1, 4)), make_kernel(clock, (4, 1))
    key = (1, "float32")
    same.cache[key] = same.configs[1]
    if RANK == 0:
        mixed.cache[key] = mixed.configs[0]
    passes = []

    @tuned()
    def outer(kernel):
        passes.append(1)
        kernel[(1,)](Tensor(), 1)

    outer(same)
    count = len(passes)
    outer(mixed)
    return {"same": best(same), "same_passes": count, "mixed": best(mixed)}


def different_launches():
    kernel = make_kernel(clock, name="gemm")

    @tuned()
    def outer():
        for _ in range(1 + RANK):
            kernel[(1,)](Tensor(), 1)

    return error_of(outer)


def raised():
    kernel = make_kernel(clock)
    passes = []

    @tuned(dist.new_group([0, 1]))
    def outer():
        passes.append(1)
        kernel[(1,)](Tensor(), 1)
        if RANK == 0 and len(passes) == 3:
            raise ZeroDivisionError("the caller's own")

    return error_of(outer)


def nothing_works():
    kernel, good = make_kernel(clock, (4, 2, 1)), make_kernel(clock)

    def fail(launch):  # on rank 1 not before the second run
        if launch.block in ((4, 2) if RANK == 0 else (2, 1)):
            raise ValueError("fails here")

    kernel.fn.on_launch = fail
    said = error_of(tuned()(lambda: kernel[(1,)](Tensor(), 1)))
    tuned()(lambda: good[(1,)](Tensor(), 1))()
    return {**said, "next": best(good)}


def pruned():
    said = {}
    for name, ranks in (("here", (0,)), ("everywhere", (0, 1))):
        left = {"early_config_prune": lambda configs, *_, r=ranks, **kw: configs[RANK in r and 9 :]}
        kernel, good = make_kernel(clock, prune_configs_by=left), make_kernel(clock)
        said[name] = error_of(tuned()(lambda kernel=kernel: kernel[(1,)](Tensor(), 1)))
        tuned()(lambda good=good: good[(1,)](Tensor(), 1))()
        said[name]["next"] = best(good)
    return said


def new_keys():
    kernel, passes = make_kernel(clock), []

    @tuned()
    def outer():
        passes.append(1)
        kernel[(1,)](Tensor(), 64 + len(passes))

    outer()
    return {"passes": len(passes)}


def modes():
    os.environ["TRITON_DIST_AUTOTUNE_MODE"] = "off" if RANK else "tune"
    kernel = make_kernel(clock)
    said = error_of(tuned()(lambda: kernel[(1,)](Tensor(), 1)))
    del os.environ["TRITON_DIST_AUTOTUNE_MODE"]
    tuned()(lambda: kernel[(1,)](Tensor(), 1))()
    return {**said, "next": best(kernel)}


def stored():
    before = os.environ["TRITON_DIST_AUTOTUNE_HOME"]
    os.environ["TRITON_DIST_AUTOTUNE_HOME"] = home = tempfile.mkdtemp()
    passes = []

    def call(*blocks):
        kernel = make_kernel(clock, blocks, name="kept")
        passes.clear()

        def outer():
            passes.append(1)
            kernel[(1,)](Tensor(), 1)

        tuned(persist=True)(outer)()
        return {"best": best(kernel), "passes": len(passes), "blocks": blocks_of(kernel)}

    said = {"first": call(4, 2)}
    if RANK == 0:
        shutil.rmtree(home)
    said["adopted"] = call(4, 2)
    said["again"] = call(4, 2)
    if RANK == 1:
        shutil.rmtree(home)
    said["grown"] = call(8, 4, 2, 1)
    said["files"] = len(list(pathlib.Path(home).rglob("*.json")))
    os.environ["TRITON_DIST_AUTOTUNE_HOME"] = before
    return said


def unwritable():
    before = os.environ["TRITON_DIST_AUTOTUNE_HOME"]
    file = pathlib.Path(tempfile.mkdtemp()) / "file"
    file.write_text("")
    os.environ["TRITON_DIST_AUTOTUNE_HOME"] = str(file / "below")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ("one", "two"):
            kernel = make_kernel(clock, name=name)
            tuned(persist=True)(lambda: kernel[(1,)](Tensor(), 1))()
    os.environ["TRITON_DIST_AUTOTUNE_HOME"] = before
    return {"warned": [str(w.message) for w in caught if "below" in str(w.message)]}


def error_of(function):
    try:
        function()
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {"error": None}


dist.init_process_group("gloo", init_method=INIT, rank=RANK, world_size=SIZE)
for name in SCENARIOS.split(","):
    print(json.dumps({"scenario": name, **globals()[name]()}), flush=True)
dist.barrier()
dist.destroy_process_group()
