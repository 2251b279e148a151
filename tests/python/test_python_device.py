"""Devices that are written in Python, by what the session makes of them."""

import sys
from concurrent.futures import ThreadPoolExecutor

import disttune
from disttune import _core


class Timer:
    def start(self, sample):
        pass

    stop = start

    def elapsed_ns(self, sample):
        return 1000

    def synchronize(self, deadline):
        return True


class Device(disttune.Device):
    kind = "mine"

    def open(self, stream, samples):
        return Timer()


class Attempt:
    def run(self, candidate):
        pass

    decided = run


def clocks_in_records():
    return {_core.load_record(found["file"]).policy["clock"] for found in _core.list_store()[0]}


def test_the_first_answer_of_several_threads_stays():
    """What a device is called is kept as a view: a later answer must not take its place."""
    kernel = _core.make_kernel("k", "m", [{"b": 1}, {"b": 2}], lambda: {"a": "b"})

    class Asked(Device):
        answers = 0

        @property
        def clock(self):
            self.answers += 1
            if self.answers > 1:
                return "the clock of the second thread to ask"
            with ThreadPoolExecutor(1) as other:
                other.submit(_core.decide, kernel, 2, Attempt(), device=self).result()
            return "the clock of the first thread to ask"

    _core.decide(kernel, 1, Attempt(), device=Asked())
    assert len(_core.list_store()[0]) == 2
    assert clocks_in_records() == {"the clock of the second thread to ask"}


def test_a_device_may_say_that_it_is_throttled(monkeypatch):
    kernel = _core.make_kernel("k", "m", [{"b": 1}, {"b": 2}], lambda: {"a": "b"})

    class Hot(Device):
        asked = 0

        def throttled(self):
            self.asked += 1
            return self.hot

    class Unsure(Device):
        def throttled(self):
            raise RuntimeError("the sensor does not answer")

    def quality(key, device):
        before = {found["file"] for found in _core.list_store()[0]}
        _core.decide(kernel, key, Attempt(), device=device)
        (file,) = {found["file"] for found in _core.list_store()[0]} - before
        return _core.load_record(file).tunings[0].quality

    hot = Hot()
    hot.hot = True
    assert quality(1, hot) == ["throttled"]
    hot.hot = 0  # as true or false as any object
    assert quality(2, hot) == []
    assert hot.asked == 2
    assert quality(3, Device()) == []
    # An answer that fails is reported, and ends no tuning.
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: seen.append(str(error.exc_value)))
    assert quality(4, Unsure()) == []
    assert seen == ["the sensor does not answer"]
