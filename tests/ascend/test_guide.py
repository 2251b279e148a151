"""The guide's two examples on device="npu", not a word changed.

A launch in the interpreter copies its arguments to the host and back, so it waits for its stream:
the gate opens by itself, the launches are timed ungated, and the record says so. Launches that do
not wait are in test_gate.py and test_native_road.py.
"""

#: Counts for runs where the number of samples is not the point: the interpreter is slow.
FEW = {"TRITON_DIST_AUTOTUNE_WARMUP": "1", "TRITON_DIST_AUTOTUNE_REPEAT": "1"}


def test_function_level(run_program, guide, store):
    ended = run_program(guide("function_level"))
    said = ended.said
    assert said["statuses"] == ["ok"] * 8
    assert all(len(samples) == 10 for samples in said["samples"])
    assert all(ns > 0 for samples in said["samples"] for ns in samples)
    assert said["quality"] == ["ungated"]
    assert said["hardware"]["soc"] == "Ascend910B2"
    assert said["deps"]["cann_runtime"] == "8.5.0"
    assert len(list(store.glob("*/*.json"))) == 1

    # A second process adopts the record: no candidate is visited again.
    again = run_program(guide("function_level"))
    assert again.said["samples"] == said["samples"]
    assert again.said["winner"] == said["winner"]
    assert again.report["calls"].get("aclrtEventElapsedTime", 0) == 0


def test_contextual(run_program, guide, tmp_path):
    ended = run_program(guide("contextual"))
    assert len(ended.said["keys"]) == 1
    assert "262144" in ended.said["keys"][0]
    assert ended.said["timed"] == 2
    assert ended.said["best"] != "None"
    assert ended.report["calls"]["aclrtEventElapsedTime"] >= 2 * 3
    assert list((tmp_path / "context").glob("*.log"))


def test_function_level_leaves_nothing(run_program, guide):
    """Compared with the same program where nothing is tuned."""
    text = guide("function_level")
    tuned = run_program(text, "tuned", **FEW).report
    plain = run_program(text, "plain", TRITON_DIST_AUTOTUNE_MODE="off").report
    compare(tuned, plain)


def test_contextual_leaves_nothing(run_program, guide):
    text = guide("contextual").replace("n_repeat=3, n_warmup=2", "n_repeat=1, n_warmup=1")
    tuned = run_program(text, "tuned").report
    text = text.replace("from triton_dist.autotuner import contextual_autotune", "")
    text = text.replace("@contextual_autotune(is_dist=False, n_repeat=1, n_warmup=1)", "")
    text = text.replace("for warps in (4, 8)", "for warps in (4,)")  # Triton tunes nothing itself
    text = text.replace("assert scale_kernel.best_config is not None", "")
    compare(tuned, run_program(text, "plain").report)


def compare(tuned, plain):
    assert tuned["calls"]["aclrtEventElapsedTime"] > 0
    assert not any(tuned["misuse"].values()), tuned["misuse"]
    assert tuned["unimplemented"] == plain["unimplemented"]
    assert tuned["live"] == plain["live"]
