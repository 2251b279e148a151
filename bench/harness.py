"""For benchmarks written in Python: alternatives in turns, figures by name.

A benchmark is bench/NAME.py with a function ``main(report)``; bench/run runs it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence


class Report:
    """Figures by name, and for some the most that they may be."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.limits: dict[str, float] = {}

    def figure(self, name: str, value: float, limit: float | None = None) -> None:
        """Note a figure; `limit` is the most that it may be."""
        if name in self.figures:
            raise ValueError(f"figure {name} is there already")
        self.figures[name] = value
        if limit is not None:
            self.limits[name] = limit

    def merge(self, values: dict[str, object]) -> None:
        """Take over the JSON object of another program."""
        limits = values.pop("limits", {})
        for name, value in values.items():
            self.figure(name, value, limits.get(name))


def in_turns(
    alternatives: Sequence[Callable[[], object]],
    rounds: int = 15,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> list[float]:
    """Median nanoseconds of each alternative, all run once a round, each round in another order.

    A machine that slows down slows all of them, so their ratios hold.
    """
    samples: list[list[int]] = [[] for _ in alternatives]
    for run in alternatives:
        run()
    for turn in range(rounds):
        for k in range(len(alternatives)):
            i = (k + turn) % len(alternatives)
            before = clock()
            alternatives[i]()
            samples[i].append(clock() - before)
    return [statistics.median(s) for s in samples]
