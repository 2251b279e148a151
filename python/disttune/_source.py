"""Finding the text of a function: the definition itself, without decorators, dedented.

``inspect.getsource`` gives whole lines, decorators included, and one text for all lambdas of a
line. Here the definition is found in the parsed file by its first line, its name and its
parameters, and a lambda by the columns of its code, so that moving or decorating a function changes
nothing and two lambdas are two functions. A file may have been edited since it was imported: its
text counts only where it compiles to the very code that runs.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import dataclasses
import functools
import inspect
import linecache
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from ._reach import functions_in

#: Bits of a code's flags that future statements, or the shell that runs a cell, have set.
_FUTURE = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclasses.dataclass
class FunctionSource:
    """The definition of one function."""

    text: str
    node: _Definition

    @functools.cached_property
    def written(self) -> frozenset[str]:
        """Names through which something is assigned: ``x`` in ``x[0] = 1`` and ``x.n += 1``."""
        names = set()
        for node in ast.walk(self.node):
            if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(
                node.ctx, ast.Load
            ):
                root: ast.expr = node
                while isinstance(root, (ast.Subscript, ast.Attribute)):
                    root = root.value
                if isinstance(root, ast.Name):
                    names.add(root.id)
        return frozenset(names)


@dataclasses.dataclass
class _File:
    """A file as it is now."""

    text: str
    tree: ast.Module
    #: By first line.
    definitions: dict[int, list[_Definition]]
    #: All code that it compiles to, by the future statements that are in force.
    compiled: dict[int, dict[int, list[types.CodeType]]] = dataclasses.field(default_factory=dict)

    def has(self, code: types.CodeType) -> bool:
        """Whether this text is what the code was compiled from."""
        flags = code.co_flags & _FUTURE
        if flags not in self.compiled:
            found: dict[int, list[types.CodeType]] = {}
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                whole = compile(self.tree, code.co_filename, "exec", flags, dont_inherit=True)
                for inner in _codes(whole):
                    found.setdefault(inner.co_firstlineno, []).append(inner)
            self.compiled[flags] = found
        return any(
            _same(code, other) for other in self.compiled[flags].get(code.co_firstlineno, ())
        )


class SourceCache:
    """Parsed files, kept for the duration of one traversal."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def find(self, fn: types.FunctionType) -> FunctionSource | None:
        """Return the definition of ``fn``; nothing where it cannot be had for certain."""
        code = fn.__code__
        file = self._file(code.co_filename, fn)
        matching = [
            node
            for node in file.definitions.get(code.co_firstlineno, ())
            if _name(node) == code.co_name and _parameters(node) == _code_parameters(code)
        ]
        if len(matching) > 1:
            matching = [node for node in matching if _spans(node, code)]
        if len(matching) != 1 or not file.has(code):
            return None
        node = matching[0]
        segment = ast.get_source_segment(file.text, node)
        return None if segment is None else FunctionSource(_dedent(segment, node.col_offset), node)

    def class_text(self, cls: type) -> str | None:
        """Return the text of a class, or its methods' code where the text is another's."""
        try:
            filename = inspect.getsourcefile(cls)
            text = textwrap.dedent(inspect.getsource(cls))
        except (OSError, TypeError):
            return None
        members = [fn for value in vars(cls).values() for fn in functions_in(_below(value))]
        own = [fn for fn in members if fn.__code__.co_filename == filename]
        if all(self.find(fn) for fn in own):
            return text
        return "\n".join(f"{fn.__name__}: {code_text(fn.__code__)}" for fn in own)

    def _file(self, filename: str, fn: types.FunctionType) -> _File:
        if filename not in self._files:
            linecache.checkcache(filename)
            text = "".join(linecache.getlines(filename, fn.__globals__))
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError):
                tree = ast.Module(body=[], type_ignores=[])
            definitions: dict[int, list[_Definition]] = {}
            for node in ast.walk(tree):
                if isinstance(node, _Definition):
                    definitions.setdefault(_first_line(node), []).append(node)
            self._files[filename] = _File(text, tree, definitions)
        return self._files[filename]


def _below(member: Any) -> Any:
    """Return what is behind a member of a class."""
    if isinstance(member, property):
        return [member.fget, member.fset, member.fdel]
    return member.__func__ if isinstance(member, (staticmethod, classmethod)) else member


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _same(code: types.CodeType, other: types.CodeType) -> bool:
    """Whether two codes are equal, places included.

    Not by ``==``, which in some versions of Python sees what running a code makes of it.
    """
    return (
        code.co_name == other.co_name
        and code_text(code) == code_text(other)
        and _positions(code) == _positions(other)
    )


def _positions(code: types.CodeType) -> list[Any]:
    """Where the code's instructions stand: lines, and since Python 3.11 columns."""
    positions = getattr(code, "co_positions", code.co_lines)
    return list(positions())


def _name(node: _Definition) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _first_line(node: _Definition) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _parameters(node: _Definition) -> list[str]:
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    packed = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [a.arg for a in (*plain, *packed)]


def _code_parameters(code: types.CodeType) -> list[str]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return list(code.co_varnames[:count])


def _spans(node: _Definition, code: types.CodeType) -> bool:
    """Whether the code's columns (known since Python 3.11) are those of the definition's body."""
    positions = getattr(code, "co_positions", None)
    if positions is None or not isinstance(node, ast.Lambda):
        return False
    spans = []
    for line, end_line, column, end_column in positions():
        # The prologue has no extent of its own.
        if None not in (line, end_line, column, end_column) and column != end_column:
            spans.append(((line, column), (end_line, end_column)))
    if not spans:
        return False
    body = node.body
    return min(spans)[0] == (body.lineno, body.col_offset) and max(span[1] for span in spans) == (
        body.end_lineno,
        body.end_col_offset,
    )


def _dedent(segment: str, columns: int) -> str:
    first, *rest = segment.splitlines()
    lines = [first]
    for line in rest:
        margin = line[:columns]
        lines.append((line[columns:] if not margin.strip() else line.lstrip()).rstrip())
    return "\n".join(lines)


def code_text(code: types.CodeType) -> str:
    """Return what stands for the source where there is none: the code, without places and paths.

    It is the same in every process of one Python version, and differs between versions.
    """
    return "\n".join(
        [
            f"arguments {code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount}",
            f"flags {code.co_flags}",
            f"code {code.co_code.hex()}",
            f"handlers {getattr(code, 'co_exceptiontable', b'').hex()}",
            f"names {code.co_names}",
            f"variables {code.co_varnames} {code.co_freevars} {code.co_cellvars}",
            *(f"constant {_constant_text(constant)}" for constant in code.co_consts),
        ]
    )


def _constant_text(constant: object) -> str:
    if isinstance(constant, types.CodeType):
        return f"({constant.co_name}: {code_text(constant)})"
    if isinstance(constant, frozenset):
        return "{" + ", ".join(sorted(_constant_text(item) for item in constant)) + "}"
    if isinstance(constant, tuple):
        return "(" + ", ".join(_constant_text(item) for item in constant) + ")"
    return f"{type(constant).__name__} {constant!r}"
