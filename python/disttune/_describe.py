"""Canonical descriptions of the objects that torch, NumPy and Triton put into keys and entries.

Nothing is imported for this: a type is known by its qualified name until an object of it is met, so
these libraries cost nothing where the caller does not use them. Enum members, dataclasses, named
tuples, NumPy scalars, torch devices and dtypes are described by the compiled part.
"""

from __future__ import annotations

import types
from typing import Any

from . import _core
from ._identity import digest_of

__all__ = ["parse", "register_all", "to_hashable"]


def register_all() -> None:
    """Register every description of this module; called once, when the package is imported."""
    for name in ("layout", "memory_format", "qscheme"):
        _core.register_description(f"torch.{name}", _by_text)
    _core.register_description("torch.Tensor", _refuse_tensor)
    _core.register_description("numpy.ndarray", _refuse_tensor)
    _core.register_description("numpy.dtype", _numpy_dtype)
    _core.register_description("triton.language.core.dtype", _triton_dtype)
    _core.register_description("triton.language.core.constexpr", _constexpr)
    _core.register_description("triton.runtime.autotuner.Config", _config)
    _core.set_function_describer(_function)


def _by_text(value: Any) -> Any:
    return _core.Value.named(str(value))


def _refuse_tensor(value: Any) -> Any:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(
        f"a {kind} of shape {tuple(value.shape)} and dtype {value.dtype} cannot be part "
        "of a key or an entry: use to_hashable(tensor), which gives its shape, strides and dtype"
    )


def _numpy_dtype(value: Any) -> Any:
    text = value.str if value.names is None else str(value.descr)
    return _core.Value.named("numpy.dtype", [("", text)])


def _triton_dtype(value: Any) -> Any:
    text = str(value)
    if text.isidentifier():
        return _core.Value.named(f"triton.language.{text}")
    return _core.Value.named("triton.language.type", [("", text)])


def _constexpr(value: Any) -> Any:
    return _core.Value.named("triton.language.constexpr", [("", value.value)])


def _config(value: Any) -> Any:
    """Describe a configuration with whatever attributes this Triton, or a fork of it, gives it.

    An attribute that is not set (``None``) does not count, so that a newer Triton's additions leave
    the identity of a configuration alone.
    """
    attributes = dict(vars(value))
    fields: list[tuple[str, Any]] = [("kwargs", dict(attributes.pop("kwargs", None) or {}))]
    for name in sorted(attributes):
        if not name.startswith("_") and attributes[name] is not None:
            fields.append((name, attributes[name]))
    return _core.Value.named("triton.Config", fields)


def _function(value: types.FunctionType) -> Any:
    """Describe a function in an entry (a configuration's ``pre_hook``) by who it is."""
    name, digest = digest_of(value)
    return _core.Value.named("function", [("", name), ("", digest)])


def parse(text: str) -> _core.Value:
    """Read a canonical text.

    A plain function, so that a `Value`, which is pickled as its text, can be read back by name.

    Parameters
    ----------
    text
        Exactly as ``str(value)`` gives it.

    Returns
    -------
    Value
        What the text says; `Value.python` makes an object of it.

    Raises
    ------
    TypeError
        The text is not canonical.
    """
    return _core.parse(text)


def to_hashable(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Return what usually decides a tensor's configuration: shape, strides and dtype.

    Parameters
    ----------
    tensor
        A torch tensor, or a NumPy array (whose strides are given in elements, as torch does).

    Returns
    -------
    tuple
        ``(tuple(shape), strides, dtype)``, for use in a key.
    """
    stride = getattr(tensor, "stride", None)
    if callable(stride):
        strides = tuple(int(step) for step in stride())
    else:
        strides = tuple(int(step) // (tensor.itemsize or 1) for step in tensor.strides)
    return tuple(int(extent) for extent in tensor.shape), strides, tensor.dtype
