"""Ranks that agree through the key-value store of a torch.distributed group, as processes."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")

WORKER = pathlib.Path(__file__).parent / "workers" / "group_rank.py"


def run(scenarios, size, tmp_path, tcp=False, stopped=None, limit=240, worker=WORKER):
    """Start ``size`` ranks; return what each said, by scenario and rank (a killed one: nothing)."""
    port = socket.socket()  # bound, not listening, until the ranks are gone: nobody else gets it
    if tcp:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        init = f"tcp://127.0.0.1:{port.getsockname()[1]}"
    else:
        init = f"file://{tmp_path}/store"
    environment = {**os.environ, "TRITON_DIST_AUTOTUNE_HOME": str(tmp_path / "records")}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(worker), ",".join(scenarios), str(rank), str(size), init],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(size)
    ]
    try:
        found = {scenario: {} for scenario in scenarios}
        until = time.monotonic() + limit
        for rank, process in enumerate(ranks):
            if rank == stopped:
                continue
            out, err = process.communicate(timeout=max(1.0, until - time.monotonic()))
            assert process.returncode in (0, -signal.SIGKILL), err
            for line in out.splitlines():
                said = json.loads(line)
                found[said.pop("scenario")][rank] = said
        return found
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        port.close()


# Starting a process costs far more than a scenario, so those that leave the ranks alive share one.
@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return run(
        "maxima old_keys forgotten slow failing pruning withdrawn alike out_of_step lengths notes "
        "defaults tuned crossed unannounced impatient absent".split(),
        2,
        tmp_path_factory.mktemp("two"),
        tcp=True,
    )


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return run(["maxima", "subgroups", "failing", "again", "absent", "killed"], 4,
               tmp_path_factory.mktemp("four"))  # fmt: skip


@pytest.fixture
def world(request):
    return request.getfixturevalue(request.param)


both = pytest.mark.parametrize("world, size", [("two", 2), ("four", 4)], indirect=["world"])


@both
def test_all_ranks_get_the_same_maximum(world, size):
    wanted = [
        [size - 1, 0, -(2**62) + size - 1, 2**62 + call * turn]
        for call in range(1, 4)
        for turn in range(3)
    ]
    for rank in range(size):
        found = world["maxima"][rank]
        assert found["results"] == wanted
        assert found["nodes"] == [size]
        assert found["seat"] == rank


def test_groups_side_by_side_have_rank_numbers_of_their_own(four):
    found = four["subgroups"]
    assert [found[r]["found"] for r in range(4)] == [[3], [2], [2], [3]]
    assert [found[r]["seat"] for r in range(4)] == [0, 0, 1, 1]
    for rank in range(4):
        assert found[rank]["world"] == [3]
        assert found[rank]["outside"]["error"] == "ValueError"
        assert "not a member" in found[rank]["outside"]["text"]
        assert found[rank]["same"]


def test_a_world_made_anew_and_a_destroyed_group(four):
    for found in four["again"].values():
        assert found["found"] == [[3], [4], [5]]
        assert found["destroyed"]["error"] == "ValueError"
        assert "destroyed" in found["destroyed"]["text"]


def test_keys_of_an_earlier_life_are_never_taken_for_arrivals(two):
    for found in two["old_keys"].values():
        assert found["found"] == [[1], [2], [3]]


def test_old_keys_are_deleted(two):
    first, last = two["forgotten"][0]["counts"]
    assert last <= first


def test_a_killed_rank_is_named_within_the_deadline(four):
    found = four["killed"]
    assert sorted(found) == [0, 1, 2]
    for rank in range(3):
        assert found[rank]["error"] == "GroupTimeout"
        assert "handshake of cold call 2" in found[rank]["text"]
    assert "from rank 3 within 1.5 s" in found[0]["text"]


def test_the_rank_that_holds_the_store_dies_and_the_others_know_at_once(tmp_path):
    found = run(["lowest_killed"], 2, tmp_path, tcp=True)["lowest_killed"]
    assert found[1]["error"] == "GroupTimeout"
    assert "key-value store" in found[1]["text"]
    # The deadline is half a minute: a broken connection does not wait for it.
    assert found[1]["seconds"] < 15


def test_a_store_that_hangs_ends_in_a_timeout(tmp_path):
    found = run(["stopped_store"], 2, tmp_path, tcp=True, stopped=0)["stopped_store"]
    assert found[1]["error"] == "GroupTimeout"
    assert "does not answer" in found[1]["text"]


def test_S45_signs_of_life_keep_the_others_waiting(two):
    assert [two["slow"][r]["error"] for r in range(2)] == [None, None]
    assert two["slow"][0]["seconds"] > 3.0


@both
def test_a_rank_that_fails_is_named(world, size):
    for rank in set(range(size)) - {1}:
        found = world["failing"][rank]
        assert found["error"] == "PeerFailed"
        assert "rank 1 ended cold call 2" in found["text"]
        assert "no such tile" in found["text"]


def test_what_the_callers_function_raised_is_named_on_the_other_ranks(two):
    assert two["pruning"][1]["error"] == "LookupError"
    assert two["pruning"][0]["error"] == "PeerFailed"
    assert "rank 1" in two["pruning"][0]["text"]
    assert "LookupError: no such tile" in two["pruning"][0]["text"]


@pytest.mark.parametrize("scenario", ["withdrawn", "alike"])
def test_announcements_of_old_do_not_spoil_a_later_call(scenario, two):
    assert [two[scenario][r]["error"] for r in range(2)] == [None, None]


@pytest.mark.parametrize("scenario", ["out_of_step", "lengths"])
def test_S39_ranks_out_of_step_are_told_alike_with_both_sides(scenario, two):
    found = two[scenario]
    assert [found[r]["error"] for r in range(2)] == ["Disagreement", "Disagreement"]
    assert found[0]["text"] == found[1]["text"]
    assert "rank 0 in" in found[0]["text"]
    assert "rank 1 in" in found[0]["text"]


def test_notes_reach_the_others(two):
    assert two["notes"][0] == {"before": None, "after": 1, "other": None}
    assert two["notes"][1]["after"] is None


def test_the_default_group_can_be_set_and_reset(two):
    for found in two["defaults"].values():
        assert found == {"local": True, "other": True, "back": True}


def test_S42_a_rank_that_never_comes_is_named(two):
    assert two["absent"][0]["error"] == "GroupTimeout"
    assert "rank 1" in two["absent"][0]["text"]


def test_a_group_that_did_not_meet_is_closed(two):
    again = two["absent"][0]["again"]
    assert again["error"] == "GroupTimeout"
    assert "no arrival from rank 1 within 1 s" in again["text"]
    assert "closed since then" in again["text"]


def test_a_first_meeting_ends_with_the_timeout_of_the_call(two):
    assert two["impatient"][0]["errors"] == ["GroupTimeout", "GroupTimeout"]


def test_a_call_that_fails_ahead_of_the_first_meeting_is_named(two):
    mine, others = two["unannounced"][1]["found"], two["unannounced"][0]["found"]
    assert [found["error"] for found in mine] == ["ValueError", "ArithmeticError"]
    assert [found["error"] for found in others] == ["PeerFailed", "PeerFailed"]
    assert "rank 1" in others[0]["text"]
    assert "ValueError: disttune: " in others[0]["text"]
    assert "ArithmeticError: neither" in others[1]["text"]


def test_every_rank_names_the_one_that_does_not_come(four):
    for rank in (0, 2, 3):
        assert four["absent"][rank]["error"] == "GroupTimeout"
        assert "no arrival from rank 1 within" in four["absent"][rank]["text"]


def test_two_groups_meet_at_once(two):
    for found in two["crossed"].values():
        assert (found["error"], found["met"]) == (None, 1)


def test_the_slowest_rank_decides_alike_on_all_ranks(two):
    for rank, found in two["tuned"].items():
        assert (found["first"], found["again"]) == (2, 2)
        assert (found["cold"], found["warm"]) == (3 * 15 + 1, 3 * 15 + 2)
        assert found["alone"] == (1 if rank == 0 else 3)
        assert found["group"] == 2


def test_a_rank_that_hangs_in_a_run_ends_the_wait_of_the_others(tmp_path):
    found = run(["hangs_in_a_run"], 2, tmp_path)["hangs_in_a_run"]
    assert found[1]["error"] == "GroupTimeout"
    assert "rank 0" in found[1]["text"]
    assert found[0]["error"] == "GroupTimeout"  # it hears of it when its run is over


def test_a_forked_child_of_a_rank_is_told_at_once(tmp_path):
    found = run(["forked"], 2, tmp_path)["forked"]
    for rank in range(2):
        assert "forked from a rank" in found[rank]["text"]
        assert found[rank]["seconds"] < 10
