"""Versions of the software that decides how fast a launcher is: a record's ``deps``."""

from __future__ import annotations

import contextlib
import functools
import platform
import sys
from typing import Any

__all__ = ["versions"]

#: Distributions whose version matters, by the module that shows that the caller uses them.
_PACKAGES = ("torch", "torch_npu", "triton", "triton_dist", "numpy", "mindspore")


def versions() -> dict[str, str]:
    """Return name to version of what the caller has imported.

    A package that is not imported is unknown, which is no difference to any version.
    """
    known = tuple(_version(sys.modules.get(name)) for name in _PACKAGES)
    found = dict(_imported(known, "torch.distributed" in sys.modules))
    variables = _compiler_variables()
    if variables is not None:
        found["triton.environment"] = " ".join(f"{k}={v}" for k, v in sorted(variables.items()))
    return found


def _version(module: Any) -> str | None:
    version = getattr(module, "__version__", None)
    return str(version) if isinstance(version, str) else None  # torch has a type of its own for it


@functools.lru_cache(maxsize=8)
def _imported(known: tuple[str | None, ...], distributed: bool) -> dict[str, str]:
    """Return what holds as long as no other package is imported: every cold call asks."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name, version in zip(_PACKAGES, known, strict=True):
        if version is not None:
            found[name] = version
    torch = sys.modules.get("torch")
    if torch is not None:
        for name in ("cuda", "hip", "cann", "xpu"):
            version = getattr(getattr(torch, "version", None), name, None)
            if isinstance(version, str):
                found[f"torch.{name}"] = str(version)
        if "torch.cuda" in found and distributed:
            with contextlib.suppress(Exception):  # asked for information only
                found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def _compiler_variables() -> dict[str, str] | None:
    """Return the set environment variables that change what Triton compiles, by its own list."""
    compiled = sys.modules.get("triton._C.libtriton")
    with contextlib.suppress(Exception):  # asked for information only
        return dict(compiled.get_cache_invalidating_env_vars())  # type: ignore[union-attr]
    return None
