"""What a key function reads, where reading its arguments is all that it does.

For compiled code, entering a Python function takes as long as reading a few attributes. A key
function such as ``lambda x, n: (tuple(x.shape), x.dtype, n)`` needs no entering: what it reads is
known from its bytecode, and read like a declared key.
"""

from __future__ import annotations

import dis
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from ._key import Calls, KeyField, KeyFields

__all__ = ["fields_of"]

#: What later versions' instructions do has not been tried.
_LAST_VERSION = (3, 13)

#: Functions that are the same wherever they are called from (``eval`` is not).
_FUNCTIONS = frozenset(
    {"abs", "bool", "float", "frozenset", "int", "len", "list", "max", "min", "repr", "set"}
    | {"sorted", "str", "sum", "tuple", "type"}
)


class _Function(NamedTuple):
    """The built-in function of this name."""

    name: str


class _Constant(NamedTuple):
    value: Any


class _Unknown(Exception):
    """The function does something else than to read."""


def fields_of(key_fn: Any) -> KeyFields | None:
    """Return what a key function reads; None where only calling it can tell.

    Known are functions whose body returns one field or a tuple of fields, each a parameter followed
    by attributes, methods without arguments, constant subscripts and built-in functions of one
    argument: ``x.shape[0]``, ``str(x.dtype)``, ``x.stride()``.
    """
    if not isinstance(key_fn, types.FunctionType) or sys.version_info[:2] > _LAST_VERSION:
        return None
    code = key_fn.__code__
    parameters = code.co_varnames[: code.co_argcount]
    defaults = key_fn.__defaults__ or ()
    if code.co_posonlyargcount or code.co_kwonlyargcount or len(defaults) > len(parameters):
        return None
    try:
        result = _Reading(key_fn).result()
    except _Unknown:
        return None
    required = len(parameters) - len(defaults)
    return KeyFields(
        fields=result if isinstance(result, list) else [result],
        positional=parameters,
        defaults=dict(zip(parameters[required:], defaults, strict=True)),
        calls=Calls(
            required=required,
            more_positional=bool(code.co_flags & inspect.CO_VARARGS),
            more_keywords=bool(code.co_flags & inspect.CO_VARKEYWORDS),
            gives_tuple=isinstance(result, list),
        ),
    )


class _Reading:
    """Follows a function's bytecode with what is read in place of values."""

    def __init__(self, key_fn: types.FunctionType) -> None:
        self._fn = key_fn
        self._stack: list[Any] = []

    def result(self) -> KeyField | list[KeyField]:
        for instruction in dis.get_instructions(self._fn):
            name = instruction.opname
            if name == "RETURN_VALUE":
                break
            if name in ("RESUME", "PRECALL"):  # no effect on values
                continue
            step = self._steps.get(name)
            if step is None:
                raise _Unknown
            step(self, instruction)
        else:
            raise _Unknown
        if len(self._stack) != 1 or not isinstance(self._stack[0], (KeyField, list)):
            raise _Unknown
        result: KeyField | list[KeyField] = self._stack[0]
        return result

    def _pop(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise _Unknown
        return self._stack.pop()

    def _load(self, instruction: dis.Instruction) -> None:
        code = self._fn.__code__
        both = isinstance(instruction.argval, tuple)  # two at once, since Python 3.13
        for name in instruction.argval if both else (instruction.argval,):
            if name not in code.co_varnames[: code.co_argcount]:
                raise _Unknown  # *args
            self._stack.append(KeyField(name, ()))

    def _load_constant(self, instruction: dis.Instruction) -> None:
        self._stack.append(_Constant(instruction.argval))

    def _load_global(self, instruction: dis.Instruction) -> None:
        name = instruction.argval
        if name in self._fn.__globals__ or name not in _FUNCTIONS:
            raise _Unknown
        self._stack.append(_Function(name))

    def _attribute(self, instruction: dis.Instruction) -> None:
        self._stack.append(self._pop(KeyField).then("attribute", instruction.argval))

    def _item(self, instruction: dis.Instruction) -> None:
        index = self._pop(_Constant)
        self._stack.append(self._pop(KeyField).then("item", index.value))

    def _call(self, instruction: dis.Instruction) -> None:
        if instruction.arg == 1:
            field = self._pop(KeyField)
            field = field.then("function", self._pop(_Function).name)
        else:
            field = self._pop(KeyField)
            if instruction.arg != 0 or not field.steps or field.steps[-1][0] != "attribute":
                raise _Unknown
            field = KeyField(field.parameter, field.steps[:-1]).then("method", field.steps[-1][1])
        self._stack.append(field)

    def _tuple(self, instruction: dis.Instruction) -> None:
        fields = [self._pop(KeyField) for _ in range(instruction.arg or 0)]
        self._stack.append(fields[::-1])

    _steps: ClassVar[dict[str, Callable[[_Reading, dis.Instruction], None]]] = {
        "LOAD_FAST": _load,
        "LOAD_FAST_LOAD_FAST": _load,
        "LOAD_CONST": _load_constant,
        "LOAD_GLOBAL": _load_global,
        "LOAD_ATTR": _attribute,
        "LOAD_METHOD": _attribute,
        "BINARY_SUBSCR": _item,
        "CALL": _call,
        "CALL_FUNCTION": _call,
        "CALL_METHOD": _call,
        "BUILD_TUPLE": _tuple,
    }
