"""disttune: tuning of distributed accelerator operators by measured time."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import _core, _describe, _messages, _software
from ._core import (
    CandidateRecord,
    CaptureError,
    Device,
    DeviceLost,
    Disagreement,
    DisttuneWarning,
    Error,
    Explanation,
    GroupTimeout,
    Measurement,
    NestedContext,
    NotTuned,
    NoValidConfig,
    PeerFailed,
    ProcessGroup,
    Record,
    StoreError,
    TuningRecord,
    Value,
    named,
    register_description,
    strategies,
)
from ._describe import parse, to_hashable
from ._function import autotune, private_copy
from ._groups import LOCAL, resolve_group, set_default_group
from ._key import key

_core.set_log(_messages.log)
_core.set_software_provider(_software.versions)
_describe.register_all()

_core.set_copier(private_copy)
_core.set_group_resolver(resolve_group)

__version__ = _core.__version__

if TYPE_CHECKING:
    from ._barrier import barrier
    from ._check import Check
    from ._contextual import contextual_autotune
    from ._measure import measure
    from ._triton_dist_tune import load_autotune_data
    from ._unify import unify

#: Names that are looked for when they are first used, so that an import stays small.
_LATER = {
    "Check": "_check",
    "barrier": "_barrier",
    "contextual_autotune": "_contextual",
    "load_autotune_data": "_triton_dist_tune",
    "measure": "_measure",
    "unify": "_unify",
}

__all__ = [
    "LOCAL",
    "CandidateRecord",
    "CaptureError",
    "Check",
    "Device",
    "DeviceLost",
    "Disagreement",
    "DisttuneWarning",
    "Error",
    "Explanation",
    "GroupTimeout",
    "Measurement",
    "NestedContext",
    "NoValidConfig",
    "NotTuned",
    "PeerFailed",
    "ProcessGroup",
    "Record",
    "StoreError",
    "TuningRecord",
    "Value",
    "autotune",
    "barrier",
    "contextual_autotune",
    "key",
    "load_autotune_data",
    "measure",
    "named",
    "parse",
    "register_description",
    "set_default_group",
    "strategies",
    "to_hashable",
    "unify",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
