"""One rank of a torch.distributed world, for test_torch_group.py: scenarios, rank, size, init."""

import json
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import disttune
import torch
import torch.distributed as dist
from disttune import _groups
from disttune._groups import resolve_group, set_default_group
from disttune._store_meeting import join

SCENARIOS, RANK, SIZE, INIT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def wait(sequence, phase="handshake", patience=30.0, first=False):
    return SimpleNamespace(
        sequence=sequence,
        phase=phase,
        patience=patience,
        deadline=time.monotonic() + patience,
        first=first,
    )


def fresh():
    """A seat in a new group of all ranks, so that scenarios do not see each other."""
    return resolve_group(dist.new_group(list(range(SIZE))))


def error_of(function):
    started = time.monotonic()
    try:
        function()
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error),
                "seconds": time.monotonic() - started}  # fmt: skip
    return {"error": None, "seconds": time.monotonic() - started}


def reduce(seat, values, *args, **kwargs):
    return list(seat.all_reduce_max(values, wait(*args, **kwargs)))


def maxima():
    seat = fresh()
    results = []
    for call in range(1, 4):
        for turn in range(3):
            low = -(2**62) + RANK
            results.append(reduce(seat, [RANK, -RANK, low, 2**62 + call * turn], call, f"t{turn}"))
    return {"results": results, "nodes": list(seat.ranks_per_node), "seat": seat.rank}


def subgroups():
    halves = [dist.new_group([0, 3]), dist.new_group([1, 2])]
    mine = halves[0] if RANK in (0, 3) else halves[1]
    other = halves[1] if RANK in (0, 3) else halves[0]
    seat = resolve_group(mine)
    found = reduce(seat, [RANK], 1)
    world = reduce(resolve_group(), [RANK], 1)
    outside = error_of(lambda: resolve_group(other))
    return {"found": found, "world": world, "outside": outside, "seat": seat.rank,
            "same": resolve_group(mine) is seat}  # fmt: skip


def again():
    found = []
    for life in range(3):
        if life:
            dist.destroy_process_group()
            dist.init_process_group("gloo", init_method=INIT + f"-{life}", rank=RANK,
                                    world_size=SIZE)  # fmt: skip
        found.append(reduce(resolve_group(), [RANK + life], 1))
    group = dist.new_group(list(range(SIZE)))
    seat = resolve_group(group)
    dist.destroy_process_group(group)
    return {"found": found, "destroyed": error_of(lambda: resolve_group(group)),
            "seat": seat.size}  # fmt: skip


def old_keys():
    # A store that outlives its groups (torchrun's): the second life must not see the first.
    store = dist.PrefixStore("shared", dist.distributed_c10d._get_default_store())
    found = []
    for life in range(3):
        seat = join(store, "group", RANK, SIZE, 30.0)
        found.append(reduce(seat, [RANK * (life + 1)], 1))
    return {"found": found}


def forgotten():
    seat = fresh()
    seat.alive()  # its key is there from now on, not only once somebody was slow
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    counts = []
    for call in range(1, 40):
        reduce(seat, [RANK], call)
        if call in (20, 39):
            reduce(seat, [0], call, "pause")
            seat.linger()  # rank 0: until the others have deleted theirs
            counts.append(store.num_keys())
            dist.barrier()  # nobody goes on, and writes, before that
    return {"counts": counts}


def killed():
    seat = fresh()
    reduce(seat, [RANK], 1)
    if RANK == SIZE - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return error_of(lambda: reduce(seat, [RANK], 2, patience=1.5))


def lowest_killed():
    seat = fresh()
    reduce(seat, [RANK], 1)
    if RANK == 0:
        seat.linger()
        os.kill(os.getpid(), signal.SIGKILL)
    return error_of(lambda: reduce(seat, [RANK], 2))


def stopped_store():
    seat = fresh()
    reduce(seat, [RANK], 1)
    if RANK == 0:
        seat.linger()
        os.kill(os.getpid(), signal.SIGSTOP)
    return error_of(lambda: reduce(seat, [RANK], 2, patience=2.0))


def slow():
    seat = fresh()
    reduce(seat, [RANK], 1)
    if RANK == 1:
        for _ in range(10):
            time.sleep(0.4)
            seat.alive()
    return error_of(lambda: reduce(seat, [RANK], 2, patience=3.0))


def failing():
    seat = fresh()
    reduce(seat, [RANK], 1)
    if RANK == 1:
        time.sleep(0.5)
        seat.abandon(2, "ValueError: no such tile")
        return {"error": "ValueError"}
    return error_of(lambda: reduce(seat, [RANK], 2))


def pruning():
    # The caller's own function raises on one rank, which the others learn with its text.
    def prune(entry, *args):
        if RANK == 1:
            raise LookupError("no such tile")
        return True

    space = [{"b": b} for b in (1, 2)]
    tuned = disttune.autotune(space, None, prune, timer=lambda: 0, name="pruning", version="1")(
        lambda b: b
    )
    return error_of(lambda: tuned(autotune_pg=fresh()))


def withdrawn():
    seat = fresh()
    reduce(seat, [RANK], 1)
    if RANK == 1:
        seat.abandon(2, "key_fn raised")
        time.sleep(0.3)
        seat.withdraw(2)
    else:
        while not seat._line.count("news", time.monotonic() + 30):  # until it was announced
            time.sleep(0.001)
    return error_of(lambda: reduce(seat, [RANK], 2, first=True))


def alike():
    # All ranks fail in call 2; the announcements must not spoil call 3.
    seat = fresh()
    reduce(seat, [RANK], 1)
    seat.abandon(2, "all fail")
    return error_of(lambda: reduce(seat, [RANK], 3, first=True))


def out_of_step():
    seat = fresh()
    reduce(seat, [RANK], 1)
    if RANK == 0:
        return error_of(lambda: reduce(seat, [RANK], 1, "extra"))
    return error_of(lambda: reduce(seat, [RANK], 2, "handshake"))


def lengths():
    seat = fresh()
    return error_of(lambda: reduce(seat, [RANK] * (1 + RANK % 2), 1, "batch"))


def notes():
    seat = fresh()
    before = seat.noted(1, 7)
    if RANK == SIZE - 1:
        seat.note(1, 7)
    reduce(seat, [RANK], 1)
    time.sleep(0.6)
    return {"before": before, "after": seat.noted(1, 7), "other": seat.noted(1, 8)}


def defaults():
    seat = resolve_group()
    set_default_group(disttune.LOCAL)
    local = resolve_group()
    set_default_group(dist.new_group(list(range(SIZE))))
    other = resolve_group()
    set_default_group(None)
    return {"local": local is None, "other": other is not seat, "back": resolve_group() is seat}


def absent():
    group = dist.new_group(list(range(SIZE)))
    if RANK == 1:
        return {"error": None}
    first = error_of(lambda: resolve_group(group, timeout=1.0))
    again = error_of(lambda: resolve_group(group, timeout=1000.0))
    return {**first, "again": again}


def impatient():
    """A barrier and a unification whose first meeting is to end after their own timeout."""
    groups = [dist.new_group(list(range(SIZE))) for _ in range(2)]
    if RANK == 1:
        return {"errors": []}
    return {
        "errors": [
            error_of(lambda: disttune.barrier(groups[0], timeout=1.0))["error"],
            error_of(lambda: disttune.unify(groups[1], timeout=1.0))["error"],
        ]
    }


class NoBool:
    def __bool__(self):
        raise ArithmeticError("neither")


def unannounced():
    """Rank 1 fails in the first call of a group, before it looks at what the call asks for."""
    found = []
    for given in ({"c": 1}, {"autotune": NoBool()}):
        group = dist.new_group(list(range(SIZE)))
        f = disttune.autotune([{"c": 1}, {"c": 2}], lambda x: x)(lambda x, c: c)
        kwargs = given if RANK == 1 else {}
        found.append(error_of(lambda f=f, k=kwargs, g=group: f(3, autotune_pg=g, **k)))
    return {"found": found}


def crossed():
    """Two groups meet for the first time, in opposite orders, each in a thread of its own."""
    groups = [dist.new_group(list(range(SIZE))) for _ in range(2)]
    first, second = groups if RANK == 0 else reversed(groups)
    seats = []
    thread = threading.Thread(target=lambda: seats.append(resolve_group(first, timeout=20.0)))
    thread.start()
    # Both are under way at once; the outcome does not depend on how far the first one has come.
    while thread.is_alive() and not _groups._meetings.get(first):
        time.sleep(1e-4)
    return {
        **error_of(lambda: resolve_group(second, timeout=20.0)),
        "met": thread.join() or len(seats),
    }


def tuned():
    """Ranks disagree about what is fast: the slowest rank's time decides, alike on all."""
    costs = {1: 10, 2: 20, 3: 30} if RANK == 0 else {1: 40, 2: 20, 3: 10}
    runs = []
    now = [0]

    @disttune.autotune(
        config_space=[{"b": 1}, {"b": 2}, {"b": 3}],
        key_fn=lambda x: x,
        timer=lambda: now[0],
        ignore=["costs"],
    )
    def launch(x, b):
        runs.append(b)
        now[0] += costs[b]
        return b

    return {
        "first": launch(3),
        "cold": len(runs),
        "again": launch(3),
        "warm": len(runs),
        "alone": launch(4 + RANK, autotune_pg=disttune.LOCAL),
        "group": launch.result(3).group["size"],
    }


dist.init_process_group("gloo", init_method=INIT, rank=RANK, world_size=SIZE)
torch.set_num_threads(1)


def hangs_in_a_run():
    # Rank 0 waits inside its launcher for what rank 1 never sends, as in a collective on the host.
    held = threading.Event()

    @disttune.autotune([{"b": 2}, {"b": 1}], None, timer=time.perf_counter_ns, name="hangs",
                       version="1")  # fmt: skip
    def tuned(b):
        if RANK == 0 and b == 1:
            held.wait(60)

    seat = fresh()
    os.environ["TRITON_DIST_AUTOTUNE_TIMEOUT"] = "2"
    if RANK == 1:
        found = error_of(lambda: tuned(autotune_pg=seat))
        dist.distributed_c10d._get_default_store().set("over", "1")
        return found
    threading.Thread(
        target=lambda: (dist.distributed_c10d._get_default_store().wait(["over"]), held.set()),
        daemon=True,
    ).start()
    return error_of(lambda: tuned(autotune_pg=seat))


def forked():
    # A child of a rank is no rank: it must not wait for a thread that it does not have.
    seat = fresh()
    reduce(seat, [RANK], 1)
    receiving, sending = os.pipe()
    if os.fork() == 0:
        os.write(sending, json.dumps(error_of(lambda: reduce(seat, [RANK], 2))).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(receiving, 1 << 16))


for scenario in SCENARIOS.split(","):
    print(json.dumps({"scenario": scenario, **globals()[scenario]()}), flush=True)
