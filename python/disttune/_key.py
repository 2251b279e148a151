"""Keys that are declared instead of computed: ``disttune.key("x.shape", "x.dtype", "n")``."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from . import _core

__all__ = ["DeclaredKey", "key"]

_FIELD = re.compile(r"[^.()]+(\.[^.()]+(\(\))?)*")


def _is_field(field: str) -> bool:
    names = field.replace("()", "").split(".")
    return _FIELD.fullmatch(field) is not None and all(map(str.isidentifier, names))


class DeclaredKey:
    """A key made of parameters and their attributes, read by compiled code.

    Parameters
    ----------
    fields
        Each a parameter's name, followed by attributes or by methods without arguments:
        ``"n"``, ``"x.shape"``, ``"x.stride()"``.
    """

    def __init__(self, fields: tuple[str, ...]) -> None:
        for field in fields:
            if not isinstance(field, str):
                raise TypeError(f"disttune: key(): fields are strings, not {field!r}")
            if not _is_field(field):
                raise ValueError(
                    f"disttune: key(): {field!r} is not a parameter followed by attributes, such "
                    'as "n", "x.shape" or "x.stride()"'
                )
        # As Python does with the names in a program.
        self.fields = tuple(unicodedata.normalize("NFKC", field) for field in fields)

    def __repr__(self) -> str:
        return f"disttune.key({', '.join(map(repr, self.fields))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeclaredKey) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def steps(self) -> list[tuple[str, tuple[tuple[str, bool], ...]]]:
        """Each field's parameter, and its attributes with whether they are called."""
        out = []
        for field in self.fields:
            parameter, *attributes = field.split(".")
            steps = tuple((a.removesuffix("()"), a.endswith("()")) for a in attributes)
            out.append((parameter, steps))
        return out


def _describe(declared: DeclaredKey) -> Any:
    return _core.Value.named("disttune.key", [("", field) for field in declared.fields])


_core.register_description(DeclaredKey, _describe)


def key(*fields: str) -> DeclaredKey:
    """Declare a key: a tuple of these fields, computed without running Python code of ours.

    Parameters
    ----------
    *fields
        Names of parameters, followed by attributes or by methods without arguments:
        ``disttune.key("x.shape", "x.dtype", "n")``. A parameter counts however it is passed, also
        by its default.

    Returns
    -------
    DeclaredKey
        For ``autotune(key_fn=…)``.

    Raises
    ------
    TypeError, ValueError
        A field is no string, or not of this form. A parameter that the function does not have is
        reported when the function is decorated.
    """
    return DeclaredKey(fields)
