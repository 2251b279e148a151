"""Devices made from a torch device module, with a stand-in for the module."""

import time

import disttune
import pytest
from disttune import _core
from disttune._torch_device import TorchDevice, current_device_index, stream_of

torch = pytest.importorskip("torch")


class Event:
    """A mark: its place in the list of what was queued, and the clock then."""

    def __init__(self, module, enable_timing):
        assert enable_timing
        self.module = module
        self.at = None

    def record(self, stream):
        # Events of one device cannot be recorded while another is current.
        assert self.module.current == stream.index
        self.module.queued.append(("mark", stream.index))
        self.at = self.module.clock

    def query(self):
        if self.module.error is not None:
            raise RuntimeError(self.module.error)
        self.module.queries += 1
        return self.module.queries > self.module.busy_for

    def elapsed_time(self, other):
        return (other.at - self.at) * 1.0


class Stream:
    def __init__(self, index):
        self.index = index
        self.npu_stream = 0x1000 + index


class Properties:
    def __init__(self, memory):
        self.total_memory = memory
        self.vector_core_num = 48


class Module:
    """What torch_npu adds to torch, as far as disttune uses it."""

    def __init__(self, memories=(64 << 30, 64 << 30)):
        self.memories = memories
        self.current = 0
        self.clock = 0
        self.queued = []
        self.queries = 0
        self.busy_for = 0
        self.error = None
        self.switches = []

    def Event(self, enable_timing=False):
        return Event(self, enable_timing)

    def is_initialized(self):
        return True

    def current_device(self):
        return self.current

    def set_device(self, index):
        self.switches.append(index)
        self.current = index

    def device_count(self):
        return len(self.memories)

    def current_stream(self, index):
        return Stream(index)

    def get_device_name(self, index):
        return "Ascend910B"

    def get_device_properties(self, index):
        return Properties(self.memories[index])


class Tensor(torch.Tensor):
    """A tensor that says that it lies on an accelerator."""

    @property
    def device(self):
        return self.place

    def get_device(self):
        return self.place.index


def tensor(kind="npu", index=0):
    made = torch.zeros(1).as_subclass(Tensor)
    made.place = type("Place", (), {"type": kind, "index": index})
    return made


@pytest.fixture
def npu(monkeypatch):
    module = Module()
    monkeypatch.setattr(torch, "npu", module, raising=False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None, raising=False)
    return module


def test_the_first_tensor_on_an_accelerator_decides(npu):
    on_host = torch.zeros(1)
    device, handle = stream_of((3, on_host, tensor(index=1)), {"y": tensor(index=0)})
    assert (device.kind, device.index(), handle) == ("torch.npu", 1, 0x1001)
    device, handle = stream_of((3,), {"y": tensor(index=0)})
    assert (device.index(), handle) == (0, 0x1000)
    assert stream_of((on_host,), {}) is None


def test_without_tensors_the_device_in_use_is_meant(npu, monkeypatch):
    npu.current = 1
    device, _ = stream_of((3, "x"), {})
    assert device.index() == 1
    assert current_device_index() == 1
    monkeypatch.setattr(npu, "is_initialized", lambda: False)
    assert stream_of((3, "x"), {}) is None
    assert current_device_index() == -1


def test_one_device_is_one_object(npu):
    assert stream_of((tensor(index=1),), {})[0] is stream_of((tensor(index=1),), {})[0]


def test_times_are_those_of_the_events(npu):
    timer = TorchDevice("npu", 0).open(0, 2)
    timer.start(0)
    npu.clock += 3
    timer.stop(0)
    timer.start(1)
    npu.clock -= 1  # a clock that goes backwards gives no time
    timer.stop(1)
    assert timer.synchronize(time.monotonic() + 60)
    assert timer.elapsed_ns(0) == 3_000_000
    assert timer.elapsed_ns(1) == 0
    assert timer.gate == "none"


def test_S79_marks_go_to_the_tensors_device_and_the_current_one_comes_back(npu):
    timer = TorchDevice("npu", 1).open(0, 1)
    timer.start(0)
    timer.stop(0)
    assert npu.queued == [("mark", 1), ("mark", 1)]
    assert npu.current == 0
    npu.error = "poisoned"
    with pytest.raises(_core.DeviceLost, match="poisoned"):
        timer.synchronize(time.monotonic() + 60)
    assert npu.current == 0


def test_waiting_ends_at_the_deadline(npu):
    npu.busy_for = 10**9
    assert not TorchDevice("npu", 0).open(0, 1).synchronize(time.monotonic())
    npu.busy_for, npu.queries = 3, 0
    assert TorchDevice("npu", 0).open(0, 1).synchronize(time.monotonic() + 60)


def test_the_fingerprint_has_hardware_only(npu):
    found = TorchDevice("npu", 0).fingerprint()
    assert found == {
        "device": "torch.npu",
        "name": "Ascend910B",
        "memory_gib": 64,
        "vector_core_num": 48,
    }
    assert TorchDevice("npu", 0).uniform()
    npu.memories = (64 << 30, 32 << 30)
    assert not TorchDevice("npu", 0).uniform()
    assert "torch.npu" in _core.device_fingerprint(TorchDevice("npu", 0)).text


def test_S80_one_launcher_on_two_devices_decides_for_each(npu, clock):
    npu.memories = (64 << 30, 32 << 30)  # devices that differ have records of their own

    def launch(x, block):
        clock.spend(block if x.place.index == 0 else 1000 - block)
        return x.place.index, block

    tuned = disttune.autotune([{"block": 100}, {"block": 900}], None, timer=clock)(launch)
    for _ in range(2):
        assert tuned(tensor(index=0)) == (0, 100)
        assert tuned(tensor(index=1)) == (1, 900)
    files = [tuned.explain(tensor(index=i)).file for i in (0, 1)]
    assert files[0] != files[1]
    assert [tuned.result(tensor(index=i)).winner["block"] for i in (0, 1)] == [100, 900]
