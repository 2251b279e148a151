"""run_program.py FILE: runs a program on triton-ascend and says how it ended, as JSON.

In the interpreter the shim is put in first; the program's own text is not touched.
"""

import json
import os
import runpy
import sys

if __name__ == "__main__":
    if os.environ["TRITON_INTERPRET"] == "1":
        import shim  # noqa: F401
    sys.argv = sys.argv[1:]
    names = runpy.run_path(sys.argv[0], run_name="__main__")
    said = {}
    if "scale" in names:  # the first example
        record = names["scale"].result(names["x"], 2.5)
        if record is not None:
            said = {
                "gate": record.gate,
                "hardware": record.hardware,
                "deps": record.deps,
                "quality": record.quality,
                "statuses": [candidate.status for candidate in record.candidates],
                "samples": [candidate.samples_ns for candidate in record.candidates],
                "winner": record.winner["cfg"].all_kwargs(),
            }
    if "run_scale" in names and hasattr(names["scale_kernel"], "configs"):  # the second
        kernel = names["scale_kernel"]
        said = {
            "keys": [repr(key) for key in kernel.cache],
            "best": repr(kernel.best_config),
            "timed": len(getattr(kernel, "configs_timings", ())),
        }
    print("said " + json.dumps(said, default=repr))
