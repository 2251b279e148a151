"""Devices that are written in Python, by what the session makes of them."""

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
    return {_core.load_record(found["file"]).policy["clock"] for found in _core.list_store()}


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
    assert len(_core.list_store()) == 2
    assert clocks_in_records() == {"the clock of the second thread to ask"}
