"""Refuses an #include that points the wrong way through the house, or a foreign one in include/.

Layers, lowest first: interface headers (include/), core, the siblings, session; the front headers
belong to include/ and see interface headers alone. Siblings never include each other.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

INTERFACE = "include"
SIBLINGS = {"measure", "search", "agree", "store", "devices", "groups", "observe"}
# Who may include whom, beside themselves.
MAY = {
    INTERFACE: set(),
    "core": {INTERFACE},
    **{sibling: {INTERFACE, "core"} for sibling in SIBLINGS},
    "session": {INTERFACE, "core"} | SIBLINGS,
    "testing": {INTERFACE, "core", "groups"},  # its threads as ranks keep the roll call
}
# The vocabulary; the front headers are the other public ones. A front may include a vocabulary
# header, not the reverse.
VOCABULARY = {
    "value",
    "config",
    "error",
    "device",
    "group",
    "selector",
    "observer",
    "record",
    "version",
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
# The standard library's headers have no dot; of others, those of POSIX and Linux are system.
SYSTEM = re.compile(
    r"^(?:[a-z_0-9]+|(?:sys/|linux/|netinet/|arpa/)[a-z_0-9]+\.h|"
    r"(?:unistd|fcntl|dlfcn|pthread|sched|poll|signal|errno|pwd|time|dirent)\.h)$"
)


def check_file(where: str, path: str, text: str, folders: set[str]) -> list[str]:
    """Every wrong include of one file; `where` is its layer, `path` what messages call it."""
    wrong = []
    for _, target in INCLUDE.findall(text):
        first = target.split("/")[0]
        if first == "disttune":
            layer = INTERFACE
            stem = Path(path).stem
            inner = Path(target).stem
            vocabulary = where == INTERFACE and stem in VOCABULARY and "detail" not in path
            if vocabulary and (inner not in VOCABULARY or "detail/" in target):
                wrong.append(f"{path}: a vocabulary header must not include {target}")
        elif first in folders and "/" in target:
            layer = first
        elif where == INTERFACE:
            if not SYSTEM.match(target):
                wrong.append(f"{path}: third-party header {target} in include/")
            continue
        elif "/" not in target and not SYSTEM.match(target) and target.endswith(".hpp"):
            wrong.append(f'{path}: write "{where}/{target}", so that the layer shows')
            continue
        else:
            continue
        if layer != where and layer not in MAY.get(where, set()):
            wrong.append(f"{path}: {where} must not include {target}")
    return wrong


def check_tree(root: Path) -> list[str]:
    """Every wrong include under root/include and root/src."""
    folders = {p.name for p in (root / "src").iterdir() if p.is_dir()}
    wrong = [f"src/{name}: an unknown layer" for name in sorted(folders - MAY.keys())]
    seen = 0
    for base in (root / "include", root / "src"):
        for file in sorted(base.rglob("*")):
            if file.suffix not in {".hpp", ".cpp"}:
                continue
            seen += 1
            where = INTERFACE if base.name == "include" else file.relative_to(base).parts[0]
            path = str(file.relative_to(root))
            wrong += check_file(where, path, file.read_text(encoding="utf-8"), folders)
    if not seen:
        wrong.append(f"{root}: no sources found")
    return wrong


def self_test() -> list[str]:
    """Each rule refuses what it is there for, and good files pass."""
    folders = set(MAY) - {INTERFACE}
    bad = [
        ("store", "src/store/a.cpp", '#include "search/race.hpp"'),
        ("core", "src/core/a.cpp", '#include "session/tuning.hpp"'),
        ("search", "src/search/a.cpp", '  #  include "session/tuning.hpp"'),
        (INTERFACE, "include/disttune/a.hpp", "#include <fmt/format.h>"),
        (INTERFACE, "include/disttune/a.hpp", "#include <nlohmann/json.hpp>"),
        (INTERFACE, "include/disttune/a.hpp", '#include "core/sha256.hpp"'),
        (INTERFACE, "include/disttune/value.hpp", '#include "disttune/function.hpp"'),
        (INTERFACE, "include/disttune/value.hpp", '#include "disttune/detail/attempt.hpp"'),
        ("store", "src/store/a.cpp", '#include "record_json.hpp"'),
    ]
    good = [
        ("session", "src/session/a.cpp", '#include "store/store.hpp"\n#include <vector>'),
        ("store", "src/store/a.cpp", '#include "core/sha256.hpp"\n#include <fmt/format.h>'),
        ("store", "src/store/a.cpp", '#include "store/store.hpp"\n#include <sys/stat.h>'),
        (INTERFACE, "include/disttune/function.hpp", '#include "disttune/detail/attempt.hpp"'),
        (
            INTERFACE,
            "include/disttune/config.hpp",
            '#include "disttune/value.hpp"\n#include <tuple>',
        ),
    ]
    return [f"not refused: {b}" for b in bad if not check_file(*b, folders)] + [
        f"refused: {g}" for g in good if check_file(*g, folders)
    ]


def main() -> int:
    """Print what is wrong; 1 when anything is."""
    wrong = self_test() if sys.argv[1:] == ["--self-test"] else check_tree(Path(sys.argv[1]))
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
