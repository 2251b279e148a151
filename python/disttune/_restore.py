"""Putting arguments back before every run of a tuning, outside the timed part."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ._check import is_ndarray, is_tensor

__all__ = ["keep", "zero"]


def keep(value: Any, name: str) -> Callable[[], None]:
    """Remember a value's contents; the function returned puts them back.

    Tensors, arrays, lists, dicts, sets and byte arrays, also inside each other. What cannot change
    (numbers, strings, tuples of these, ``None``) needs nothing.

    Raises
    ------
    TypeError
        The value is of a kind that cannot be put back.
    """
    if is_tensor(value):
        copy = value.detach().clone()
        torch = sys.modules["torch"]

        def put_tensor() -> None:
            with torch.no_grad():
                value.copy_(copy)

        return put_tensor
    if is_ndarray(value):
        if not value.flags.writeable:  # nobody can have changed it
            return lambda: None
        array = value.copy()

        def put_array() -> None:
            value[...] = array

        return put_array
    if isinstance(value, (list, dict, set, bytearray)):
        return _keep_container(value, name)
    if isinstance(value, (tuple, frozenset)):
        inner = [keep(item, name) for item in value]
        return lambda: _call_all(inner)
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return lambda: None
    raise TypeError(
        f"disttune: restore={name!r}: a {type(value).__qualname__} cannot be put back; tensors, "
        "arrays and containers of them can"
    )


def _keep_container(value: Any, name: str) -> Callable[[], None]:
    items = list(value.values()) if isinstance(value, dict) else list(value)
    inner = [] if isinstance(value, bytearray) else [keep(item, name) for item in items]
    copy = value.copy()

    def put() -> None:
        if isinstance(value, (list, bytearray)):
            value[:] = copy
        else:
            value.clear()
            value.update(copy)
        _call_all(inner)

    return put


def _call_all(functions: list[Callable[[], None]]) -> None:
    for function in functions:
        function()


def zero(value: Any, name: str) -> None:
    """Set a tensor or an array, or those in a list, tuple or dict, to zero; ``None`` stays.

    Raises
    ------
    TypeError
        The value is nothing that can be set to zero.
    """
    if value is None:
        return
    if is_tensor(value):
        with sys.modules["torch"].no_grad():
            value.zero_()
    elif is_ndarray(value):
        value[...] = 0
    elif isinstance(value, dict):
        for item in value.values():
            zero(item, name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            zero(item, name)
    else:
        raise TypeError(
            f"disttune: reset={name!r}: a {type(value).__qualname__} cannot be set to zero; "
            "tensors and arrays can"
        )
