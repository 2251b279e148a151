"""The parameters of a function that is decorated, and whether entries and keys fit them."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ._key import DeclaredKey, KeyField, KeyFields
from ._key_function import fields_of
from ._options import CALL_KEYWORDS
from ._signature import by_position, own_signature, shown_signature, tuned_below

__all__ = ["Parameters"]

_KINDS = inspect.Parameter


class Parameters:
    """What is known of the parameters of a function."""

    def __init__(self, fn: Any, name: str | None, entries: list[dict[str, Any]]) -> None:
        #: What entries and calls are held against.
        self.signature = own_signature(fn)
        #: Names that an autotune around the same launcher sets below this one.
        self.below = tuned_below(fn)
        inner = fn.func if isinstance(fn, functools.partial) else fn
        self.name = name or getattr(inner, "__name__", None) or type(inner).__name__
        shown = shown_signature(fn)
        parameters = list(shown.parameters.values()) if shown else []
        stars = {_KINDS.VAR_POSITIONAL: "*", _KINDS.VAR_KEYWORD: "**"}
        self.packed = {p.name: stars[p.kind] + p.name for p in parameters if p.kind in stars}
        self.named = [p.name for p in parameters if p.name not in self.packed]
        #: What entries set, here and below.
        self.tuned = {name for entry in entries for name in entry} | self.below
        self.takes_any = shown is None or any(p.kind is _KINDS.VAR_KEYWORD for p in parameters)
        own = list(self.signature.parameters.values()) if self.signature else []
        self.defaults = {
            p.name: p.default for p in (*parameters, *own) if p.default is not _KINDS.empty
        }
        self.positional = self._positions(by_position(shown), {n for e in entries for n in e})
        for keyword in CALL_KEYWORDS:
            if keyword in self.named:
                raise ValueError(
                    f"disttune: {self.name}() has a parameter named {keyword!r}, which would never "
                    "reach it: calls of a tuned function take that keyword themselves; rename it"
                )

    def _positions(self, shown: tuple[str, ...], tuned: set[str]) -> tuple[str, ...]:
        """Leave out tuned parameters whose position is that of a wrapped function's, and the rest.

        What is given there may not be what the wrapper hands on as that parameter.
        """
        certain = len(by_position(self.signature))
        for position, name in enumerate(shown):
            if position >= certain and name in tuned:
                return shown[:position]
        return shown

    def check_entries(self, entries: list[dict[str, Any]]) -> None:
        for index, entry in enumerate(entries):
            for name in entry:
                self._check_name(index, name)

    def _check_name(self, index: int, name: str) -> None:
        where = f"disttune: config_space[{index}]"
        if name in CALL_KEYWORDS:
            raise ValueError(f"{where} sets {name!r}, which is a keyword of tuned calls")
        if name in self.below:
            raise ValueError(
                f"{where} sets {name!r}, which another autotune of {self.name}() sets below this "
                "one; let one of them tune it"
            )
        if self.signature is None:
            return
        own = self.signature.parameters
        if name in own and own[name].kind is _KINDS.POSITIONAL_ONLY:
            raise ValueError(
                f"{where} sets {name!r}, which {self.name}() takes by position only; tuned values "
                "are passed by keyword"
            )
        if any(p.kind is _KINDS.VAR_KEYWORD for p in own.values()):
            return
        named = [p.name for p in own.values() if p.kind is not _KINDS.VAR_POSITIONAL]
        if name not in named:
            raise ValueError(
                f"{where} sets {name!r}, but {self.name}() has no such parameter; it has "
                f"{', '.join(named) or 'none'}"
            )

    def key_fields(self, key_fn: Any) -> KeyFields | None:
        """Return what the key is read from; None where a key function is to be called."""
        if not isinstance(key_fn, DeclaredKey):
            return fields_of(key_fn)
        fields = key_fn.read()
        self._check_key(key_fn, fields)
        return KeyFields(fields, self.positional, self.defaults)

    def _check_key(self, declared: DeclaredKey, fields: list[KeyField]) -> None:
        for parameter, _ in fields:
            if parameter in self.tuned:
                raise ValueError(
                    f"disttune: {declared!r} names {parameter!r}, which is tuned: the key decides "
                    "its value"
                )
            if parameter in self.packed:
                raise ValueError(
                    f"disttune: {declared!r} names {self.packed[parameter]}, whose arguments have "
                    "no place in a declared key: use a key_fn that takes them"
                )
            if parameter not in self.named and not self.takes_any:
                raise ValueError(
                    f"disttune: {declared!r} names {parameter!r}, but {self.name}() has no such "
                    f"parameter; it has {', '.join(self.named) or 'none'}"
                )
