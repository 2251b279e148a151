"""Ranks as processes of an hccl world, one device each."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def run(scenarios, size, folder, limit=900):
    """Start the ranks; return what each said, by scenario and rank."""
    text = (HERE / "guide" / "function_level.txt").read_text()
    launcher, _ = text.split("x = torch.randn")
    (folder / "launcher.py").write_text(launcher)
    (folder / "call.py").write_text((HERE / "guide" / "group_call.txt").read_text())
    text = (HERE / "guide" / "contextual.txt").read_text()
    (folder / "contextual.py").write_text(text.replace("is_dist=False", "is_dist=True"))
    environment = {
        **os.environ,
        "NPU_CONTRACT_DEVICES": str(size),
        "TRITON_DIST_AUTOTUNE_HOME": str(folder / "records"),
        "TRITON_DIST_AUTOTUNE_CONTEXT_LOGS": str(folder / "context"),
        "TRITON_DIST_AUTOTUNE_WARMUP": "1",
        "TRITON_DIST_AUTOTUNE_REPEAT": "2",
    }
    ranks = []
    for rank in range(size):
        command = [sys.executable, HERE / "rank_program.py", ",".join(scenarios), str(rank)]
        command += [str(size), f"file://{folder}/meeting", folder]
        log = (folder / f"rank-{rank}.err").open("w")
        ranks.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        )
    found = {scenario: {} for scenario in scenarios}
    try:
        for rank, process in enumerate(ranks):
            out, _ = process.communicate(timeout=limit)
            assert process.returncode == 0, (folder / f"rank-{rank}.err").read_text()
            for line in out.splitlines():
                if line.startswith("{"):
                    said = json.loads(line)
                    found[said.pop("scenario")][rank] = said
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return found


def alike(said, size):
    assert sorted(said) == list(range(size))
    assert all(said[rank] == said[0] for rank in said)
    return said[0]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    scenarios = "guide_call slowest failing_one contextual contextual_slowest misuse".split()
    return run(scenarios, 2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return run("guide_call slowest failing_one misuse".split(), 4, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize("size", [2, 4])
class TestFunctionLevel:
    @pytest.fixture
    def said(self, request, size):
        return request.getfixturevalue({2: "two", 4: "four"}[size])

    def test_the_guides_call_with_a_process_group(self, said, size):
        found = alike(said["guide_call"], size)
        assert "BLOCK" in found["choice"]
        assert found["collectives"] == 0  # agreement never runs on the communicator being tuned

    def test_the_slowest_rank_decides(self, said, size):
        found = alike(said["slowest"], size)
        assert found["winner"] == "c"
        assert found["at_least"] >= 800_000_000

    def test_a_candidate_that_fails_on_one_rank_is_failed_on_all(self, said, size):
        found = alike(said["failing_one"], size)
        assert found["winner"] == "c"
        assert found["statuses"][0] == found["statuses"][2] == "ok"
        assert found["statuses"][1] != "ok"

    def test_nothing_is_misused(self, said, size):
        assert alike(said["misuse"], size) == {"misuse": {}}


def test_the_guides_second_example_with_ranks(two):
    assert alike(two["contextual"], 2)["keys"] == 1


def test_the_slowest_rank_decides_in_context(two):
    found = alike(two["contextual_slowest"], 2)
    assert found["best"] == 256
    assert found["steady"] == 1
