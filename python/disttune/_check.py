"""Comparing a candidate's results with a reference's."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Check", "difference", "holds_truth", "is_ndarray", "is_tensor", "poison"]

#: Relative and absolute tolerance by dtype, those of ``torch.testing.assert_close``; a result that
#: was summed in another order is not wrong.
_TOLERANCES = {
    "float8": (2.5e-1, 2.5e-1),
    "bfloat16": (1.6e-2, 1e-5),
    "float16": (1e-3, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
#: What integer outputs are filled with before a run: no plausible result, and not zero.
_PATTERN = 0x5A


class Check:
    """How a candidate's result is checked, as ``autotune(check=…)``.

    Parameters
    ----------
    reference
        Called with the arguments of the call, without the tuned ones; returns the right result.
        For launchers that write into their arguments, ``outputs`` names these, and the reference
        fills the copies that it is given.
    compare
        ``compare(result, expected)``, instead of the comparison by dtype: returns ``None`` or
        ``True`` for equal, a text or ``False`` for wrong; or raises ``AssertionError``.
    outputs
        Names of arguments that the launcher writes. They are poisoned before each checked run, so
        that a candidate that writes a part of its output is found out.
    """

    def __init__(
        self,
        reference: Callable[..., Any],
        *,
        compare: Callable[[Any, Any], Any] | None = None,
        outputs: Sequence[str] = (),
    ) -> None:
        if not callable(reference):
            raise TypeError(f"disttune: Check(reference): {reference!r} is not callable")
        if compare is not None and not callable(compare):
            raise TypeError(f"disttune: Check(compare=…): {compare!r} is not callable")
        if isinstance(outputs, str) or not all(isinstance(name, str) for name in outputs):
            raise TypeError(f"disttune: Check(outputs=…) is a list of names, not {outputs!r}")
        self.reference = reference
        self.compare = compare
        self.outputs = tuple(outputs)

    def __repr__(self) -> str:
        name = getattr(self.reference, "__qualname__", repr(self.reference))
        return f"Check({name}, outputs={list(self.outputs)})"

    def verdict(self, result: Any, expected: Any) -> str | None:
        """Say what is wrong with a result; nothing where it is right."""
        if self.compare is None:
            return difference(result, expected)
        try:
            said = self.compare(result, expected)
        except AssertionError as error:
            return str(error).strip() or "the comparison failed"
        if hasattr(said, "dtype"):  # numpy.bool_, a tensor of one truth value
            said = bool(said)
        if said is None or said is True:
            return None
        return "the comparison said no" if said is False else str(said)


def difference(result: Any, expected: Any, where: str = "result") -> str | None:
    """Say where and by how much two results differ.

    Tensors and arrays are equal within the tolerance of the less precise dtype of the two, with
    equal shapes; containers of the same kind by their items; everything else by ``==``. NaN equals
    NaN.
    """
    if _is_array(expected) or _is_array(result):
        return _array_difference(result, expected, where)
    if isinstance(expected, Mapping) and isinstance(result, Mapping):
        if result.keys() != expected.keys():
            return f"{where} has the keys {list(result)}, not {list(expected)}"
        pairs = [(f"{where}[{key!r}]", result[key], expected[key]) for key in expected]
        return _first(difference(a, b, place) for place, a, b in pairs)
    for kind, other in ((list, tuple), (tuple, list)):
        if isinstance(expected, kind) and isinstance(result, other):
            return f"{where} is a {other.__name__}, not a {kind.__name__}"
    if isinstance(expected, (list, tuple)) and isinstance(result, (list, tuple)):
        if len(result) != len(expected):
            return f"{where} has {len(result)} items, not {len(expected)}"
        both = enumerate(zip(result, expected, strict=True))
        return _first(difference(a, b, f"{where}[{i}]") for i, (a, b) in both)
    if _is_nan(expected) and _is_nan(result):
        return None
    try:
        equal = bool(result == expected)
    except Exception as error:
        return f"{where} cannot be compared: {type(error).__name__}: {error}"
    return None if equal else f"{where} is {_shown(result)}, not {_shown(expected)}"


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, complex)) and value != value  # noqa: PLR0124


def _first(found: Any) -> str | None:
    return next((text for text in found if text is not None), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a torch tensor; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "Tensor") and isinstance(value, torch.Tensor)


def is_ndarray(value: Any) -> bool:
    """Whether ``value`` is a NumPy array or scalar; NumPy is not imported for it."""
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None
        and hasattr(numpy, "ndarray")
        and isinstance(value, (numpy.ndarray, numpy.generic))
    )


def _is_array(value: Any) -> bool:
    return is_tensor(value) or is_ndarray(value)


def _dtype_name(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.").lstrip("<>=")


def _tolerance(*dtypes: str) -> tuple[float, float]:
    found = (0.0, 0.0)
    for name in dtypes:
        key = "float8" if name.startswith("float8") else name
        rtol, atol = _TOLERANCES.get(key, (0.0, 0.0))
        found = (max(found[0], rtol), max(found[1], atol))
    return found


def _array_difference(result: Any, expected: Any, where: str) -> str | None:
    if not (_is_array(result) and _is_array(expected)):
        return f"{where} is a {type(result).__name__}, not a {type(expected).__name__}"
    if tuple(result.shape) != tuple(expected.shape):
        return f"{where} has shape {tuple(result.shape)}, not {tuple(expected.shape)}"
    rtol, atol = _tolerance(_dtype_name(result), _dtype_name(expected))
    if is_tensor(result) and is_tensor(expected):
        if result.device != expected.device:
            result = result.to(expected.device)
        return _tensor_difference(result, expected, where, rtol, atol)
    return _ndarray_difference(result, expected, where, rtol, atol)


def _tensor_difference(
    result: Any, expected: Any, where: str, rtol: float, atol: float
) -> str | None:
    torch = sys.modules["torch"]
    result, expected = result.detach(), expected.detach()
    if rtol == atol == 0:
        result = result.to(expected.dtype)
        wrong = result != expected
        distance = (result.to(torch.float64) - expected.to(torch.float64)).abs()
    else:
        wide = torch.complex128 if expected.is_complex() else torch.float64
        if expected.device.type in ("npu", "mps", "xpu"):
            wide = torch.complex64 if expected.is_complex() else torch.float32
        result, expected = result.to(wide), expected.to(wide)
        wrong = ~torch.isclose(result, expected, rtol=rtol, atol=atol, equal_nan=True)
        distance = (result - expected).abs()
    count = int(wrong.sum())
    if count == 0:
        return None
    distance = torch.where(wrong, distance.nan_to_num(nan=math.inf), torch.zeros_like(distance))
    at = int(distance.reshape(-1).argmax())
    index = tuple(int(i) for i in _unravel(at, tuple(result.shape)))
    values = result[index], expected[index]
    return _report(where, (count, result.numel()), index, values, (rtol, atol))


def _ndarray_difference(
    result: Any, expected: Any, where: str, rtol: float, atol: float
) -> str | None:
    numpy = sys.modules["numpy"]
    result, expected = (
        value.detach().cpu().numpy() if is_tensor(value) else value for value in (result, expected)
    )
    if rtol == atol == 0:
        wrong = result != expected
    else:
        wrong = ~numpy.isclose(result, expected, rtol=rtol, atol=atol, equal_nan=True)
    count = int(numpy.count_nonzero(wrong))
    if count == 0:
        return None
    try:
        distance = numpy.abs(result.astype(complex) - expected.astype(complex))
        distance = numpy.where(wrong, numpy.nan_to_num(distance, nan=math.inf), -1.0)
        at = int(distance.argmax())
    except (TypeError, ValueError):
        at = int(wrong.reshape(-1).argmax())
    index = tuple(int(i) for i in _unravel(at, tuple(result.shape)))
    values = result[index], expected[index]
    return _report(where, (count, result.size), index, values, (rtol, atol))


def _unravel(at: int, shape: tuple[int, ...]) -> list[int]:
    index = []
    for extent in reversed(shape):
        index.append(at % extent)
        at //= extent
    return index[::-1]


def _report(
    where: str,
    counts: tuple[int, int],
    index: tuple[int, ...],
    values: tuple[Any, Any],
    tolerance: tuple[float, float],
) -> str:
    place = f"{where}[{', '.join(map(str, index))}]" if index else where
    found, wanted = (v.item() if hasattr(v, "item") else v for v in values)
    return (
        f"{counts[0]} of {counts[1]} elements of {where} differ; the largest difference is at "
        f"{place}: {found!r} instead of {wanted!r} "
        f"(tolerances: relative {tolerance[0]:g}, absolute {tolerance[1]:g})"
    )


def holds_truth(value: Any) -> bool:
    """Whether there is a tensor or an array of truth values in a value that `poison` reaches."""
    if isinstance(value, Mapping):
        return any(map(holds_truth, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(holds_truth, value))
    return (is_tensor(value) or is_ndarray(value)) and _dtype_name(value) == "bool"


def poison(value: Any, expected: Any = None) -> None:
    """Fill an output with what no candidate writes: NaN, or a pattern for integers.

    There is no third truth value: these become what is not ``expected``, or, where nothing of this
    shape is, not what they were. Works on tensors and arrays, and on those inside lists, tuples and
    dicts. Other values are left as they are.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            poison(item, expected.get(name) if isinstance(expected, Mapping) else None)
    elif isinstance(value, (list, tuple)):
        alike = isinstance(expected, (list, tuple)) and len(expected) == len(value)
        for item, wanted in zip(value, expected if alike else [None] * len(value), strict=True):
            poison(item, wanted)
    elif is_tensor(value):
        torch = sys.modules["torch"]
        with torch.no_grad():
            if value.is_floating_point() or value.is_complex():
                value.fill_(math.nan)
            elif value.dtype == torch.bool:
                value.copy_(torch.as_tensor(_truth(value, expected)).logical_not())
            else:
                value.fill_(_PATTERN)
    elif is_ndarray(value):
        if not value.flags.writeable:
            return
        if value.dtype.kind in "fc":
            value.fill(math.nan)
        elif value.dtype.kind in "iu":
            value.fill(_PATTERN)
        elif value.dtype.kind == "b":
            truth = _truth(value, expected)
            value[...] = ~(truth.detach().cpu().numpy() if is_tensor(truth) else truth)


def _truth(value: Any, expected: Any) -> Any:
    """Return what is expected of truth values, or else what they are."""
    fits = (
        _is_array(expected)
        and _dtype_name(expected) == "bool"
        and tuple(expected.shape) == tuple(value.shape)
    )
    return expected if fits else value
