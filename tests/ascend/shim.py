"""What triton-ascend 3.2.0 needs to run kernels in its interpreter on ``device="npu"``.

The three gaps and their repairs are those of tests/ascend_contract (README, part 6): an active driver,
options of ``Config.all_kwargs()`` that the interpreter does not know to drop, and a ``parse()`` that
``AutoTilingTuner`` asks of interpreted functions. Nothing here belongs to disttune.
"""

import ast
import inspect
import pathlib
import sys
import textwrap


def activate() -> None:
    """Repair triton; to be called before a kernel is defined."""
    sys.path.append(str(pathlib.Path(__file__).parents[1] / "ascend_contract" / "tests"))
    import triton
    import triton_driver

    triton_driver.activate()
    from triton.runtime import interpreter

    options = [name for name in triton.Config({}).all_kwargs()]
    interpreter.RESERVED_KWS = interpreter.RESERVED_KWS + options
    if not hasattr(interpreter.InterpretedFunction, "parse"):
        interpreter.InterpretedFunction.parse = _parse


def _parse(function):
    return ast.parse(textwrap.dedent(inspect.getsource(function.fn)))
