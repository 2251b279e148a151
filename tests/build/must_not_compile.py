"""Code that must be refused by the compiler, with the sentence that a user needs.

must_not_compile.py FOLDER -- COMPILER…

Each FOLDER/*.cpp says what it expects in comments `// expect: text`, which go on until the comment
ends or the next one begins; all must stand in the compiler's output. Where compilers differ in
their words, ` || ` separates the alternatives. `valid.cpp` says nothing and must compile: without
it a broken header would pass as a refusal.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EXPECT = re.compile(r"^// expect: (.+(?:\n// (?!expect: ).+)*)", re.MULTILINE)


def plain(text: str) -> str:
    """One line, without comment marks, with the quotation marks that every locale has."""
    return " ".join(text.replace("\n//", "\n").split()).translate(str.maketrans("‘’", "''"))


def check(source: Path, compiler: list[str]) -> str:
    """Nothing, or what is wrong with this file."""
    expected = EXPECT.findall(source.read_text(encoding="utf-8"))
    done = subprocess.run([*compiler, str(source)], capture_output=True, text=True, check=False)
    said = plain(done.stdout + done.stderr)
    if not expected:
        return "" if done.returncode == 0 else f"{source.name} must compile:\n{done.stderr}"
    if done.returncode == 0:
        return f"{source.name} compiles, but must be refused"
    missing = [t for t in map(plain, expected) if not any(w in said for w in t.split(" || "))]
    return f"{source.name}: {missing} is not in the output:\n{done.stderr}" if missing else ""


def main() -> int:
    """Print what is wrong; 1 when anything is."""
    folder, compiler = Path(sys.argv[1]), sys.argv[sys.argv.index("--") + 1 :]
    sources = sorted(folder.glob("*.cpp"))
    if not (folder / "valid.cpp").exists() or len(sources) < 2:
        print(f"{folder}: no cases found")
        return 1
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        wrong = [text for text in pool.map(lambda s: check(s, compiler), sources) if text]
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
