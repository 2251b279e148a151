"""What programs import from ``triton_dist.tune``: served by disttune-triton-dist and takeover."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from . import _core
from ._describe import to_hashable
from ._function import autotune

__all__ = [
    "AutoTuner",
    "autotune",
    "load_autotune_data",
    "pretty_triton_config_repr",
    "to_hashable",
]

#: The type of a tuned function.
AutoTuner = _core.Tuned

_lock = threading.Lock()
#: What ``triton.Config`` had, once for each thread that is inside.
_plain_reprs: list[Any] = []


def load_autotune_data(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a record, or a file of the original tool.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    dict
        ``config`` (a list of ``(milliseconds, entry)``, fastest first), ``deps``, ``key``, ``func``
        and ``timestamp``.

    Raises
    ------
    StoreError
        The file is neither.
    """
    return _core.load_original_form(os.fspath(path))


def _config_repr(config: Any) -> str:
    fields = [repr(config.kwargs)]
    for name, value in vars(config).items():
        if name != "kwargs" and value is not None:
            fields.append(f"{name}={value!r}")
    return f"Config({', '.join(fields)})"


@contextlib.contextmanager
def pretty_triton_config_repr() -> Iterator[None]:
    """Show ``triton.Config`` objects by what they hold, for as long as any thread is inside."""
    config = getattr(sys.modules.get("triton"), "Config", None)
    if config is None:
        yield
        return
    with _lock:
        _plain_reprs.append(config.__repr__ if not _plain_reprs else _plain_reprs[0])
        config.__repr__ = _config_repr
    try:
        yield
    finally:
        with _lock:
            plain = _plain_reprs.pop()
            if not _plain_reprs:
                config.__repr__ = plain
