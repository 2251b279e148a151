"""triton_dist.tune and triton_dist.autotuner, provided by disttune (disttune-triton-dist).

This package is not Triton-distributed and has none of its other modules. It is a regular package,
so that a second ``triton_dist`` beside it is noticed here instead of being half hidden by it.
"""

from __future__ import annotations

import os
import sys


def _others() -> list[str]:
    """Find packages of this name that are not this one."""
    here = os.path.realpath(os.path.dirname(__file__))
    found = []
    for entry in sys.path:
        folder = os.path.join(entry or os.getcwd(), "triton_dist")
        init = os.path.join(folder, "__init__.py")
        if os.path.isfile(init) and os.path.realpath(folder) != here:
            with open(init, encoding="utf-8", errors="replace") as file:
                if "disttune-triton-dist" not in file.read():
                    found.append(folder)
    for finder in sys.meta_path:
        # An editable installation brings a finder of its own.
        if not type(finder).__module__.startswith(("importlib", "_frozen_importlib")):
            find = getattr(finder, "find_spec", None)
            spec = find("triton_dist", None) if find is not None else None
            origin = getattr(spec, "origin", None)
            if origin and os.path.realpath(os.path.dirname(origin)) != here:
                found.append(origin)
    return found


if _found := _others():
    raise ImportError(
        f"disttune-triton-dist is installed beside another triton_dist ({', '.join(_found)}), and "
        "hides its modules. Uninstall disttune-triton-dist; disttune serves programs of "
        "Triton-distributed after `import disttune.takeover`, or with "
        "`python -m disttune.takeover program.py`.",
        name="triton_dist",
    )
