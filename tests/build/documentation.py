"""Checks the documentation against the repository.

documentation.py ROOT TABLE_PROGRAM [--write]

- every page exists in both languages, and every relative link leads to a file;
- the English environment table is what the code prints (--write puts it there), the Chinese one has
  the same variables and defaults in the same order;
- commands of the Makefile that a page names exist.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TABLE = re.compile(r"(<!-- environment table:[^\n]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TARGET = re.compile(r"\bmake ([a-z][a-z-]*[a-z])(?![A-Za-z-])")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages(root: Path) -> list[Path]:
    """All Markdown files of the project."""
    folders = ["docs", "include", "src", "python", "tests", "examples", "bench", "scripts", "cmake"]
    found = list(root.glob("*.md"))
    for folder in folders:
        found += (root / folder).rglob("*.md")
    return sorted(found)


def check_links(root: Path) -> list[str]:
    """Relative links that lead nowhere."""
    wrong = []
    for page in pages(root):
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            if "://" not in target and not (page.parent / target).exists():
                wrong.append(f"{page.relative_to(root)}: {target} does not exist")
    return wrong


def check_languages(root: Path) -> list[str]:
    """Pages that exist in one language only."""
    english = {p.relative_to(root / "docs/en") for p in (root / "docs/en").rglob("*.md")}
    chinese = {p.relative_to(root / "docs/zh") for p in (root / "docs/zh").rglob("*.md")}
    if not english:
        return ["docs/en holds no page"]
    return [f"docs/{p}: in one language only" for p in sorted(map(str, english ^ chinese))]


def check_commands(root: Path) -> list[str]:
    """Targets of the Makefile that pages name and that are not there."""
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    heavy = {f"test-{p.stem}" for p in (root / "scripts/heavy").glob("*.sh")}
    known = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)) | heavy
    return [
        f"{page.relative_to(root)}: there is no `make {name}`"
        for page in pages(root)
        for block in re.findall(
            r"`[^`\n]*`|^make .*$", page.read_text(encoding="utf-8"), re.MULTILINE
        )
        for name in TARGET.findall(block)
        if name not in known
    ]


def first_columns(table: str) -> list[tuple[str, str]]:
    """Variable and default of each row."""
    rows = [[c.strip() for c in row.split("|")[1:3]] for row in table.strip().splitlines()[2:]]
    return [(variable, default) for variable, default in rows]


def check_table(root: Path, table: str, write: bool) -> list[str]:
    """The two environment tables against the one that the code prints."""
    page = root / "docs/en/environment.md"
    text = page.read_text(encoding="utf-8")
    found = TABLE.search(text)
    if not found:
        return [f"{page}: no environment table"]
    if write and found[2] != table:
        page.write_text(text[: found.start(2)] + table + text[found.end(2) :], encoding="utf-8")
    elif found[2] != table:
        return [
            f"{page} differs from the code; run this check with --write. The code says:\n{table}"
        ]
    other = TABLE.search((root / "docs/zh/environment.md").read_text(encoding="utf-8"))
    if not other or first_columns(other[2]) != first_columns(table):
        return ["docs/zh/environment.md: variables or defaults differ from docs/en/environment.md"]
    return []


def main() -> int:
    """Print what is wrong; 1 when anything is."""
    root, program = Path(sys.argv[1]).resolve(), sys.argv[2]
    table = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    wrong = check_links(root) + check_languages(root) + check_commands(root)
    wrong += check_table(root, table, "--write" in sys.argv[3:])
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
