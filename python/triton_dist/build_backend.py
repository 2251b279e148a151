"""Builds the distribution, unless that would put it over another ``triton_dist``."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import sysconfig
from typing import Any

from scikit_build_core import build as _build
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

_OURS = "disttune-triton-dist"


def find_original(folders: list[str]) -> str | None:
    """Say where a ``triton_dist`` that is not ours is installed; nothing where none is."""
    for folder in folders:
        package = pathlib.Path(folder) / "triton_dist"
        init = package / "__init__.py"
        if init.is_file():
            if _OURS not in init.read_text(encoding="utf-8", errors="replace"):
                return str(package)
        elif package.is_dir() and any(package.rglob("*.py")):
            return str(package)
    for distribution in importlib.metadata.distributions(path=folders):
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if name in ("triton-dist", "triton-distributed"):
            return f"{distribution.metadata['Name']} {distribution.version}"
    return None


def _refuse_over_original() -> None:
    # The interpreter's own folders, also while building in isolation: these are installed into.
    paths = sysconfig.get_paths()
    found = find_original(sorted({paths["purelib"], paths["platlib"]}))
    if found is not None:
        raise SystemExit(
            f"disttune-triton-dist cannot be installed: there is a triton_dist already ({found}), "
            "and it would be damaged. You do not need this package: disttune serves programs of "
            "Triton-distributed after `import disttune.takeover`, or with "
            "`python -m disttune.takeover program.py`."
        )


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel; SystemExit where another ``triton_dist`` is installed."""
    _refuse_over_original()
    return str(_build.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build for an editable installation; SystemExit where another one is installed."""
    _refuse_over_original()
    return str(_build.build_editable(wheel_directory, config_settings, metadata_directory))
