"""The documentation: programs marked ``python`` run as they stand, both languages show the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(p.name for p in (DOCS / "en").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text(encoding="utf-8"))


def programs(name: str) -> str:
    return "\n".join(code for kind, code in blocks(DOCS / "en" / name) if kind == "python")


@pytest.mark.parametrize("name", [n for n in PAGES if programs(n)])
def test_programs_run(name, tmp_path):
    if "import torch" in programs(name):
        pytest.importorskip("torch")
        pytest.importorskip("triton")
    program = tmp_path / "program.py"  # a file: the source of a function is part of who it is
    program.write_text(programs(name), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_show_the_same_code(name):
    def code(folder: str) -> list[str]:
        found = [c for kind, c in blocks(DOCS / folder / name) if kind != "text"]
        return [re.sub(r"\s*(#(?!include)|//|/\*).*", "", c) for c in found]

    assert code("en") == code("zh")
