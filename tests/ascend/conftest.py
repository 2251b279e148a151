"""The contract library, loaded before torch; every test has a store of its own.

scripts/heavy/ascend.sh prepares the environment that these tests need; without it they are left
out.
"""

import ctypes
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
FOLDER = os.environ.get("NPU_CONTRACT_LIB", "")
READY = bool(FOLDER) and importlib.util.find_spec("torch_npu") is not None


def load() -> ctypes.CDLL:
    runtime = ctypes.CDLL(f"{FOLDER}/libascendcl.so", mode=ctypes.RTLD_GLOBAL)
    pointer = ctypes.c_void_p
    runtime.npu_contract_busy.argtypes = [pointer, ctypes.c_int64]
    runtime.npu_contract_hang.argtypes = [pointer]
    runtime.npu_contract_release.argtypes = [pointer]
    runtime.npu_contract_fail_next.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    runtime.npu_contract_report.restype = ctypes.c_char_p
    return runtime


RUNTIME = load() if READY else None
if READY:
    sys.path.insert(0, str(HERE))


def pytest_report_header() -> str | None:
    return None if READY else "tests/ascend: left out; run scripts/heavy/ascend.sh"


def pytest_ignore_collect(collection_path: pathlib.Path) -> bool | None:
    return None if READY or collection_path.suffix != ".py" else True


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("TRITON_DIST_AUTOTUNE_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "store"
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the locks of devices: no other tuning's
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_HOME", str(folder))
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_CONTEXT_LOGS", str(tmp_path / "context"))
    return folder


@pytest.fixture
def runtime() -> ctypes.CDLL:
    return RUNTIME


@pytest.fixture
def report():
    """The contract library's report so far."""
    return lambda: json.loads(RUNTIME.npu_contract_report())


@pytest.fixture
def fail_next():
    """Arm a call of the runtime to fail; disarmed when the test ends."""
    armed = []

    def arm(api, code, after=0):
        armed.append(api)
        RUNTIME.npu_contract_fail_next(api.encode(), code, after)

    yield arm
    for api in armed:
        RUNTIME.npu_contract_fail_next(api.encode(), 0, -1)


class Ended:
    """What a program said, and the runtime's report of it."""

    def __init__(self, process, said, report):
        self.process = process
        self.said = said
        self.report = report


@pytest.fixture
def run_program(tmp_path):
    """Run a program's text in a process of its own; it must succeed unless told otherwise."""

    def run(text, name="program", fails=False, **environment):
        program = tmp_path / f"{name}.py"
        program.write_text(text)
        report = tmp_path / f"{name}-report.json"
        process = subprocess.run(
            [sys.executable, str(HERE / "run_program.py"), str(program)],
            env={**os.environ, "NPU_CONTRACT_REPORT": str(report), **environment},
            cwd=tmp_path, capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        assert (process.returncode != 0) == fails, process.stdout + process.stderr
        said = [line for line in process.stdout.splitlines() if line.startswith("said ")]
        return Ended(
            process,
            json.loads(said[-1].removeprefix("said ")) if said else None,
            json.loads(report.read_text()) if report.exists() else None,
        )

    return run


@pytest.fixture(scope="session")
def native(tmp_path_factory):
    """Environment for triton-ascend's own driver and compiler, with host twins of the kernels."""
    root = tmp_path_factory.mktemp("toolkit")
    contract = HERE.parent / "ascend_contract" / "native"
    subprocess.run([contract / "make_root.sh", FOLDER, root], check=True)
    return {
        "ASCEND_HOME_PATH": str(root),
        "ASCEND_OPP_PATH": str(root / "opp"),
        "LD_LIBRARY_PATH": str(root / "lib64"),
        "NPU_CONTRACT_KERNELS": str(contract / "twins"),
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        "TRITON_CACHE_DIR": os.environ.get("TRITON_CACHE_DIR", str(root / "cache")),
        "TRITON_INTERPRET": "0",
    }


@pytest.fixture
def guide():
    """The text of an example of the guide, as it stands there."""
    return lambda name: (HERE / "guide" / f"{name}.txt").read_text()
