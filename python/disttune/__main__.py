"""The command line: ``disttune env``, ``disttune list``, ``disttune show``."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from . import _core

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="disttune", description="Look at what disttune has tuned, and at its settings."
    )
    parser.add_argument("--version", action="version", version=f"disttune {_core.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    env = commands.add_parser("env", help="every environment variable, with its value now")
    env.add_argument(
        "--markdown", action="store_true", help="as a Markdown table, with what each accepts"
    )
    env.set_defaults(run=_env)

    listing = commands.add_parser("list", help="the records of the store")
    listing.add_argument("name", nargs="?", default="", help="of this function only")
    listing.add_argument("--store", metavar="FOLDER", help="instead of the environment's")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    listing.set_defaults(run=_list)

    show = commands.add_parser("show", help="one record, or all records of a function")
    show.add_argument("what", metavar="FILE|NAME", help="a record's path, or a function's name")
    show.add_argument("--store", metavar="FOLDER", help="instead of the environment's")
    show.set_defaults(run=_show)

    arguments = parser.parse_args(argv)
    try:
        with _long_numbers():
            return int(arguments.run(arguments))
    except BrokenPipeError:  # `disttune list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (_core.Error, OSError, ValueError) as error:
        print(f"disttune: {str(error).removeprefix('disttune: ')}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def _long_numbers() -> Iterator[None]:
    """Show keys and values with numbers of any length; Python refuses very long ones by default."""
    if not hasattr(sys, "set_int_max_str_digits"):
        yield
        return
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def _env(arguments: argparse.Namespace) -> int:
    if not arguments.markdown:
        for line in _core.describe_environment().splitlines():
            _say(line)
        for line in _misspelled():
            print(line, file=sys.stderr)
        return 0
    print("| variable | accepts | default | meaning |\n| --- | --- | --- | --- |")
    for name, accepts, default, meaning in _core.environment_table():
        cells = (f"`{name}`", accepts, default or "–", meaning)
        _print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return 0


def _misspelled() -> list[str]:
    """Say which variables with our prefix are set and mean nothing."""
    known = [name for name, *_ in _core.environment_table()]
    lines = []
    for name in sorted(os.environ):
        if name.startswith("TRITON_DIST_AUTOTUNE_") and name not in known:
            close = difflib.get_close_matches(name.upper(), known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            lines.append(f"disttune: {name} is set, and there is no such variable{hint}")
    return lines


def _entries(name: str, store: str | None) -> list[dict[str, Any]]:
    """Return the records of a store, and say what could not be read."""
    folder = None if store is None else os.path.expanduser(store)
    entries, left_out = _core.list_store(name, folder)
    for line in left_out:
        _complain(f"disttune: left out: {line}")
    return entries


def _complain(line: str) -> None:
    print(_harmless(line), file=sys.stderr)


def _harmless(line: str) -> str:
    """Return a line without what would steer the terminal in the texts of foreign files."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def _say(line: str) -> None:
    _print(_harmless(line))


def _print(text: str) -> None:
    """Print a text; what the output's encoding does not have is written as its escape."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _milliseconds(nanoseconds: float | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds / 1e6:.4g} ms"


def _list(arguments: argparse.Namespace) -> int:
    entries = _entries(arguments.name, arguments.store)
    if arguments.json:
        for entry in entries:
            print(json.dumps({key: _plain(value) for key, value in entry.items()}))
        return 0
    if not entries:
        what = f"no records of {arguments.name!r}" if arguments.name else "no records"
        _complain(f"{what} in {arguments.store or 'the store'}")
        return 0
    for entry in sorted(entries, key=lambda e: (e["name"], str(e["created"]))):
        winner, default = entry["winner_ns"], entry["default_ns"]
        gain = f", the default takes {default / winner:.2f}x" if winner and default else ""
        kind = " (original format)" if entry["original_format"] else ""
        chosen = "nothing works" if entry["winner"] is None else str(entry["winner"])
        _say(f"{entry['name']}  {entry['created']}  {_milliseconds(winner)}{gain}{kind}")
        _say(f"    key     {_callers_key(entry['key'])}")
        _say(f"    winner  {chosen}")
        _say(f"    file    {entry['file']}")
    return 0


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _callers_key(key: Any) -> str:
    """Return the caller's part of a full key text."""
    try:
        fields = key.python()
        if isinstance(fields, dict) and "key" in fields:
            return str(_core.describe(fields["key"]))
    except (TypeError, ValueError, AttributeError):
        pass
    return str(key)


def _show(arguments: argparse.Namespace) -> int:
    if os.path.isfile(arguments.what):
        _show_file(arguments.what)
        return 0
    entries = _entries(arguments.what, arguments.store)
    if not entries:
        _complain(f"disttune: {arguments.what!r} is neither a file nor a function with records")
        return 1
    status = 0
    for index, entry in enumerate(entries):
        if index:
            print()
        try:
            _show_file(str(entry["file"]))
        except (_core.Error, OSError) as error:  # its beginning could be read, and the rest not
            _complain(f"disttune: {str(error).removeprefix('disttune: ')}")
            status = 1
    return status


def _show_file(path: str) -> None:
    try:
        record = _core.load_record(path)
    except _core.StoreError:
        _show_original(path)
        return
    _say(f"{record.module}.{record.name}" if record.module else record.name)
    _say(f"  file      {path}")
    _say(f"  key       {record.key!r}")
    _say(f"  hardware  {record.hardware!r}")
    _say(f"  group     {'one process' if record.group is None else repr(record.group)}")
    _say(f"  policy    {record.policy!r}")
    if record.overwritten is not None:
        _say(f"  overwritten by the caller  {record.overwritten!r}")
    for tuning in record.tunings:
        _show_tuning(tuning)


def _show_tuning(tuning: _core.TuningRecord) -> None:
    quality = f", {', '.join(tuning.quality)}" if tuning.quality else ""
    _say(
        f"  tuned {tuning.created} on {tuning.host}, {tuning.strategy}, {tuning.warmup} + "
        f"{tuning.repeat} runs, gate {tuning.gate}{quality}"
    )
    _say(
        f"    {tuning.prepare_seconds:.3g} s preparing, {tuning.measure_seconds:.3g} s measuring; "
        f"versions {tuning.deps!r}"
    )
    for candidate in sorted(
        tuning.candidates, key=lambda c: (c.score_ns is None, c.score_ns or 0.0)
    ):
        mark = "*" if tuning.winner is not None and candidate.config == tuning.winner else " "
        text = ", ".join(f"{name}={value}" for name, value in candidate.config.items())
        if candidate.score_ns is not None:
            _say(f"   {mark}{_milliseconds(candidate.score_ns):>12}  {text}")
            samples = " ".join(f"{ns / 1e6:.4g}" for ns in candidate.samples_ns)
            _say(f"{'':18}samples {samples}")
        else:
            reason = candidate.reason.splitlines()[0] if candidate.reason else ""
            _say(f"   {mark}{candidate.status:>12}  {text}{'  ' + reason if reason else ''}")


def _show_original(path: str) -> None:
    data = _core.load_original_form(path)
    _say(f"{data['func']} (original format)")
    _say(f"  file   {path}")
    _say(f"  key    {data['key']!r}")
    _say(f"  tuned  {data['timestamp']}")
    for milliseconds, entry in data["config"]:
        text = ", ".join(f"{name}={value}" for name, value in entry.items())
        _say(f"    {milliseconds:>10.4g} ms  {text}")


if __name__ == "__main__":
    sys.exit(main())
