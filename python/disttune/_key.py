"""Keys that are declared instead of computed: ``disttune.key("x.shape", "x.dtype", "n")``."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, NamedTuple

from . import _core

__all__ = ["Calls", "DeclaredKey", "KeyField", "KeyFields", "key"]

_FIELD = re.compile(r"[^.()]+(\.[^.()]+(\(\))?)*")


class KeyField(NamedTuple):
    """A parameter, and the steps from its argument to the value that counts.

    A step is an ``attribute`` or a ``method`` without arguments, with its name, a built-in
    ``function`` of one argument, with its name, or an ``item``, with its index.
    """

    parameter: str
    steps: tuple[tuple[str, Any], ...]

    def then(self, kind: str, what: Any) -> KeyField:
        return KeyField(self.parameter, (*self.steps, (kind, what)))


class Calls(NamedTuple):
    """The calls that a key function takes, and whether it returns a tuple of the fields."""

    required: int
    more_positional: bool
    more_keywords: bool
    gives_tuple: bool


class KeyFields(NamedTuple):
    """What compiled code reads a key from."""

    fields: list[KeyField]
    positional: tuple[str, ...]
    defaults: dict[str, Any]
    #: Of a key function; None: a declared key.
    calls: Calls | None = None


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

    def read(self) -> list[KeyField]:
        """Each field as what is read."""
        out = []
        for field in self.fields:
            parameter, *attributes = field.split(".")
            steps = [
                ("method", name.removesuffix("()")) if name.endswith("()") else ("attribute", name)
                for name in attributes
            ]
            out.append(KeyField(parameter, tuple(steps)))
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
