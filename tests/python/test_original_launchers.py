"""The launchers of the original's own code base, with stand-ins for their kernels.

Each is decorated and called as there: joint arguments, contexts as arguments, launchers that change
their configuration, duplicate entries, bare dtypes in keys. A scripted clock makes every choice
certain.
"""

import collections
import dataclasses
import functools
import pathlib

import pytest
from disttune import to_hashable
from disttune._triton_dist_tune import autotune, load_autotune_data

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

RUNS = 15  # 5 untimed and 10 timed a candidate; one more with the winner


def config(m, n, k=32, warps=4, stages=3, **more):
    return triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_SIZE_M": 8, **more},
        num_warps=warps,
        num_stages=stages,
    )


@dataclasses.dataclass
class Context:
    """What a layer makes once: buffers, and numbers that key functions read."""

    num_ranks: int = 2
    num_local_ranks: int = 2
    phase: int = 0
    buffer: torch.Tensor = dataclasses.field(default_factory=lambda: torch.zeros(4))


class Ledger:
    """Counts runs by candidate, and spends scripted time."""

    def __init__(self, clock):
        self.clock = clock
        self.runs = collections.Counter()

    def run(self, label, nanoseconds):
        self.runs[label] += 1
        self.clock.spend(nanoseconds)

    @property
    def total(self):
        return sum(self.runs.values())


@pytest.fixture
def ledger(clock):
    return Ledger(clock)


def matrices(m=8, n=4, k=2, dtype=torch.float16):
    return torch.zeros(m, k, dtype=dtype), torch.zeros(k, n, dtype=dtype)


def test_matmul_one_configuration_argument_and_a_key_of_bare_dtypes(ledger, clock):
    space = [{"config": config(m, 64)} for m in (16, 32, 64, 128)]
    best = 64

    def prune(entry, *args, **kwargs):
        return entry["config"].all_kwargs()["BLOCK_M"] < 128

    @autotune(
        config_space=space,
        key_fn=lambda *args, **kwargs: (to_hashable(args[0]), to_hashable(args[1])),
        prune_fn=prune,
        timer=clock,
    )
    def matmul(a, b, config=None, warp_specialize=False):
        block = config.all_kwargs()["BLOCK_M"]
        ledger.run(block, 100 + abs(block - best))
        return block

    a, b = matrices()
    assert matmul(a, b) == 64
    assert ledger.runs == {16: RUNS, 32: RUNS, 64: RUNS + 1}
    assert matmul(a, b, warp_specialize=True) == 64
    assert ledger.total == 3 * RUNS + 2
    # Another dtype is another key (S1).
    best = 16
    assert matmul(*matrices(dtype=torch.float32)) == 16
    assert matmul(a, b) == 64
    with pytest.raises(IndexError):
        matmul(a=a, b=b)


def test_ag_gemm_a_context_by_position_or_by_name_that_changes_with_every_call(ledger, clock):
    space = [{"gemm_config": config(m, n)} for m in (32, 64) for n in (32, 64)]

    def key_fn(a, b, ctx, *args, **kwargs):
        return to_hashable(a), to_hashable(b), ctx.num_ranks, ctx.num_local_ranks

    @autotune(config_space=space, key_fn=key_fn, timer=clock)
    def ag_gemm(a, b, ctx, gemm_config=None, straggler_option=None):
        ctx.phase += 2
        meta = gemm_config.all_kwargs()
        ledger.run((meta["BLOCK_M"], meta["BLOCK_N"]), meta["BLOCK_M"] + 2 * meta["BLOCK_N"])
        return meta["BLOCK_M"], meta["BLOCK_N"]

    ctx = Context()
    a, b = matrices()
    assert ag_gemm(a, b, ctx) == (32, 32)
    assert ctx.phase == 2 * (4 * RUNS + 1)  # each run saw the live context
    assert ag_gemm(a, b, ctx=ctx) == (32, 32)
    assert ledger.total == 4 * RUNS + 2
    assert ag_gemm(a, b, Context(num_ranks=4)) == (32, 32)
    assert ledger.total == 2 * (4 * RUNS + 1) + 1


def test_gemm_rs_three_joint_arguments_and_a_launcher_that_changes_its_configuration(ledger, clock):
    space = [
        {"gemm_config": config(m, 64), "fuse_scatter": fuse, "persistent": persistent}
        for m in (32, 64)
        for fuse in (False, True)
        for persistent in (False, True)
    ]
    before = [repr(vars(entry["gemm_config"])) for entry in space]

    def prune(entry, a, b, ctx, *args, **kwargs):
        return entry["persistent"] or not entry["fuse_scatter"]

    @autotune(
        config_space=space,
        key_fn=lambda a, b, ctx, *args, **kwargs: (to_hashable(a), to_hashable(b), ctx.num_ranks),
        prune_fn=prune,
        timer=clock,
    )
    def gemm_rs(a, b, ctx, gemm_config=None, fuse_scatter=True, persistent=True):
        assert gemm_config.kwargs["GROUP_SIZE_M"] == 8, "an earlier run's change is seen"
        if not persistent:
            gemm_config.kwargs["GROUP_SIZE_M"] = 1
        time = gemm_config.kwargs["BLOCK_M"] - (not persistent) * 20 + fuse_scatter * 5
        ledger.run((gemm_config.kwargs["BLOCK_M"], fuse_scatter, persistent), time)
        if not persistent:
            gemm_config.kwargs["GROUP_SIZE_M"] = 8
            gemm_config.kwargs["LEFT"] = 1
        return gemm_config.kwargs["BLOCK_M"], fuse_scatter, persistent

    a, b = matrices()
    assert gemm_rs(a, b, Context()) == (32, False, False)
    assert len(ledger.runs) == 6
    best = gemm_rs.best_configs.get((to_hashable(a), to_hashable(b), 2))
    assert (best["fuse_scatter"], best["persistent"]) == (False, False)
    assert "LEFT" not in best["gemm_config"].kwargs
    assert [repr(vars(entry["gemm_config"])) for entry in space] == before
    assert "LEFT" not in repr(gemm_rs.result(a, b, Context()).winner)
    # The untuned path goes around the tuner.
    runs = ledger.total
    assert gemm_rs.fn(a, b, Context(), gemm_config=config(64, 64)) == (64, True, True)
    assert ledger.total == runs + 1


def test_gemm_allreduce_seventeen_entries_of_which_seven_are_distinct(ledger, clock):
    blocks = [16, 32, 48, 64, 80, 96, 112, 16, 32, 48, 64, 80, 96, 112, 16, 32, 48]
    space = [{"gemm_config": config(m, 64, waves_per_eu=2, kpack=2)} for m in blocks]
    assert len(space) == 17

    @autotune(
        config_space=space,
        key_fn=lambda ctx, a, b, *args, **kwargs: (to_hashable(a), to_hashable(b), ctx.num_ranks),
        timer=clock,
    )
    def gemm_allreduce_op(ctx, a, b, gemm_config, copy_to_local=True):
        block = gemm_config.kwargs["BLOCK_M"]
        ledger.run(block, 200 - block)
        return block

    a, b = matrices()
    assert gemm_allreduce_op(Context(), a, b) == 112
    assert ledger.runs == {16: 15, 32: 15, 48: 15, 64: 15, 80: 15, 96: 15, 112: 16}


def test_gemm_rs_intra_node_an_output_dtype_in_the_key(ledger, clock):
    best = {torch.float16: 32, torch.bfloat16: 64}

    @autotune(
        config_space=[{"gemm_config": config(m, 64)} for m in (32, 64)],
        key_fn=lambda a, b, output_dtype, *args, **kwargs: (
            to_hashable(a), to_hashable(b), output_dtype,
        ),
        timer=clock,
    )  # fmt: skip
    def gemm_rs_intra_node_op(a, b, output_dtype, gemm_config):
        block = gemm_config.kwargs["BLOCK_M"]
        ledger.run(block, 10 if block == best[output_dtype] else 20)
        return block

    a, b = matrices()
    for _ in range(3):
        assert gemm_rs_intra_node_op(a, b, torch.float16) == 32
        assert gemm_rs_intra_node_op(a, b, torch.bfloat16) == 64
    assert ledger.total == 2 * (2 * RUNS + 1) + 4


def test_split_k_none_in_the_key_and_a_changed_num_stages(ledger, clock):
    space = [{"config": config(m, 64, stages=stages)} for m in (32, 64) for stages in (2, 3)]

    def prune(entry, *args, MAX_BLOCK_SIZE_M=1024, **kwargs):
        return entry["config"].kwargs["BLOCK_M"] <= MAX_BLOCK_SIZE_M

    @autotune(
        config_space=space,
        key_fn=lambda a, b, *args, **kwargs: (
            to_hashable(a), to_hashable(b), kwargs.get("split_k"), kwargs.get("algo"),
        ),
        prune_fn=functools.partial(prune, MAX_BLOCK_SIZE_M=64),
        timer=clock,
    )  # fmt: skip
    def matmul_split_k(a, b, split_k=1, algo="atomic", config=None):
        block, config.num_stages = config.kwargs["BLOCK_M"], 1
        ledger.run(block, block)
        return block

    a, b = matrices()
    assert matmul_split_k(a, b) == 32
    # Equal but for num_stages: four candidates, not two (S3).
    assert ledger.runs == {32: 2 * RUNS + 1, 64: 2 * RUNS}
    assert matmul_split_k(a, b, 4) == 32  # by position: the key does not see it
    assert ledger.total == 4 * RUNS + 2
    assert matmul_split_k(a, b, split_k=4) == 32
    assert ledger.total == 2 * (4 * RUNS + 1) + 1
    assert [entry["config"].num_stages for entry in space] == [2, 3, 2, 3]
    assert [e["config"].num_stages for e in matmul_split_k.best_configs.values()] == [2, 2]


def test_reverse_all2all_forty_plain_entries_and_a_version_in_the_key(ledger, clock):
    space = [{"COMM_BLOCK_S": 8, "COMM_BLOCK_D": 16, "buffer_num": 1}]
    space += [
        {"COMM_BLOCK_S": s, "COMM_BLOCK_D": d, "buffer_num": buffers}
        for s in (8, 16, 32, 64)
        for d in (32, 64, 128, 256, 512)
        for buffers in (2, 3)
    ][:39]

    def key_fn(a, c, rank_size, **kwargs):
        return "reverse_all2all-v1", tuple(a.shape), tuple(c.shape), rank_size

    def prune(entry, a, c, rank_size):
        return entry["COMM_BLOCK_D"] >= 32 or entry["buffer_num"] == 1

    @autotune(config_space=space, key_fn=key_fn, prune_fn=prune, timer=clock)
    def reverse_all2all(a, c, rank_size, COMM_BLOCK_S, COMM_BLOCK_D, buffer_num):
        c.fill_(0)
        time = 1000 - COMM_BLOCK_S - COMM_BLOCK_D - buffer_num
        ledger.run((COMM_BLOCK_S, COMM_BLOCK_D, buffer_num), time)

    a, c = torch.zeros(8, 2), torch.zeros(4, 4)
    reverse_all2all(a, c, rank_size=2)
    assert ledger.total == 40 * RUNS + 1
    best = reverse_all2all.best_configs.get(key_fn(a, c, 2))
    assert best == {"COMM_BLOCK_S": 64, "COMM_BLOCK_D": 512, "buffer_num": 2}


def test_layers_forward_autotune_through_wrappers(ledger, clock):
    @autotune(
        config_space=[{"config": config(m, 64)} for m in (64, 32)],
        key_fn=lambda a, *args, **kwargs: to_hashable(a),
        timer=clock,
    )
    def gemm(a, config):
        ledger.run(config.kwargs["BLOCK_M"], config.kwargs["BLOCK_M"])
        return config.kwargs["BLOCK_M"]

    class Layer:
        def __init__(self, autotune=True):
            self.autotune = autotune

        def forward(self, x):
            return gemm(x, autotune=self.autotune)

    x = torch.zeros(2)
    assert Layer(autotune=False).forward(x) == 64  # entry 0
    assert ledger.total == 1
    assert Layer().forward(x) == 32
    assert gemm(x, autotune=True, autotune_verbose=False, autotune_pg=None) == 32
    assert Layer(autotune=False).forward(x) == 64
    with pytest.raises(ValueError, match="config"):
        gemm(x, config=config(128, 64))
    with pytest.raises(ValueError, match="config"):
        gemm(x, config(128, 64))  # by position too
    assert ledger.total == 1 + 2 * RUNS + 1 + 2


def test_every_new_m_is_a_new_key_and_an_old_one_is_known(ledger, clock):
    @autotune(
        config_space=[{"config": config(m, 64)} for m in (32, 64)],
        key_fn=lambda a, *args, **kwargs: to_hashable(a),
        timer=clock,
    )
    def gemm(a, config):
        block = config.kwargs["BLOCK_M"]
        ledger.run(block, 10 if (block == 32) == (a.shape[0] < 100) else 20)
        return block

    sizes = [8, 200, 16, 8, 300, 200, 16, 8]
    for m in sizes:
        assert gemm(torch.zeros(m, 2)) == (32 if m < 100 else 64)
    assert ledger.total == 4 * (2 * RUNS + 1) + 4
    assert len(gemm.best_configs) == 4


def test_warm_calls_after_three_eager_ones_do_nothing_but_the_launch(ledger, clock):
    """A model is run three times eagerly, then captured: the captured calls must be plain ones."""

    @autotune(
        config_space=[{"config": config(m, 64)} for m in (32, 64)],
        key_fn=lambda a, *args, **kwargs: to_hashable(a),
        timer=clock,
    )
    def gemm(a, config):
        ledger.run(config.kwargs["BLOCK_M"], 10)
        return a

    x = torch.zeros(2)
    for _ in range(3):
        gemm(x)
    assert ledger.total == 2 * RUNS + 3
    for call in range(20):
        assert gemm(x) is x
        assert ledger.total == 2 * RUNS + 4 + call


def test_a_tuned_launcher_inside_a_tuned_launcher(ledger, clock):
    @autotune(config_space=[{"r": 1}, {"r": 2}], key_fn=lambda x, **kwargs: len(x), timer=clock)
    def reduce(x, r):
        ledger.run(("reduce", r), 5 * r)
        return r

    @autotune(config_space=[{"s": 3}, {"s": 4}], key_fn=lambda x, **kwargs: len(x), timer=clock)
    def chunked(x, s):
        ledger.run(("chunked", s), 10 * s)
        return s, reduce(x)

    assert chunked([1, 2]) == (3, 1)
    assert ledger.runs["reduce", 2] == RUNS
    assert ledger.runs["chunked", 3] >= RUNS + 1
    record = chunked.result([1, 2])
    times = {c.config["s"]: set(c.samples_ns) for c in record.candidates}
    assert times == {3: {35}, 4: {45}}  # no sample holds the inner tuning


def test_the_tools_read_all_timings_of_all_candidates(ledger, clock):
    @autotune(
        config_space=[{"config": config(m, 64)} for m in (64, 32, 128)],
        key_fn=lambda a, b, **kwargs: (to_hashable(a), to_hashable(b)),
        timer=clock,
    )
    def gemm(a, b, config):
        if config.kwargs["BLOCK_M"] == 128:
            raise RuntimeError("out of shared memory")
        ledger.run(config.kwargs["BLOCK_M"], 1_000_000 * config.kwargs["BLOCK_M"])

    gemm(*matrices())
    [file] = pathlib.Path(gemm.func_dir()).glob("*.json")
    data = load_autotune_data(file)
    assert data["func"] == "gemm"
    (shape, stride, dtype), _ = data["key"]
    assert (shape, stride, dtype) == ((8, 2), (2, 1), torch.float16)
    times = [time for time, _ in data["config"]]
    assert times[:2] == [32.0, 64.0]
    assert times[2] == float("inf")
    assert len({entry["config"] for _, entry in data["config"]}) == 3
