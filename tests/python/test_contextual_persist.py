"""Choices of contextual calls that outlive the process."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

pytest.importorskip("triton")
from contextual_rig import Tensor, blocks_of, make_kernel


def test_choices_that_persist_need_one_pass_in_another_process(clock, tune, store):
    def outer_of(kernel):
        passes.clear()

        def outer():
            passes.append(1)
            return kernel[(1,)](Tensor(), 1)

        return tune(persist=True)(outer)

    passes = []
    assert outer_of(make_kernel(clock))() == ("compiled", 2)
    assert len(passes) == 7
    assert len(list(store.rglob("*.json"))) == 1
    kernel = make_kernel(clock)  # as another process has it: nothing in its cache
    outer = outer_of(kernel)
    assert outer() == ("compiled", 2)
    assert len(passes) == 1
    assert blocks_of(kernel) == [2]
    assert kernel.cache == {(1, "float32"): kernel.configs[1]}
    # Of other configurations nothing is known: they are measured beside the best.
    kernel = make_kernel(clock, (4, 2, 1))
    assert outer_of(kernel)() == ("compiled", 1)
    assert len(passes) == 7
    assert set(blocks_of(kernel)) == {2, 1}
    kernel = make_kernel(clock, (8, 4, 1, 2))
    assert outer_of(kernel)() == ("compiled", 1)
    assert set(blocks_of(kernel)) <= {8, 1}


DYING = """
import os, signal, sys
sys.path[:0] = {path!r}
import disttune
from conftest import ScriptedClock
from contextual_rig import Tensor, blocks_of, make_kernel

clock, how = ScriptedClock(), sys.argv[1]
kernel = make_kernel(clock, (4, 2, 3))

def at(launch):
    if launch.block == 2 and how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if launch.block == 2 and how == "interrupt":
        raise KeyboardInterrupt
kernel.fn.on_launch = at

@disttune.contextual_autotune(n_warmup=1, n_repeat=2, timer=clock, cache="hot", persist=True)
def outer():
    kernel[(1,)](Tensor(), 1)

try:
    outer()
except KeyboardInterrupt:
    print("interrupted")
else:
    print(*blocks_of(kernel))
"""


def run_dying(tmp_path, how, **environment):
    script = tmp_path / "dying.py"
    script.write_text(DYING.format(path=[str(pathlib.Path(__file__).parent)]))
    return subprocess.run(
        [sys.executable, str(script), how], capture_output=True, text=True, timeout=120,
        check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_a_configuration_that_ended_the_process_is_skipped_by_the_next_one(tmp_path, store):
    assert run_dying(tmp_path, "die").returncode == -signal.SIGKILL
    (journal,) = store.rglob("*.journal-*")
    again = run_dying(tmp_path, "die")  # 4: three launches; 3: three, and the last run
    assert again.stdout.split() == ["4"] * 3 + ["3"] * 4, again.stdout + again.stderr
    assert not journal.exists() and not list(store.rglob("*.journal-*"))
    (record,) = store.rglob("*.json")
    candidates = json.loads(record.read_text())["tunings"][0]["candidates"]
    assert [c["status"] for c in candidates] == ["ok", "crashed", "ok"]
    assert "a process died while it ran" in candidates[1]["reason"]
    # Not tried again by later processes, but on request.
    assert run_dying(tmp_path, "die").stdout.split() == ["3"]
    tried = run_dying(tmp_path, "live", TRITON_DIST_AUTOTUNE_RETRY_CRASHED="1")
    assert "2" in tried.stdout.split()


def test_an_interrupted_configuration_did_not_end_the_process(tmp_path, store):
    assert run_dying(tmp_path, "interrupt").stdout.split() == ["interrupted"]
    assert not list(store.rglob("*.journal-*"))
    assert run_dying(tmp_path, "live").stdout.split()[-1] == "2"


def test_without_persist_nothing_is_stored(clock, tune, store):
    kernel = make_kernel(clock)
    tune()(lambda: kernel[(1,)](Tensor(), 1))()
    assert not list(store.rglob("*.json"))


def test_what_is_decided_outlives_an_interrupt(clock, tune, store):
    """Each kernel's choice is kept as soon as it is there, not when the call has ended."""

    def run(interrupt):
        first = make_kernel(clock, blocks=(4, 2), name="first")
        second = make_kernel(clock, blocks=(1, 2, 3, 4), name="second")

        def stop(launch):
            if interrupt and launch.block == 4:
                raise KeyboardInterrupt

        second.fn.on_launch = stop

        def outer():
            first[(1,)](Tensor(), 1)
            second[(1,)](Tensor(), 1)

        try:
            tune(persist=True)(outer)()
        except KeyboardInterrupt:
            assert interrupt
        return blocks_of(first)

    assert len(run(interrupt=True)) > 2 * 3
    (file,) = store.glob("*/*.json")
    assert json.loads(file.read_text())["tunings"][0]["rank_medians"] == [[0, 2000]]
    assert set(run(interrupt=False)) == {2}
