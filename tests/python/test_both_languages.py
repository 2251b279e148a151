"""One store for both languages: with equal name and version, what one tuned serves the other.

The C++ half is ``both_languages/launchers.cpp``, built here against a finished build of the
library: ``DISTTUNE_BUILD`` names its folder, otherwise the newest of ``build/*`` serves.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import disttune
import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def finished_build() -> Path | None:
    """Return the library that the program is linked with."""
    named = os.environ.get("DISTTUNE_BUILD")
    found = [Path(named)] if named else list((ROOT / "build").glob("*"))
    libraries = [b / "libdisttune.a" for b in found if (b / "libdisttune.a").exists()]
    return max(libraries, key=lambda p: p.stat().st_mtime, default=None)


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        pytest.skip("there is no C++ compiler")
    library = finished_build()
    if library is None:
        pytest.skip("there is no built C++ library; build one, or name it with DISTTUNE_BUILD")
    out = tmp_path_factory.mktemp("both_languages") / "launchers"
    sanitizers = []
    cache = library.parent / "CMakeCache.txt"
    for line in cache.read_text(encoding="utf-8").splitlines() if cache.exists() else []:
        if line.startswith("CMAKE_CXX_FLAGS:"):
            sanitizers = [flag for flag in line.split("=", 1)[1].split() if "sanitize" in flag]
    command = [
        compiler, "-std=c++20", *sanitizers, f"-I{ROOT / 'include'}",
        str(HERE / "both_languages" / "launchers.cpp"), str(library),
        "-ldl", "-pthread", "-o", str(out),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


PLAIN = [{"BLOCK": b, "WARPS": w} for b in (256, 512) for w in (4, 8)]
MIXED = [
    {"VECTORISED": False, "SCALE": 1.0, "LAYOUT": "row", "STAGES": 1},
    {"VECTORISED": True, "SCALE": 0.5, "LAYOUT": "column", "STAGES": 2},
    {"VECTORISED": True, "SCALE": -0.0, "LAYOUT": 'quote " and é', "STAGES": -1},
    {"VECTORISED": False, "SCALE": 1e16, "LAYOUT": "", "STAGES": 3},
]
CASES = {
    "int": (PLAIN, 4096),
    "negative": (PLAIN, -(1 << 62)),
    "unsigned": (PLAIN, (1 << 64) - 1),
    "bool": (PLAIN, True),
    "string": (PLAIN, 'café "q" \n'),
    "float": (PLAIN, 0.1),
    "whole_float": (PLAIN, 1.0),
    "minus_zero": (PLAIN, -0.0),
    "not_a_number": (PLAIN, math.nan),
    "tuple": (PLAIN, (128, "float32")),
    "nested": (PLAIN, ((128, 64), "float32", True, (2.5,), ())),
    "list": (PLAIN, ([1, 2], 3)),
    "named": (PLAIN, (8, disttune.named("torch.float16"))),
    "struct": (PLAIN, {"BLOCK": 1, "WARPS": 2}),
    "mixed": (MIXED, 1),
}


class InPython:
    """The launcher of one case, with its runs counted."""

    def __init__(self, case: str, clock, fastest: int) -> None:
        space, key = CASES[case]
        self.runs: list[dict] = []

        def launch(n, **values):
            self.runs.append(values)
            clock.spend(10 if values == space[fastest] else 1000)
            return values

        self.tuned = disttune.autotune(
            space, lambda n: key, name=f"both/{case}", version="7", timer=clock
        )(launch)


def in_cpp(program: Path, case: str, fastest: dict) -> dict[str, str]:
    """Run the C++ launcher of one case; what it printed."""
    environment = {**os.environ, "FASTEST": text_of(fastest)}
    done = subprocess.run(
        [program, case], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def text_of(entry: dict) -> str:
    return disttune._core.canonical_text(entry, True)


def texts(tuned) -> dict[str, str]:
    """The same lines of Python's record, as its file has them."""
    file = tuned.explain(1).file
    fields = json.loads(Path(file).read_text(encoding="utf-8"))
    return {
        "file": file,
        "text": tuned.result(1).key_text,
        "identity": fields["function"]["identity"],
        **{name: fields[name] for name in ("key", "hardware", "policy")},
    }


@pytest.mark.parametrize("case", CASES)
def test_what_python_tuned_is_served_in_cpp(case, program, clock):
    python = InPython(case, clock, fastest=2)
    assert python.tuned(1) == CASES[case][0][2]
    assert len(python.runs) == 4 * 15 + 1
    # C++ would find another candidate fastest, if it tuned.
    said = in_cpp(program, case, CASES[case][0][1])
    assert said["cold"] == said["warm"] == "1"
    assert said["winner"] == text_of(CASES[case][0][2])
    assert {k: said[k] for k in texts(python.tuned)} == texts(python.tuned)


@pytest.mark.parametrize("case", CASES)
def test_what_cpp_tuned_is_served_in_python(case, program, clock):
    said = in_cpp(program, case, CASES[case][0][3])
    assert (said["cold"], said["warm"]) == (str(4 * 15 + 1), "1")
    python = InPython(case, clock, fastest=1)
    assert python.tuned(1) == CASES[case][0][3]
    assert len(python.runs) == 1
    assert {k: said[k] for k in texts(python.tuned)} == texts(python.tuned)
