"""One rank of an hccl world: rank_program.py SCENARIO,… RANK SIZE INIT FOLDER; says JSON lines."""

import ctypes
import json
import os
import pathlib
import runpy
import sys

import disttune
import shim  # noqa: F401  repairs triton's interpreter
import torch
import torch.distributed as dist
import triton

SCENARIOS, RANK, SIZE = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])
INIT, FOLDER = sys.argv[4], pathlib.Path(sys.argv[5])
RUNTIME = ctypes.CDLL(os.environ["NPU_CONTRACT_LIB"] + "/libascendcl.so")
RUNTIME.npu_contract_busy.argtypes = [ctypes.c_void_p, ctypes.c_int64]
RUNTIME.npu_contract_report.restype = ctypes.c_char_p


def collectives():
    """Calls of HCCL's collectives so far."""
    calls = json.loads(RUNTIME.npu_contract_report())["calls"]
    names = ("HcclAllReduce", "HcclBroadcast", "HcclAllGather", "HcclReduceScatter", "HcclBarrier")
    return sum(calls.get(name, 0) for name in names)


def busy(microseconds):
    RUNTIME.npu_contract_busy(torch.npu.current_stream().npu_stream, microseconds)


def guide_call():
    """The guide's launcher, and its call with a process group, as they stand there."""
    names = runpy.run_path(str(FOLDER / "launcher.py"))
    x = torch.randn(1 << 12, device="npu", dtype=torch.float32)
    names |= {"x": x, "alpha": 2.5, "process_group": dist.new_group(list(range(SIZE)))}
    before = collectives()
    exec((FOLDER / "call.py").read_text(), names)
    tuned_with = collectives() - before
    torch.testing.assert_close(names["result"], 2.5 * x, atol=1e-5, rtol=1e-4)
    record = names["scale"].result(x, 2.5, autotune_pg=names["process_group"])
    return {
        "choice": record.winner["cfg"].all_kwargs(),
        "samples": [c.samples_ns for c in record.candidates],
        "collectives": tuned_with,
    }


def slowest():
    """A fast candidate that is slow on one rank loses; the launcher communicates over HCCL."""
    times = {"a": 400_000, "b": 800_000 if RANK == SIZE - 1 else 500, "c": 5_000}

    @disttune.autotune([{"c": c} for c in "abc"], lambda x: x.shape, ignore=["times", "RANK"])
    def launch(x, c):
        busy(times[c])
        y = x.clone()
        dist.all_reduce(y)
        return y

    x = torch.ones(4, device="npu")
    assert launch(x, autotune_pg=dist.group.WORLD).tolist() == [SIZE] * 4
    record = launch.result(x, autotune_pg=dist.group.WORLD)
    return {
        "winner": record.winner["c"],
        "gate": record.gate,
        "samples": [c.samples_ns for c in record.candidates],
        "at_least": min(record.candidates[1].samples_ns),
    }


def failing_one():
    @disttune.autotune([{"c": c} for c in "abc"], lambda x: x.shape, ignore=["times", "RANK"])
    def launch(x, c):
        if c == "b" and RANK == SIZE - 1:
            raise RuntimeError("no room on this rank")
        busy({"a": 400_000, "b": 500, "c": 5_000}[c])

    x = torch.ones(4, device="npu")
    launch(x, autotune_pg=dist.group.WORLD)
    record = launch.result(x, autotune_pg=dist.group.WORLD)
    return {"winner": record.winner["c"], "statuses": [c.status for c in record.candidates]}


def contextual():
    """The guide's second example with is_dist=True, whole."""
    names = runpy.run_path(str(FOLDER / "contextual.py"))
    kernel = names["scale_kernel"]
    return {"best": kernel.best_config.all_kwargs(), "keys": len(kernel.cache)}


def contextual_slowest():
    passes = []
    times = {64: 400_000, 128: 800_000 if RANK == SIZE - 1 else 500, 256: 5_000}

    @triton.jit
    def fill_kernel(y_ptr, n, BLOCK: triton.language.constexpr):
        offsets = triton.language.program_id(0) * BLOCK + triton.language.arange(0, BLOCK)
        triton.language.store(y_ptr + offsets, 1.0, mask=offsets < n)

    class Busy:
        """The kernel occupies the stream as long as its configuration says."""

        arg_names = fill_kernel.arg_names

        def run(self, y, n, grid, warmup=False, BLOCK=64, **options):
            busy(times[BLOCK])

    configs = [triton.Config({"BLOCK": block}) for block in times]
    kernel = triton.autotune(configs=configs, key=["n"])(fill_kernel)
    kernel.fn = Busy()

    @disttune.contextual_autotune(is_dist=True, n_repeat=2, n_warmup=1, cache="hot")
    def outer(y):
        passes.append(1)
        kernel[(1,)](y, y.numel())
        total = y.clone()
        dist.all_reduce(total)
        return total

    y = torch.ones(4, device="npu")
    assert outer(y).tolist() == [SIZE] * 4
    tuned_in = len(passes)
    outer(y)
    return {
        "best": kernel.best_config.kwargs["BLOCK"],
        "passes": tuned_in,
        "steady": len(passes) - tuned_in,
    }


def misuse():
    report = json.loads(RUNTIME.npu_contract_report())
    return {"misuse": {k: n for k, n in report["misuse"].items() if n}}


if __name__ == "__main__":
    torch.npu.set_device(RANK)
    dist.init_process_group("hccl", init_method=INIT, rank=RANK, world_size=SIZE)
    dist.barrier()
    for scenario in SCENARIOS:
        print(json.dumps({"scenario": scenario, **globals()[scenario]()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
