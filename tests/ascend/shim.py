"""What triton-ascend 3.2.0 needs to run kernels in its interpreter on ``device="npu"``.

The gaps and their repairs are those of tests/ascend_contract (README, part 6): an active driver,
options of ``Config.all_kwargs()`` that the interpreter does not know to drop, and a ``parse()``
that ``AutoTilingTuner`` asks of interpreted functions. Nothing here belongs to disttune. Importing
this module repairs; it comes before triton's tuners are imported and kernels defined.
"""

import ast
import inspect
import pathlib
import sys
import textwrap

import triton
from triton.runtime import interpreter

sys.path.append(str(pathlib.Path(__file__).parents[1] / "ascend_contract" / "tests"))


def _parse(function):
    return ast.parse(textwrap.dedent(inspect.getsource(function.fn)))


def _repair() -> None:
    import triton_driver

    triton_driver.activate()
    options = list(triton.Config({}).all_kwargs())
    interpreter.RESERVED_KWS = interpreter.RESERVED_KWS + options
    if not hasattr(interpreter.InterpretedFunction, "parse"):
        interpreter.InterpretedFunction.parse = _parse


_repair()
