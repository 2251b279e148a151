"""Samples on torch.npu: a kernel of known length, behind each of the gates."""

import time

import disttune
import pytest
import torch

HOST_SECONDS = 0.3  # what the launcher spends on the host, far above its kernels
KERNELS_US = {"slow": 100_000, "fast": 1000}


@pytest.fixture
def launcher(runtime):
    """A launcher that queues a kernel and then dawdles; and what it saw of the stream."""
    seen = []

    def make(before_launch=lambda: None, **options):
        @disttune.autotune(
            config_space=[{"kernel": name} for name in KERNELS_US],
            key_fn=lambda x: x.shape,
            **{"warmup": 1, "repeat": 3, **options},
        )
        def launch(x, kernel):
            before_launch()
            handle = torch.npu.current_stream().npu_stream
            time.sleep(HOST_SECONDS)
            runtime.npu_contract_busy(handle, KERNELS_US[kernel])
            mark = torch.npu.Event()
            mark.record()
            time.sleep(HOST_SECONDS)
            seen.append(mark.query())

        return launch, seen

    return make


def samples(record):
    return {
        candidate.config["kernel"]: [ns / 1000 for ns in candidate.samples_ns]
        for candidate in record.candidates
    }


def check_gated(launch, seen, gate):
    x = torch.ones(8, device="npu")
    launch(x)
    record = launch.result(x)
    assert record.gate == gate
    assert record.winner == {"kernel": "fast"}
    for name, found in samples(record).items():
        assert len(found) == 3
        for microseconds in found:
            # Of its own length, and what the host did before and behind it is not in it.
            assert KERNELS_US[name] <= microseconds < 0.9 * HOST_SECONDS * 1e6
    # Untimed, three timed, for both; the last is the call's own. Timed ones were held.
    assert [finished for finished in seen if not finished] == [False] * 6
    assert len(seen) == 9


def test_a_value_wait_holds_the_stream(launcher, report):
    before = report()["calls"].get("aclrtValueWait", 0)
    check_gated(*launcher(), "value_wait")
    assert report()["calls"]["aclrtValueWait"] > before


def test_without_value_wait_the_host_function_serves(launcher, monkeypatch, report):
    monkeypatch.setenv("NPU_CONTRACT_NO_VALUE_WAIT", "1")
    before = report()["calls"].get("aclrtLaunchHostFunc", 0)
    check_gated(*launcher(), "host_function")
    assert report()["calls"]["aclrtLaunchHostFunc"] > before


def test_without_both_plain_events_serve(launcher, monkeypatch, fail_next):
    monkeypatch.setenv("NPU_CONTRACT_NO_VALUE_WAIT", "1")
    # Each candidate's first hold asks anew.
    launch, seen = launcher(lambda: fail_next("aclrtLaunchHostFunc", 207000))
    fail_next("aclrtLaunchHostFunc", 207000)
    x = torch.ones(8, device="npu")
    launch(x)
    record = launch.result(x)
    assert record.gate == "none"
    assert all(us >= HOST_SECONDS * 1e6 for found in samples(record).values() for us in found)
    assert seen == [True] * 9  # nothing was held


def test_a_cold_tuning_flushes_the_cache(launcher, report):
    launch, _ = launcher(cache="cold")
    before = report()
    launch(torch.ones(8, device="npu"))
    after = report()
    assert after["calls"]["aclrtMemsetAsync"] - before["calls"].get("aclrtMemsetAsync", 0) >= 6
    assert after["live"]["device_bytes"] == before["live"]["device_bytes"] or (
        # torch's own allocator keeps the caller's block
        after["live"]["device_bytes"] - before["live"]["device_bytes"] < 64 << 20
    )


def test_a_launcher_that_synchronises_is_let_through(runtime):
    """A launcher that waits behind the closed gate is released and timed as it can be."""

    @disttune.autotune(
        config_space=[{"us": 200_000}, {"us": 500}], key_fn=lambda x: x.shape, warmup=1, repeat=3
    )
    def launch(x, us):
        runtime.npu_contract_busy(torch.npu.current_stream().npu_stream, us)
        return x.sum().item()

    x = torch.ones(8, device="npu")
    assert launch(x) == 8
    record = launch.result(x)
    assert [candidate.status for candidate in record.candidates] == ["ok", "ok"]
    assert record.winner == {"us": 500}
    assert "ungated" in record.quality  # there is a gate, and the launcher defeated it
