"""What a function reaches: the outer names that its code reads, and what lies behind them."""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import os
import sysconfig
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Uses", "bound_in", "functions_in", "inner_function", "installed", "is_state"]

_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"})
_WRITING = frozenset(
    ("append", "add", "update", "extend", "insert", "pop", "clear", "setdefault", "remove")
)
#: Methods of containers that leave them as they are.
_READING = frozenset((*dir(frozenset), *dir(tuple), "get", "items", "keys", "values", "all_kwargs"))


@functools.lru_cache(maxsize=1)
def _library_roots() -> tuple[str, ...]:
    roots = {sysconfig.get_paths().get(kind) for kind in ("stdlib", "platstdlib")}
    return tuple(os.path.realpath(root) + os.sep for root in roots if root)


def installed(filename: str) -> bool:
    """Whether a file belongs to an installed library rather than to the user's own tree."""
    if filename.startswith("<"):
        return filename.startswith("<frozen ")
    path = os.path.realpath(filename)
    if any(part in ("site-packages", "dist-packages") for part in path.split(os.sep)):
        return True
    return path.startswith(_library_roots())


def inner_function(value: Any) -> types.FunctionType | None:
    """Find the plain function below a kernel, a tuned launcher or a wrapping decorator."""
    for _ in range(16):
        if isinstance(value, types.FunctionType):
            return value
        if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
            return None
        if isinstance(value, types.MethodType):
            value = value.__func__
            continue
        if isinstance(value, functools.partial):
            value = value.func
            continue
        below = None
        for attribute in ("fn", "__wrapped__"):
            try:
                below = getattr(value, attribute, None)
            except Exception:  # an object of the user's may do anything here
                below = None
            if below is not None and below is not value:
                break
        if below is None or not (callable(below) or hasattr(type(below), "run")):
            return None
        value = below
    return None


def bound_in(value: Any) -> list[tuple[str, Any]]:
    """Return the arguments that partials around a function have bound, with their keywords."""
    bound: list[tuple[str, Any]] = []
    for _ in range(16):
        if not isinstance(value, functools.partial):
            break
        bound += [("", argument) for argument in value.args]
        bound += sorted(value.keywords.items())
        value = value.func
    return bound


def functions_in(value: Any, depth: int = 0) -> Iterator[types.FunctionType]:
    if depth > 8:
        return
    items: Iterable[Any]
    if isinstance(value, (list, tuple)):
        items = value
    elif isinstance(value, dict):
        items = value.values()
    else:
        inner = None if isinstance(value, type) else inner_function(value)
        if inner is not None:
            yield inner
        for _, argument in bound_in(value):
            yield from functions_in(argument, depth + 1)
        return
    for item in items:
        yield from functions_in(item, depth + 1)


def is_state(value: Any, written: bool, chains: set[tuple[str, ...]]) -> bool:
    """Whether a captured object is something that the program writes to while it runs.

    A list that a launcher appends to, a counter, a cache: their contents at the moment of the first
    call say nothing about who the function is, and would make every process a different one.
    """
    if written:
        return True
    methods = {chain[0] for chain in chains if chain}
    if isinstance(value, (list, dict, set, bytearray, deque)):
        return not methods <= _READING
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = any(len(chain) > 1 and chain[-1] in _WRITING for chain in chains)
        return inside or any(_method_writes(value, method) for method in methods)
    return False


def _method_writes(value: Any, method: str) -> bool:
    fn = inspect.getattr_static(type(value), method, None)
    if not isinstance(fn, types.FunctionType):
        return False
    for instruction in _instructions(fn.__code__):
        if instruction.opname in ("STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR"):
            return True
        if instruction.opname in _ATTRIBUTES and instruction.argval in _WRITING:
            return True
    return False


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)


class Uses:
    """The outer names of a function's code: read (with what is read off them), and assigned."""

    def __init__(self, code: types.CodeType) -> None:
        self.globals: dict[str, set[tuple[str, ...]]] = {}
        self.cells: dict[str, set[tuple[str, ...]]] = {}
        self.stored: set[str] = set()
        reads: list[tuple[dict[str, set[tuple[str, ...]]], str, list[str]]] = []
        chain: list[str] | None = None
        for instruction in _instructions(code):
            operation, name = instruction.opname, str(instruction.argval)
            if operation in ("CACHE", "EXTENDED_ARG", "NOT_TAKEN"):
                continue
            if operation in _ATTRIBUTES and chain is not None:
                chain.append(name)
                continue
            chain = None
            if operation in _GLOBALS:
                chain = []
                reads.append((self.globals, name, chain))
            elif operation.startswith("LOAD_") and "DEREF" in operation:
                chain = []
                reads.append((self.cells, name, chain))
            elif operation in _STORES:
                self.stored.add(name)
        for table, name, attributes in reads:
            table.setdefault(name, set()).add(tuple(attributes))
