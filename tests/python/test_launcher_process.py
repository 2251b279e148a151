"""The tuned function in a process: its threads, its environment, its stack, its end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest


def test_a_daemon_thread_in_warm_calls_does_not_spoil_the_end_of_the_program(tmp_path):
    program = """
import threading, disttune

@disttune.autotune([{"b": 1}, {"b": 2}], key_fn=lambda x: x)
def f(x, b):
    started.set()
    return b

started = threading.Event()
f(0)

def serve():
    while True:
        f(0)

started.clear()
threading.Thread(target=serve, daemon=True).start()
started.wait()
print("bye")
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {**os.environ, "TRITON_DIST_AUTOTUNE_HOME": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "bye\n", "")


def test_a_daemon_thread_in_a_tuning_does_not_spoil_the_end_of_the_program(tmp_path):
    program = """
import sys, threading, time, disttune

started = threading.Event()

@disttune.autotune([{"b": 1}, {"b": 2}], None, name="f", version="1")
def f(b):
    started.set()
    while len(sys.argv) > 1:
        time.sleep(0.001)  # not for time: each end of it asks for the lock that the end takes away

if len(sys.argv) > 1:
    threading.Thread(target=f, daemon=True).start()
    started.wait()
else:
    f()
    print([c.status for c in f.result().tunings[0].candidates])
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {**os.environ, "TRITON_DIST_AUTOTUNE_HOME": str(tmp_path / "store")}

    def outcome(*arguments):
        done = subprocess.run(
            [sys.executable, path, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    assert outcome("leaves it behind") == (0, "", "")
    assert outcome() == (0, "['ok', 'ok']\n", "")


ENDLESS = """
import sys, threading, time, disttune
from disttune import _core

started = threading.Event()

def for_ever(*_):
    started.set()
    while True:
        time.sleep(0.001)  # not for time: each end of it asks for the lock that the end takes away

class Seat(disttune.ProcessGroup):
    def all_reduce_max(self, values, wait):
        return for_ever() if sys.argv[1] == "collective" else values

    def alive(self):
        if sys.argv[1] == "sign":
            for_ever()

    def abandon(self, sequence, why):
        pass

class Failure(Exception):
    __str__ = for_ever

class Result:
    __del__ = for_ever

class Attempt:
    run = property(for_ever)

def fail(b):
    raise Failure

def tune(fn, key_fn=None):
    f = disttune.autotune([{"b": 1}, {"b": 2}], key_fn, name="f", version="1")(fn)
    f(autotune_pg=Seat(0, 2) if sys.argv[1] == "sign" else None)

def decide():
    _core.decide(_core.make_kernel("k", "m", [{"b": 1}], dict), 1, Attempt())

work = {
    "collective": lambda: disttune.barrier(Seat(0, 2)),
    "key": lambda: tune(lambda b: b, for_ever),
    "message": lambda: tune(fail),
    "result": lambda: tune(lambda b: Result()),
    "sign": lambda: tune(lambda b: b),
    "attribute": decide,
}
threading.Thread(target=work[sys.argv[1]], daemon=True).start()
started.wait()
"""


@pytest.mark.parametrize("place", ["collective", "sign", "key", "message", "result", "attribute"])
def test_a_daemon_thread_may_be_left_in_any_code_of_the_callers(tmp_path, place):
    environment = {**os.environ, "TRITON_DIST_AUTOTUNE_HOME": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS, place],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_launcher_that_calls_itself_without_end_is_a_recursion_error(tmp_path):
    program = textwrap.dedent(
        """
        import disttune

        @disttune.autotune([{"b": 1}, {"b": 2}], key_fn=lambda n: n, name="f", version="1")
        def f(n, b):
            return f(n + 1)

        try:
            f(0)
        except RecursionError:
            print("as it should be")
        """
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout == "as it should be\n", done.stderr[-2000:]


def test_the_environment_may_change_while_other_threads_tune(clock):
    """A child does it: a race in the C library ends the process."""
    program = textwrap.dedent(
        """
        import itertools, os, sys, threading
        import disttune

        sys.setswitchinterval(1e-5)
        going = True

        def write():
            n = 0
            while going:
                n += 1
                os.environ[f"VARIABLE_{n % 997}"] = "x" * (n % 63)
                os.environ.pop(f"VARIABLE_{(n * 7) % 997}", None)

        @disttune.autotune([{"b": 1}, {"b": 2}], key_fn=lambda n: n, warmup=0, repeat=1,
                           timer=itertools.count(1).__next__, name="f", version="1")
        def f(n, b):
            pass

        writers = [threading.Thread(target=write, daemon=True) for _ in range(2)]
        for writer in writers:
            writer.start()
        for n in range(100):
            f(n)
        going = False
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
