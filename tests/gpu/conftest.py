"""Skips everything where there is no GPU; gives each test a store of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the locks of devices: no other tuning's
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_HOME", str(tmp_path / "store"))
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_CONTEXT_LOGS", str(tmp_path / "logs"))
    yield tmp_path / "store"
