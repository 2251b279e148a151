"""What a warm call of a tuned launcher adds to calling the launcher with the same keywords.

Compared with a wrapper as one would write it by hand: the same key (one tensor's shape and dtype,
and one int), a look-up in a dict, and the keywords merged into the call.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable
from itertools import repeat
from typing import Any

import disttune
from harness import Report, in_turns

CALLS = 20_000
ROUNDS = 31


def launcher(x: Any, n: int, block: int, warps: int) -> None:
    """Do nothing."""


def key_fn(x: Any, n: int) -> Any:
    return (tuple(x.shape), x.dtype, n)


def key_fn_that_computes(x: Any, n: int) -> Any:
    """Give the same; but only calling it can tell."""
    shape = tuple(x.shape)
    return (shape, x.dtype, n)


def by_hand(fn: Callable[..., Any], choices: dict[Any, dict[str, Any]]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        choice = choices.get(key_fn(*args, **kwargs))
        if choice is None:
            raise KeyError("not tuned")
        return fn(*args, **{**choice, **kwargs})

    return wrapper


def a_tensor() -> Any:
    """Return a tensor of torch where there is one, else a stand-in with the same two attributes."""
    try:
        import torch
    except ImportError:

        class Tensor:
            shape = (128, 4096)
            dtype = "float16"

        return Tensor()
    return torch.empty(128, 4096, dtype=torch.float16)


def tuned(key: Any) -> Callable[..., Any]:
    space = [{"block": b, "warps": w} for b in (128, 256) for w in (4, 8)]
    make = disttune.autotune(space, key, warmup=0, repeat=1)
    return make(launcher)


def loop(fn: Callable[..., Any], x: Any) -> Callable[[], None]:
    def run() -> None:
        for _ in repeat(None, CALLS):
            fn(x, 7)

    return run


def loop_key(x: Any) -> Callable[[], None]:
    def run() -> None:
        for _ in repeat(None, CALLS):
            key_fn(x, 7)

    return run


def loop_with_keyword(fn: Callable[..., Any], x: Any) -> Callable[[], None]:
    def run() -> None:
        for _ in repeat(None, CALLS):
            fn(x, n=7)

    return run


def main(report: Report) -> None:
    """Measure and report."""
    x = a_tensor()
    choice = {"block": 128, "warps": 4}

    def bare() -> None:
        for _ in repeat(None, CALLS):
            launcher(x, 7, block=128, warps=4)

    hand = by_hand(launcher, {key_fn(x, 7): choice})
    with tempfile.TemporaryDirectory() as store:
        os.environ["TRITON_DIST_AUTOTUNE_HOME"] = store
        python_key = tuned(key_fn)
        computed_key = tuned(key_fn_that_computes)
        declared_key = tuned(disttune.key("x.shape", "x.dtype", "n"))
        for fn in (python_key, computed_key, declared_key):
            fn(x, 7)
        runs = [
            bare,
            loop(hand, x),
            loop(python_key, x),
            loop(computed_key, x),
            loop(declared_key, x),
            loop_with_keyword(hand, x),
            loop_with_keyword(declared_key, x),
            loop_key(x),
        ]
        gc.disable()
        times = [total / CALLS for total in in_turns(runs, ROUNDS)]
        gc.enable()
    base, *others, key_alone = times
    names = (
        "by_hand",
        "python_key",
        "computed_key",
        "declared_key",
        "by_hand_keyword",
        "declared_key_keyword",
    )
    added = {name: time - base for name, time in zip(names, others, strict=True)}
    report.figure("python_bare_call_ns", base)
    for name, nanoseconds in added.items():
        report.figure(f"python_{name}_added_ns", nanoseconds)
    report.figure("ratio_python_key_to_by_hand", added["python_key"] / added["by_hand"], 0.5)
    # A call that must enter its key function adds what the function takes, and more.
    report.figure("ratio_computed_key_to_by_hand", added["computed_key"] / added["by_hand"])
    report.figure("ratio_key_function_alone_to_by_hand", key_alone / added["by_hand"])
    report.figure("ratio_declared_key_to_by_hand", added["declared_key"] / added["by_hand"], 0.35)
    report.figure(
        "ratio_declared_key_to_by_hand_with_keyword",
        added["declared_key_keyword"] / added["by_hand_keyword"],
    )
