"""Every test has a store of its own, and an environment that says nothing."""

from __future__ import annotations

import os
import sys

import disttune
import pytest


class ScriptedClock:
    """Nanoseconds now; time passes only where a launcher says so."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def spend(self, nanoseconds: int) -> None:
        self.now += nanoseconds


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("TRITON_DIST_AUTOTUNE_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "store"
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_HOME", str(folder))
    # Tunings of other programs on this machine would be seen as contention.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return folder


@pytest.fixture(autouse=True)
def logs(store, tmp_path, monkeypatch):
    """Where contextual calls write."""
    folder = tmp_path / "context"
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_CONTEXT_LOGS", str(folder))
    return folder


@pytest.fixture(autouse=True)
def triton_as_it_was():
    def run_method():
        module = sys.modules.get("triton.runtime.autotuner")
        return module and module.Autotuner.run

    before = run_method()
    yield
    assert before in (None, run_method()), "Triton stayed patched"


@pytest.fixture
def clock() -> ScriptedClock:
    return ScriptedClock()


@pytest.fixture
def tune(clock):
    """Contextual tuning on a scripted clock, with few runs."""

    def make(n_warmup=1, n_repeat=2, **options):
        return disttune.contextual_autotune(
            n_warmup=n_warmup, n_repeat=n_repeat, timer=clock, cache="hot", **options
        )

    return make
