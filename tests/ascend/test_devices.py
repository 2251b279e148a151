"""Two devices, side streams, and runtime errors, through torch.npu."""

import threading

import disttune
import pytest
import torch
from disttune._torch_device import stream_of


def make(body, space=("a", "b"), **options):
    return disttune.autotune(
        config_space=[{"c": name} for name in space],
        key_fn=lambda x: x.shape,
        **{"warmup": 1, "repeat": 2, **options},
    )(body)


def busy(runtime, microseconds, device=None):
    runtime.npu_contract_busy(torch.npu.current_stream(device).npu_stream, microseconds)


def statuses(record):
    return {candidate.config["c"]: candidate.status for candidate in record.candidates}


def test_a_stream_has_one_device_object():
    """Or a tuning would open a timer for each launch."""
    x, y = torch.ones(2, device="npu:0"), torch.ones(2, device="npu:1")
    device, handle = stream_of((x,), {})
    assert stream_of((x,), {}) == (device, handle)
    assert stream_of((y,), {})[0] is not device
    with torch.npu.stream(torch.npu.Stream()):
        assert stream_of((x,), {})[1] != handle


def test_the_tensors_device_is_timed_and_the_current_one_stays(runtime, report):
    torch.npu.set_device(0)

    def launch(x, c):
        busy(runtime, {"a": 200_000, "b": 1000}[c], x.device)

    tuned = make(launch)
    x = torch.ones(8, device="npu:1")
    misuse = report()["misuse"]
    tuned(x)
    record = tuned.result(x)
    assert record.gate == "value_wait"
    assert record.winner == {"c": "b"}
    for candidate in record.candidates:
        assert all(ns >= {"a": 2e8, "b": 1e6}[candidate.config["c"]] for ns in candidate.samples_ns)
    assert torch.npu.current_device() == 0
    assert report()["misuse"] == misuse


def test_a_side_stream_is_the_one_that_is_timed(runtime):
    seen = set()

    def launch(x, c):
        seen.add(torch.npu.current_stream().npu_stream)
        busy(runtime, {"a": 200_000, "b": 1000}[c])

    tuned = make(launch)
    x = torch.ones(8, device="npu")
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        tuned(x)
        assert torch.npu.current_stream().npu_stream == side.npu_stream
    record = tuned.result(x)
    assert seen == {side.npu_stream}
    assert record.gate == "value_wait"
    assert record.winner == {"c": "b"}
    for candidate in record.candidates:
        assert all(ns >= {"a": 2e8, "b": 1e6}[candidate.config["c"]] for ns in candidate.samples_ns)


def test_work_forked_to_another_stream_and_joined_is_in_the_sample(runtime):
    def launch(x, c):
        own, other = torch.npu.current_stream(), torch.npu.Stream()
        other.wait_stream(own)
        with torch.npu.stream(other):
            busy(runtime, {"a": 200_000, "b": 1000}[c])
        own.wait_stream(other)

    tuned = make(launch)
    x = torch.ones(8, device="npu")
    tuned(x)
    record = tuned.result(x)
    assert record.gate == "value_wait"
    assert record.winner == {"c": "b"}
    for candidate in record.candidates:
        assert all(ns >= {"a": 2e8, "b": 1e6}[candidate.config["c"]] for ns in candidate.samples_ns)


def test_another_thread_tunes_on_its_own_current_device(runtime):
    found = []

    def launch(x, c):
        busy(runtime, {"a": 200_000, "b": 500}[c], x.device)

    tuned = make(launch)

    def work():
        x = torch.ones(8, device="npu:1")
        tuned(x)
        found.append(tuned.result(x).winner)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [{"c": "b"}]


def test_a_failing_operator_fails_its_candidate_alone(fail_next):
    def launch(x, c):
        if c == "a":
            fail_next("aclnnAdds", 561000)
        return x + 1

    tuned = make(launch)
    x = torch.ones(3, device="npu")
    assert tuned(x).tolist() == [2, 2, 2]
    record = tuned.result(x)
    assert statuses(record) == {"a": "launch_failed", "b": "ok"}
    assert record.winner == {"c": "b"}


def test_a_kernel_that_faults_fails_its_candidate_alone(runtime, fail_next):
    def launch(x, c):
        busy(runtime, 100)
        if c == "a":
            fail_next("aclrtSynchronizeStream", 507015)

    tuned = make(launch)
    x = torch.ones(3, device="npu")
    tuned(x)
    record = tuned.result(x)
    assert statuses(record) == {"a": "launch_failed", "b": "ok"}
    (reason,) = [c.reason for c in record.candidates if c.status != "ok"]
    assert "507015" in reason
    assert "AI Core exception" in reason


@pytest.mark.parametrize("api", ["aclrtRecordEvent", "aclrtEventElapsedTime"])
def test_an_event_call_that_fails_once_leaves_a_choice(runtime, fail_next, api):
    armed = []

    def launch(x, c):
        busy(runtime, {"a": 200_000, "b": 500}[c])
        if not armed:
            armed.append(True)
            fail_next(api, 107006 if api == "aclrtEventElapsedTime" else 507000)

    tuned = make(launch, space=("a", "b"))
    x = torch.ones(3, device="npu")
    tuned(x)
    record = tuned.result(x)
    assert statuses(record)["b"] == "ok"
    assert record.winner == {"c": "b"}


def test_an_allocation_that_fails_falls_back_to_torchs_events(runtime, fail_next):
    """What disttune needs for its gate cannot be had: an error that says so, nothing stored."""

    def launch(x, c):
        busy(runtime, 100)

    tuned = make(launch)
    x = torch.ones(3, device="npu")
    fail_next("aclrtCreateEventExWithFlag", 207007)
    with pytest.raises(disttune.Error, match="207007"):
        tuned(x)
    tuned(x)  # the next call tunes
    assert statuses(tuned.result(x)) == {"a": "ok", "b": "ok"}


def test_a_lost_device_ends_the_tuning_and_stores_nothing(run_program, store):
    ended = run_program(LOST)
    assert ended.said is not None
    assert "DeviceLost" in ended.process.stdout
    assert "507010" in ended.process.stdout
    assert "'b'" in ended.process.stdout or '"b"' in ended.process.stdout
    assert list(store.glob("*/*.json")) == []


LOST = """
import ctypes, os
import disttune, torch
runtime = ctypes.CDLL(os.environ["NPU_CONTRACT_LIB"] + "/libascendcl.so")

@disttune.autotune([{"c": "a"}, {"c": "b"}, {"c": "c"}], lambda x: x.shape, warmup=1, repeat=2)
def launch(x, c):
    x + 1
    if c == "b":
        runtime.npu_contract_fail_next(b"aclrtStreamQuery", 507010, 0)

x = torch.ones(3, device="npu")
try:
    launch(x)
except disttune.DeviceLost as error:
    print("DeviceLost", error)
"""


def test_a_task_that_never_ends_is_an_error_within_bounds(run_program, store):
    ended = run_program(HANGS, TRITON_DIST_AUTOTUNE_TIMEOUT="5")
    assert "ended DeviceLost" in ended.process.stdout
    assert '[1] c="b"' in ended.process.stdout
    assert "never ends" in ended.process.stdout
    assert list(store.glob("*/*.json")) == []
    # The next process leaves the candidate alone, and says so.
    again = run_program(HANGS, TRITON_DIST_AUTOTUNE_TIMEOUT="5", HANG="no")
    assert "ended None" in again.process.stdout
    assert "statuses ['ok', 'timed_out', 'ok']" in again.process.stdout


HANGS = """
import ctypes, os, time
import disttune, torch
runtime = ctypes.CDLL(os.environ["NPU_CONTRACT_LIB"] + "/libascendcl.so")
runtime.npu_contract_hang.argtypes = runtime.npu_contract_release.argtypes = [ctypes.c_void_p]
hung = []

@disttune.autotune([{"c": "a"}, {"c": "b"}, {"c": "c"}], lambda x: x.shape, warmup=1, repeat=2)
def launch(x, c):
    x + 1
    if c == "b" and "HANG" not in os.environ:
        hung.append(torch.npu.current_stream().npu_stream)
        runtime.npu_contract_hang(hung[-1])

x = torch.ones(3, device="npu")
error = None
began = time.monotonic()
try:
    launch(x)
    print("statuses", [c.status for c in launch.result(x).candidates])
except Exception as raised:
    error = raised
assert time.monotonic() - began < 60
print("ended", type(error).__name__ if error else None, error)
for stream in hung:  # so that the interpreter's own exit need not wait
    runtime.npu_contract_release(stream)
"""
