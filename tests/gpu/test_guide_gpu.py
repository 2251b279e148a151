"""The guide's two programs on a real GPU: nothing but the device's name is another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
GUIDE = TESTS / "ascend" / "guide"
PYTHON = TESTS.parent / "python"


@pytest.mark.parametrize("program", ["function_level.txt", "contextual.txt"])
def test_the_guide_runs_on_cuda(program: str, store: Path, tmp_path: Path) -> None:
    text = (GUIDE / program).read_text(encoding="utf-8").replace('device="npu"', 'device="cuda"')
    assert "npu" not in text
    script = tmp_path / "guide.py"
    script.write_text(text, encoding="utf-8")
    path = os.pathsep.join([str(PYTHON / "triton_dist"), os.environ.get("PYTHONPATH", "")])
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    if program == "function_level.txt":
        (record,) = store.rglob("*.json")
        tuning = json.loads(record.read_text(encoding="utf-8"))["tunings"][0]
        assert tuning["how"]["gate"] == "stream_wait"
