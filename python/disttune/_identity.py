"""Who a Python function is: the parts by which a stored choice is recognised as its own.

A launcher is known by its qualified name, its source without decorators, the source of its key
function, what it captured, its defaults, and the functions, kernels and constants that it reaches.
Nothing here depends on line numbers, addresses, hash seeds or the order of a set, so that the same
program finds its records again in every process.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import os
import sys
import types
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from . import _core
from ._reach import Uses, bound_in, functions_in, inner_function, installed, is_state
from ._signature import tuned_below
from ._source import FunctionSource, SourceCache, code_text

__all__ = ["digest_of", "identity", "qualified_name"]

#: A part longer than this is kept as its digest; a shorter one stays readable in messages.
_LONGEST_TEXT = 160
#: Parts beyond this number are folded into one, so that a record stays small.
_MOST_PARTS = 96
#: Packages whose functions are software versions (``deps``), not part of a user's function.
_OUTSIDE = frozenset({"disttune", "torch", "torch_npu", "triton", "numpy", "nanobind"})


def identity(
    fn: Any,
    key_fn: Any = None,
    version: str | None = None,
    name: str | None = None,
    ignore: Iterable[str] = (),
) -> dict[str, str]:
    """Describe who ``fn`` is, part by part.

    Parameters
    ----------
    fn
        The launcher: a function, a method, a ``functools.partial``, a Triton kernel or any other
        callable object.
    key_fn
        The launcher's key function, if it is one of Python.
    version, name
        With both given the identity is exactly these two, so that a launcher written in C++ under
        the same name and version shares the record. One alone is added to the other parts.
    ignore
        Captured names that do not count.

    Returns
    -------
    dict
        Part to text. Short values are kept readable, long ones as ``sha256:…``.
    """
    if name is not None and version is not None:
        return {"name": name, "version": version}
    parts: dict[str, str] = {}
    if name is not None:
        parts["name"] = name
    if version is not None:
        parts["version"] = version
    parts.update(_Walk(fn, key_fn, frozenset(ignore)).parts())
    return _bounded(parts)


def digest_of(fn: Any) -> tuple[str, str]:
    """Return the qualified name of ``fn`` and a digest of its whole identity."""
    parts = _Walk(fn, None, frozenset()).parts()
    text = "\n".join(f"{part}={parts[part]}" for part in sorted(parts))
    return parts["function"], _sha256(text)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else "sha256:" + _sha256(text)


def _bounded(parts: dict[str, str]) -> dict[str, str]:
    if len(parts) <= _MOST_PARTS:
        return parts
    names = list(parts)
    kept = {part: parts[part] for part in names[: _MOST_PARTS - 1]}
    rest = names[_MOST_PARTS - 1 :]
    text = "\n".join(f"{part}={parts[part]}" for part in rest)
    kept[f"uses {len(rest)} more"] = "sha256:" + _sha256(text)
    return kept


def _main_name() -> str:
    """Name the main module alike in the program, in its spawned workers and when imported."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name and spec.name != "disttune.takeover":
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else "__main__"


def _module_name(holder: Any) -> str:
    module = getattr(holder, "__module__", None)
    if module in ("__main__", "__mp_main__"):
        return _main_name()
    return module if isinstance(module, str) else ""


def qualified_name(holder: Any) -> str:
    qualname = getattr(holder, "__qualname__", None) or getattr(holder, "__name__", None)
    if not isinstance(qualname, str):
        return _type_name(holder)
    module = _module_name(holder)
    return f"{module}.{qualname}" if module else qualname


def _type_name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


@dataclasses.dataclass
class _Captured:
    """A name that a function takes from outside itself."""

    name: str
    value: Any
    closure: bool
    #: Where the name lives: two functions that share a variable share its place.
    place: tuple[int, str]
    constant: str = ""


@dataclasses.dataclass
class _Reached:
    """A function of the walk, under the label that its parts carry."""

    label: str
    fn: types.FunctionType
    source: FunctionSource | None
    captured: list[_Captured] = dataclasses.field(default_factory=list)


class _Walk:
    """One traversal from a launcher to everything that it depends on."""

    def __init__(self, fn: Any, key_fn: Any, ignore: frozenset[str]) -> None:
        self._fn = fn
        self._key_fn = key_fn
        self._ignore = ignore
        self._sources = SourceCache()
        inner = inner_function(fn)
        self._package = _module_name(inner if inner is not None else fn).split(".")[0]
        self._reached: dict[int, _Reached] = {}
        self._labels: dict[str, int] = {}
        self._state: set[tuple[int, str]] = set()
        self._queue: deque[_Reached] = deque()
        self._extra: dict[str, str] = {}
        #: What was walked stays alive until the walk ends, so that no id is used twice.
        self._alive: list[Any] = []

    def parts(self) -> dict[str, str]:
        out = {"function": qualified_name(self._fn)}
        self._root(self._fn, "")
        if self._key_fn is not None:
            self._root(self._key_fn, "key_fn")
        while self._queue:
            self._explore(self._queue.popleft())
        rendered: dict[str, str] = {}
        for reached in list(self._reached.values()):
            self._render(reached, rendered)
        out.update(self._extra)
        out.update(rendered)
        return out

    # -- roots ---------------------------------------------------------------------------------

    def _root(self, fn: Any, label: str) -> None:
        prefix = f"{label} " if label else ""
        if isinstance(fn, functools.partial):
            for index, value in enumerate(fn.args):
                self._extra[f"{prefix}argument {index}"] = self._value_text(value)
            for keyword in sorted(fn.keywords):
                self._extra[f"{prefix}argument {keyword}"] = self._value_text(fn.keywords[keyword])
            self._root(fn.func, label)
            return
        if isinstance(fn, types.MethodType):
            self._extra[f"{prefix}self"] = self._value_text(fn.__self__)
            self._root(fn.__func__, label)
            return
        below = tuned_below(fn)
        if below:  # the function of both tunings is the same
            self._extra[f"{prefix}tuned below"] = ", ".join(sorted(below))
        inner = inner_function(fn)
        if inner is not None:
            self._enqueue(inner, label)
            self._note_kernel(fn, prefix)
            return
        call = inspect.getattr_static(type(fn), "__call__", None)
        if isinstance(fn, type):
            text = self._sources.class_text(fn)
            source = "unknown" if text is None else "sha256:" + _sha256(text)
            self._extra[f"{prefix}source"] = source
        elif isinstance(call, types.FunctionType):
            self._extra[f"{prefix}self"] = self._value_text(fn)
            self._enqueue(call, label)
        elif label:
            # A declarative key, or a builtin: what it says of itself, never its address.
            text = _text_of(fn)
            self._extra[label] = _short(text) if text is not None else qualified_name(fn)

    def _note_kernel(self, kernel: Any, prefix: str) -> None:
        """Heuristics fill in kernel arguments by functions of their own."""
        for _ in range(16):
            values = getattr(kernel, "values", None)
            if isinstance(values, Mapping):
                for name in sorted(str(key) for key in values):
                    heuristic = values.get(name)
                    if isinstance(heuristic, types.FunctionType):
                        self._enqueue(heuristic, None)
                        self._extra[f"{prefix}heuristic {name}"] = self._label_of(heuristic)
                        continue
                    for inner in functions_in(heuristic):
                        if self._in_scope(inner):
                            self._enqueue(inner, None)
                    self._extra[f"{prefix}heuristic {name}"] = self._value_text(heuristic)
            below = getattr(kernel, "fn", None)
            if below is None or isinstance(kernel, types.FunctionType):
                return
            kernel = below

    # -- walking -------------------------------------------------------------------------------

    def _enqueue(self, fn: types.FunctionType, label: str | None) -> None:
        if id(fn) in self._reached:
            return
        self._alive.append(fn)
        if label is None:
            base = f"uses {qualified_name(fn)}"
            seen = self._labels.get(base, 0) + 1
            self._labels[base] = seen
            label = base if seen == 1 else f"{base} #{seen}"
        reached = _Reached(label, fn, self._sources.find(fn))
        self._reached[id(fn)] = reached
        self._queue.append(reached)

    def _label_of(self, fn: types.FunctionType) -> str:
        label = self._reached[id(fn)].label
        return label.removeprefix("uses ") if label else qualified_name(fn)

    def _explore(self, reached: _Reached) -> None:
        fn = reached.fn
        uses = Uses(fn.__code__)
        written = reached.source.written if reached.source is not None else frozenset()
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            self._take(reached, _Captured(name, value, True, (id(cell), "")), uses.cells, written)
            if name in uses.stored:
                self._state.add((id(cell), ""))
        module = _module_name_of_globals(fn)
        for name in sorted(uses.globals):
            if name not in fn.__globals__ or _dunder(name):
                continue
            place = (id(fn.__globals__), name)
            captured = _Captured(name, fn.__globals__[name], False, place, f"{module}.{name}")
            self._take(reached, captured, uses.globals, written)
            if name in uses.stored:
                self._state.add(place)
        for value in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            for item in functions_in(value):
                if self._in_scope(item):
                    self._enqueue(item, None)

    def _take(
        self,
        reached: _Reached,
        captured: _Captured,
        chains: dict[str, set[tuple[str, ...]]],
        written: frozenset[str],
    ) -> None:
        name = captured.name
        if name in self._ignore:
            return
        read = chains.get(name, set())
        if isinstance(captured.value, types.ModuleType):
            self._through_module(reached, captured.value, read)
            return
        if is_state(captured.value, name in written, read):
            self._state.add(captured.place)
        self._capture(reached, captured)

    def _through_module(
        self, reached: _Reached, module: types.ModuleType, chains: set[tuple[str, ...]]
    ) -> None:
        for chain in sorted(chains):
            holder: Any = module
            for attribute in chain:
                if not isinstance(holder, types.ModuleType) or _dunder(attribute):
                    break
                value = vars(holder).get(attribute)
                if isinstance(value, types.ModuleType):
                    holder = value
                    continue
                if value is not None and self._in_scope_module(holder):
                    place = (id(vars(holder)), attribute)
                    constant = f"{holder.__name__}.{attribute}"
                    self._capture(reached, _Captured(attribute, value, False, place, constant))
                break

    def _capture(self, reached: _Reached, captured: _Captured) -> None:
        if captured.name in self._ignore:
            return
        inner = None if isinstance(captured.value, type) else inner_function(captured.value)
        bound = bound_in(captured.value)
        if inner is not None and not (captured.closure or bound or self._in_scope(inner)):
            return
        self._alive.append(captured.value)
        reached.captured.append(captured)
        for item in functions_in([argument for _, argument in bound]):
            if self._in_scope(item):
                self._enqueue(item, None)
        if inner is not None and self._in_scope(inner):
            self._enqueue(inner, None)
            self._note_kernel(captured.value, f"{self._reached[id(inner)].label} ")
        elif isinstance(captured.value, (list, tuple, dict)):
            for item in functions_in(captured.value):
                if self._in_scope(item):
                    self._enqueue(item, None)

    def _in_scope(self, fn: types.FunctionType) -> bool:
        top = _module_name(fn).split(".")[0]
        if top in _OUTSIDE:
            return False
        if top and top == self._package:
            return True
        return not installed(fn.__code__.co_filename)

    def _in_scope_module(self, module: types.ModuleType) -> bool:
        top = module.__name__.split(".")[0]
        if top in _OUTSIDE or top in sys.builtin_module_names:
            return False
        if top == self._package:
            return True
        file = getattr(module, "__file__", None)
        return file is not None and not installed(file)

    # -- rendering -----------------------------------------------------------------------------

    def _render(self, reached: _Reached, out: dict[str, str]) -> None:
        fn, label = reached.fn, reached.label
        prefix = f"{label} " if label else ""
        text = reached.source.text if reached.source is not None else code_text(fn.__code__)
        out[label or "source"] = "sha256:" + _sha256(text)
        parameters = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        defaults = fn.__defaults__ or ()
        for name, value in zip(
            parameters[len(parameters) - len(defaults) :], defaults, strict=True
        ):
            out[f"{prefix}default {name}"] = self._value_text(value)
        for name, value in sorted((fn.__kwdefaults__ or {}).items()):
            out[f"{prefix}default {name}"] = self._value_text(value)
        for captured in reached.captured:
            if captured.closure:
                out[f"{prefix}closure {captured.name}"] = self._captured_text(captured)
                continue
            part = f"constant {captured.constant}"
            if part in out:
                continue
            text_or_none = self._constant_text(captured)
            if text_or_none is not None:
                out[part] = text_or_none

    def _captured_text(self, captured: _Captured) -> str:
        if captured.place in self._state:
            return f"state of type {_type_name(captured.value)}"
        return self._value_text(captured.value)

    def _constant_text(self, captured: _Captured) -> str | None:
        """Only what can be described is a constant; a global lock or buffer does not count."""
        value = captured.value
        if captured.place in self._state or isinstance(value, type):
            return None
        if inner_function(value) is not None and not bound_in(value):
            return None  # it has parts of its own
        text = self._deep_text(value, 0)
        return None if text is None else _short(text)

    def _value_text(self, value: Any) -> str:
        text = self._deep_text(value, 0)
        return _short(text) if text is not None else f"type {_type_name(value)}"

    def _bound_text(self, value: Any, depth: int) -> str:
        text = self._deep_text(value, depth + 1)
        return text if text is not None else f"type {_type_name(value)}"

    def _deep_text(self, value: Any, depth: int) -> str | None:
        """Canonical text, with functions inside containers named by their identity."""
        if isinstance(value, type):
            return f"class {qualified_name(value)}"
        bound = bound_in(value)
        if bound and depth <= 8:
            below = _below_partials(value)
            name = self._deep_text(below, depth + 1) or qualified_name(below)
            texts = [f"{n}={self._bound_text(v, depth)}" for n, v in bound]
            return f"{name}({', '.join(text.removeprefix('=') for text in texts)})"
        inner = inner_function(value)
        if inner is not None:
            if id(inner) in self._reached:
                return f"function {self._label_of(inner)}"
            return f"function {qualified_name(inner)}"
        text = _text_of(value)
        if text is not None or depth > 8:
            return text
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            items = [self._deep_text(item, depth + 1) for item in value]
            if any(item is None for item in items):
                return None
            return f"{type(value).__name__} of " + ", ".join(str(item) for item in items)
        if type(value) is dict:
            entries = []
            for key, item in value.items():
                pair = self._deep_text(key, depth + 1), self._deep_text(item, depth + 1)
                if None in pair:
                    return None
                entries.append(f"{pair[0]}: {pair[1]}")
            return "dict of " + ", ".join(sorted(entries))
        return None


def _below_partials(value: Any) -> Any:
    while isinstance(value, functools.partial):
        value = value.func
    return value


def _text_of(value: Any) -> str | None:
    """Canonical text of a captured value; nothing where it has none."""
    try:
        return str(_core.canonical_text(value, entry=True))
    except (TypeError, ValueError, RecursionError):
        return None


def _dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _module_name_of_globals(fn: types.FunctionType) -> str:
    module = fn.__globals__.get("__name__", "")
    return _main_name() if module in ("__main__", "__mp_main__") else str(module)
