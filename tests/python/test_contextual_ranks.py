"""contextual_autotune(is_dist=True) with ranks as processes of a gloo world."""

import pathlib

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
from test_torch_group import run

WORKER = pathlib.Path(__file__).parent / "workers" / "contextual_rank.py"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return run(
        "slowest failing_one collectives held different_launches nothing_works pruned "
        "new_keys modes stored unwritable raised".split(),
        2,
        tmp_path_factory.mktemp("two"),
        worker=WORKER,
    )


def test_the_slowest_rank_decides(two):
    said = two["slowest"]
    assert [said[rank]["best"] for rank in (0, 1)] == [2, 2]
    assert said[0]["passes"] == said[1]["passes"]
    assert [said[rank]["steady"] for rank in (0, 1)] == [1, 1]


def test_a_candidate_that_fails_on_one_rank_is_launched_no_more(two):
    said = two["failing_one"]
    assert [said[rank]["best"] for rank in (0, 1)] == [2, 2]
    assert max(said[rank]["launches_of_failing"] for rank in (0, 1)) <= 1
    assert said[0]["passes"] == said[1]["passes"]


def test_an_outer_function_with_collectives_of_its_own(two):
    said = two["collectives"]
    assert [said[rank]["sum"] for rank in (0, 1)] == [3.0, 3.0]
    assert said[0]["best"] == said[1]["best"]


def test_a_key_that_kernels_hold_already_counts_only_where_all_hold_the_same(two):
    said = two["held"]
    assert [said[rank]["same"] for rank in (0, 1)] == [4, 4]
    assert [said[rank]["same_passes"] for rank in (0, 1)] == [2, 2]
    assert [said[rank]["mixed"] for rank in (0, 1)] == [1, 1]


def test_different_launches_are_the_same_error(two):
    said = two["different_launches"]
    assert said[0]["error"] == "Disagreement"
    assert said[0]["text"] == said[1]["text"]
    assert "gemm" in said[0]["text"]


def test_where_nothing_works_all_ranks_say_so_and_go_on(two):
    said = two["nothing_works"]
    assert [said[rank]["error"] for rank in (0, 1)] == ["NoValidConfig"] * 2
    assert said[0]["text"] == said[1]["text"]
    assert "fails here" in said[0]["text"]
    assert said[0]["next"] == said[1]["next"]


def test_where_pruning_leaves_nothing_on_a_rank_all_say_so_and_go_on(two):
    for where in ("here", "everywhere"):
        said = [two["pruned"][rank][where] for rank in (0, 1)]
        assert [one["error"] for one in said] == ["NoValidConfig"] * 2
        assert said[0]["text"] == said[1]["text"]
        assert "(on rank 0)" in said[0]["text"]
        assert [one["next"] for one in said] == [2, 2]


def test_new_keys_in_every_pass_end_the_call_alike(two):
    assert [two["new_keys"][rank]["passes"] for rank in (0, 1)] == [5, 5]


def test_different_modes_are_the_same_error(two):
    said = two["modes"]
    assert said[0]["error"] == "Disagreement"
    assert "MODE" in said[0]["text"]
    assert said[0]["text"] == said[1]["text"]
    assert said[0]["next"] == said[1]["next"]


def test_a_record_that_one_rank_holds_is_adopted_and_grown_by_all(two):
    for rank in (0, 1):
        said = two["stored"][rank]
        assert said["adopted"]["best"] == 2
        assert said["adopted"]["passes"] <= 2
        assert said["again"]["passes"] <= 2
        assert said["grown"]["best"] == 1
        # Entry 0 runs while the ranks have not spoken; of the stored ones the best alone.
        assert said["grown"]["blocks"].count(4) == 0
        assert said["files"] == 1


def test_a_store_that_cannot_be_written_warns_once(two):
    assert [len(two["unwritable"][rank]["warned"]) for rank in (0, 1)] == [1, 1]


def test_an_exception_on_one_rank_reaches_the_other(two):
    said = two["raised"]
    assert said[0]["error"] == "ZeroDivisionError"
    assert said[1]["error"] == "PeerFailed"
    assert "rank 0" in said[1]["text"]
