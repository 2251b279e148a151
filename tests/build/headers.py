"""Two checks of headers: all are listed for installation, and each compiles alone.

headers.py listed FOLDER HEADER…      the headers under FOLDER are exactly those listed
headers.py alone FOLDER [NAME…] -- COMPILER…  each header under FOLDER, but for those whose names
begin with NAME, compiles when it is included alone
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def listed(folder: Path, headers: list[str]) -> list[str]:
    """Differences between what lies in the folder and what is listed."""
    there = {p.resolve() for p in folder.rglob("*.hpp")}
    named = {(folder / h).resolve() for h in headers}
    return [
        f"in no target's list of headers (include/CMakeLists.txt): {p}"
        for p in sorted(there - named)
    ] + [f"listed but not there: {p}" for p in sorted(named - there)]


def compiles(header: Path, compiler: list[str]) -> str:
    """Nothing, or the compiler's words. Included twice: a header must guard itself, too."""
    source = f'#include "{header}"\n' * 2
    done = subprocess.run(
        [*compiler, "-x", "c++", "-"], input=source, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else f"{header} does not compile alone:\n{done.stderr}"


def alone(folder: Path, left_out: tuple[str, ...], compiler: list[str]) -> list[str]:
    """What does not compile alone."""
    headers = [h for h in sorted(folder.rglob("*.hpp")) if not h.name.startswith(left_out)]
    if not headers:
        return [f"{folder}: no headers found"]
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return [text for text in pool.map(lambda h: compiles(h, compiler), headers) if text]


def main() -> int:
    """Print what is wrong; 1 when anything is."""
    check, folder, *rest = sys.argv[1:]
    if check == "listed":
        wrong = listed(Path(folder), rest)
    else:
        end = rest.index("--")
        wrong = alone(Path(folder), tuple(rest[:end]), rest[end + 1 :])
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
