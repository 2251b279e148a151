"""Put disttune's tuners in place of Triton-distributed's.

``import disttune.takeover``, ahead of the first import of ``triton_dist.tune`` and
``triton_dist.autotuner``, makes these two names give disttune's modules; everything else of
Triton-distributed stays its own. Imported afterwards it is an ImportError, since some of the
program would go on with the old tuners.

``python -m disttune.takeover program.py ARGUMENT…`` (or ``-m module ARGUMENT…``) runs a program
that way without a change to it; processes that it starts through ``multiprocessing`` are
included.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

__all__ = ["install"]

#: Their module to ours.
_MODULES = {
    "triton_dist.tune": "disttune._triton_dist_tune",
    "triton_dist.autotuner": "disttune._triton_dist_autotuner",
}

#: Tells workers which program they belong to.
_PROGRAM = "DISTTUNE_TAKEOVER_PROGRAM"

#: Ahead of a module's name there; a path is absolute.
_MODULE = "-m "


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the two modules, and for nothing else."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Find one of the two modules."""
        del path, target
        if fullname not in _MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=_MODULES[fullname])

    def exec_module(self, module: types.ModuleType) -> None:
        """Fill a module with what ours has."""
        ours = importlib.import_module(_MODULES[module.__name__])
        names = list(ours.__all__)
        module.__doc__ = ours.__doc__
        module.__dict__.update({name: getattr(ours, name) for name in names}, __all__=names)


def install() -> None:
    """Take the two modules over; does nothing when that is done already.

    Raises
    ------
    ImportError
        One of them was imported before.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    late = [name for name in _MODULES if name in sys.modules]
    if late:
        raise ImportError(
            f"disttune.takeover comes too late: {' and '.join(late)} "
            f"{'is' if len(late) == 1 else 'are'} imported already, and "
            "parts of the program would go on with the original tuners. Import disttune.takeover "
            "first, or run the program with `python -m disttune.takeover program.py`."
        )
    sys.meta_path.insert(0, _Finder())


def _run(program: str) -> None:
    """Run a program in this module's own namespace, which is ``__main__``.

    A worker of ``multiprocessing`` imports the main module anew, by the name in its ``__spec__``,
    and so comes through here again, as ``__mp_main__``. It learns from the environment which
    program is meant.
    """
    sys.argv[0] = program
    with open(program, "rb") as file:
        code = compile(file.read(), program, "exec", dont_inherit=True)
    _become(code, __file__=program, __package__=None)


def _run_module(name: str) -> None:
    """Run a module as a program, likewise."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    get_code = getattr(spec.loader if spec is not None else None, "get_code", None)
    code = get_code(spec.name) if spec is not None and get_code is not None else None
    if spec is None or code is None:
        sys.exit(f"python -m disttune.takeover: no module named {name} that can be run")
    sys.argv[0] = spec.origin or name
    _become(code, __file__=spec.origin, __package__=spec.parent)


def _become(code: types.CodeType, **names: Any) -> None:
    namespace = globals()
    for name in [name for name in namespace if not name.startswith("__")]:
        del namespace[name]
    namespace.update(names, __doc__=None, __cached__=None)
    exec(code, namespace)


def _main(argv: list[str]) -> None:
    if len(argv) < 2 or argv[1] in ("-h", "--help"):
        print("usage: python -m disttune.takeover (PROGRAM.py | -m MODULE) [ARGUMENT…]")
        sys.exit(0 if len(argv) > 1 else 2)
    if argv[1] == "-m":
        if len(argv) < 3:
            sys.exit("python -m disttune.takeover: -m needs the name of a module")
        del argv[:2]
        os.environ[_PROGRAM] = _MODULE + argv[0]
        _run_module(argv[0])
    else:
        del argv[0]
        if not os.path.isfile(argv[0]):
            print(f"python -m disttune.takeover: no such file: {argv[0]}", file=sys.stderr)
            sys.exit(2)
        os.environ[_PROGRAM] = os.path.abspath(argv[0])
        sys.path[0] = os.path.dirname(os.environ[_PROGRAM])
        _run(argv[0])


def _work_for(program: str) -> None:
    if program.startswith(_MODULE):
        _run_module(program.removeprefix(_MODULE))
    else:
        _run(program)


if __name__ in ("__main__", "__mp_main__"):
    # This copy of the module becomes the program; the finder belongs to the imported one.
    importlib.import_module("disttune.takeover")
    if __name__ == "__main__":
        _main(sys.argv)
    else:
        _work_for(os.environ[_PROGRAM])
else:
    install()
