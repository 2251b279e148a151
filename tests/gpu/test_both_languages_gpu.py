"""A store filled by a C++ program on the GPU serves a Python launcher."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import disttune  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent


def program() -> Path | None:
    """Return the built example of a CUDA launcher, the newest where there are several."""
    found = [p for p in ROOT.glob("build*/**/examples/cpp/transpose_cuda") if os.access(p, os.X_OK)]
    return max(found, key=lambda p: p.stat().st_mtime, default=None)


@pytest.mark.skipif(program() is None, reason="examples/cpp/transpose_cuda is not built")
def test_a_record_of_a_cuda_launcher_in_cpp_is_served_in_python(store: Path) -> None:
    done = subprocess.run(
        [str(program())], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tuned in this process" in done.stdout
    launched = []

    @disttune.autotune(
        [{"TILE": t, "LINES": n, "PAD": p} for t in (16, 32) for n in (16, 8, 4) for p in (0, 1)],
        lambda x: (*x.shape, "float32"),
        name="example_transpose",
        version="1",
        check=lambda x: x.t(),
    )
    def transpose(x: Any, TILE: int, LINES: int, PAD: int) -> Any:
        launched.append((TILE, LINES, PAD))
        return x.t().contiguous()

    x = torch.randn(4096, 3072, device="cuda")
    assert transpose.explain(x).source == "store", str(transpose.explain(x))
    assert torch.equal(transpose(x), x.t())
    record = transpose.result(x)
    assert len(launched) == 1
    assert record.tunings[0].gate == "stream_wait"
    assert all(c.status == "ok" for c in record.tunings[0].candidates)
