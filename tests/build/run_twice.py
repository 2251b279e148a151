"""Runs an example twice with one store: the first process tunes, the second must not.

run_twice.py STORE PROGRAM [ARGUMENT…]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

LAUNCHES = re.compile(r"launches[^:\n]*: (\d+)")


def run(store: str, command: list[str]) -> tuple[str, int]:
    """Output, and the number of launches that it reports."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_DIST_AUTOTUNE_")}
    environment["TRITON_DIST_AUTOTUNE_HOME"] = store
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    print(done.stdout + done.stderr)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}")
    found = LAUNCHES.search(done.stdout)
    if not found:
        sys.exit("the program did not say how often it launched")
    return done.stdout, int(found[1])


def main() -> None:
    """Run both and compare."""
    store, *command = sys.argv[1:]
    shutil.rmtree(store, ignore_errors=True)
    first, tuned = run(store, command)
    second, warm = run(store, command)
    if "tuned in this process" not in first or tuned < 2 * 15 + 1:
        sys.exit("the first process did not tune")
    if "came from the store" not in second or warm != 1:
        sys.exit(
            "the second process did not use the first one's choice, or launched more than once"
        )
    record = re.search(r"^record: (.+)$", first, re.MULTILINE)
    if not record or not Path(record[1]).is_file() or record[0] not in second:
        sys.exit("the record does not lie where the program says")


if __name__ == "__main__":
    main()
