"""A launcher whose candidates cost what a script says."""

from __future__ import annotations

import itertools

import disttune


def make(space=None, key_fn=None, prune_fn=None, costs=None, calls=None, clock=None, **options):
    """A launcher `f(x, n=0, *, block)` whose candidates cost what `costs` says."""
    space = [{"block": b} for b in (1, 2, 3)] if space is None else space
    costs = costs or {1: 300, 2: 100, 3: 200}

    @disttune.autotune(
        config_space=space,
        key_fn=key_fn or (lambda x, n=0: (x, n)),
        prune_fn=prune_fn,
        timer=clock,
        **options,
    )
    def f(x, n=0, *, block):
        """Say what runs."""
        if calls is not None:
            calls.append((x, block))
        if clock is not None:
            clock.spend(costs.get(block, 50))
        return (x, n, block)

    return f


def ticking():
    """A clock for functions that spend nothing of a scripted one."""
    return itertools.count(0, 1000).__next__
