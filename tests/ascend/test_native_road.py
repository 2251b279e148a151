"""The guide's examples through triton-ascend's own driver, compiler passes and launcher.

Only the device compiler is replaced: a kernel is its host twin, a task on the stream (tests/
ascend_contract/native). Nothing is repaired, nothing waits: launches are timed behind the gate.
"""


def test_function_level(run_program, guide, native):
    ended = run_program(guide("function_level"), **native)
    said = ended.said
    assert said["gate"] == "value_wait"
    assert said["quality"] == []
    assert said["statuses"] == ["ok"] * 8
    assert all(len(samples) == 10 for samples in said["samples"])
    assert said["winner"]["BLOCK"] == 1024  # the twin's fastest
    assert not any(ended.report["misuse"].values())


def test_contextual(run_program, guide, native):
    ended = run_program(guide("contextual"), **native)
    assert len(ended.said["keys"]) == 1
    assert ended.said["timed"] == 2
    assert ended.report["calls"]["aclrtValueWait"] > 0
    assert not any(ended.report["misuse"].values())
