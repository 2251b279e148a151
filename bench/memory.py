"""Memory of many decided keys, and what importing the package costs.

100,000 keys are decided in one process; compared with a Python dict that holds the same tuples.
Importing is compared with ``import asyncio``, each in processes of their own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

from harness import Report

KEYS = 100_000
PROCESSES = 9

#: Runs in a process of its own; prints bytes that `KEYS` keys take, as the kernel counts them.
TABLE = """
import gc, json, os, sys

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def key(i):
    return ((i, 4096 + i % 7), "float16", i % 1000)

keys = range(int(sys.argv[2]))
if sys.argv[1] == "dict":
    before = resident()
    table = {key(i): {"block": 128, "warps": 4} for i in keys}
else:
    import disttune

    # A candidate that costs nothing needs no measuring to be chosen: what is asked here is what a
    # decided key keeps, and 100,000 tunings would write 100,000 files.
    @disttune.autotune([{"block": 128, "warps": 4}, {"block": 256, "warps": 8}], lambda i: key(i))
    def launcher(i, block, warps):
        pass

    launcher(-1)
    before = resident()
    for i in keys:
        launcher(i)
    assert len(launcher.best_configs) == len(keys) + 1
print(json.dumps(resident() - before))
"""

IMPORT = """
import json, resource, sys, time
start = time.perf_counter_ns()
__import__(sys.argv[1])
spent = time.perf_counter_ns() - start
assert "torch" not in sys.modules and "triton" not in sys.modules
with open("/proc/self/statm") as file:
    pages = int(file.read().split()[1])
print(json.dumps([spent, pages * resource.getpagesize()]))
"""


def run(program: str, *arguments: str) -> object:
    with tempfile.TemporaryDirectory() as store:
        environment = {
            **os.environ,
            "TRITON_DIST_AUTOTUNE_HOME": store,
            "TRITON_DIST_AUTOTUNE_MODE": "first",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout)


def import_cost(module: str) -> tuple[float, float]:
    """Median nanoseconds and bytes of importing a module; bytes above an idle interpreter's."""
    runs = [run(IMPORT, module) for _ in range(PROCESSES)]
    idle = statistics.median(run(IMPORT, "sys")[1] for _ in range(PROCESSES))  # type: ignore[index]
    time = statistics.median(r[0] for r in runs)  # type: ignore[index]
    return time, statistics.median(r[1] for r in runs) - idle  # type: ignore[index]


def main(report: Report) -> None:
    """Measure and report."""
    plain = run(TABLE, "dict", str(KEYS))
    ours = run(TABLE, "disttune", str(KEYS))
    report.figure("dict_bytes_a_key", plain / KEYS)  # type: ignore[operator]
    report.figure("table_bytes_a_key", ours / KEYS)  # type: ignore[operator]
    report.figure("ratio_table_to_dict", ours / plain, 3.0)  # type: ignore[operator]
    asyncio_time, asyncio_bytes = import_cost("asyncio")
    our_time, our_bytes = import_cost("disttune")
    report.figure("import_asyncio_ms", asyncio_time / 1e6)
    report.figure("import_disttune_ms", our_time / 1e6)
    report.figure("ratio_import_time_to_asyncio", our_time / asyncio_time, 3.0)
    report.figure("import_asyncio_mib", asyncio_bytes / 2**20)
    report.figure("import_disttune_mib", our_bytes / 2**20)
    report.figure("ratio_import_memory_to_asyncio", our_bytes / asyncio_bytes, 3.0)
