"""Warnings of the session: given where the caller stands, and once a process."""

import logging
import signal
import warnings

import disttune
import pytest
from disttune import _core


@pytest.fixture(autouse=True)
def unwritable(tmp_path, monkeypatch):
    """A store that is no folder, so that each new one is warned of once."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_HOME", str(tmp_path / "file" / "store"))
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_CONTEXT_LOGS", str(tmp_path / "file" / "logs"))


class Attempt:
    def __init__(self, error=None):
        self.error = error

    def run(self, candidate):
        if self.error is not None:
            raise self.error

    def decided(self, candidate):
        pass


def make_kernel():
    return _core.make_kernel("k", "m", [{"b": 1}, {"b": 2}], lambda: {"a": "b"})


def decide(error):
    _core.decide(make_kernel(), 1, Attempt(error))


def launch(error):
    @disttune.autotune([{"b": 1}, {"b": 2}], key_fn=None, name="f", version="1")
    def f(b):
        Attempt(error).run(b)

    f()


def contextual(error):
    call = _core.make_contextual(
        "outer", n_warmup=0, n_repeat=1, group=None, cache="hot", strategy="fixed", timer="host",
        rank=0, persist=True, decided=lambda *_: None,
    )  # fmt: skip
    kernel = make_kernel()
    last = []

    class Last(Attempt):
        def decided(self, candidate):
            last.append(candidate)

    def outer():
        call.answer(kernel, 1, Last())
        if last and error is not None:
            raise error

    outer()
    call.complete(outer)


@pytest.mark.parametrize("call", [decide, launch, contextual])
@pytest.mark.parametrize("error", [None, KeyError("mine"), KeyboardInterrupt("now")], ids=repr)
def test_a_warning_is_given_also_where_the_call_raises(call, error):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        if error is None:
            call(error)
        else:
            with pytest.raises((disttune.NoValidConfig, KeyError, KeyboardInterrupt)):
                call(error)
    assert "store" in "".join(str(warning.message) for warning in given)


@pytest.mark.parametrize("call", [decide, launch, contextual])
def test_the_error_counts_for_more_than_a_warning_that_is_one(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((disttune.NoValidConfig, KeyError)):
            call(KeyError("mine"))


@pytest.mark.parametrize("call", [decide, launch, contextual])
def test_a_warning_can_be_an_error(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(disttune.DisttuneWarning):
            call(None)


def test_a_message_that_cannot_be_shown_fails_nothing(monkeypatch, clock):
    @disttune.autotune([{"b": 2}, {"b": 1}], key_fn=None, timer=clock)
    def f(b):
        clock.spend(b)
        return b

    said = []
    monkeypatch.setattr("sys.unraisablehook", lambda raised: said.append(str(raised.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *_, **__: int("closed"))
        assert f() == 1
    assert said
    assert all("closed" in text for text in said)


@pytest.mark.parametrize("on_signal", [signal.default_int_handler, signal.SIG_IGN])
def test_an_interrupt_while_a_message_is_shown_is_the_callers(clock, request, on_signal):
    # A process that a shell started in the background ignores the signal.
    before = signal.signal(signal.SIGINT, on_signal)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    class Handler(logging.Handler):
        seen = 0

        def emit(self, record):
            self.seen += 1
            if self.seen == 5:
                raise KeyboardInterrupt

    runs = []

    @disttune.autotune([{"b": b} for b in (3, 2, 1)], key_fn=None, timer=clock)
    def f(b):
        runs.append(b)
        clock.spend(b)

    logger, handler = logging.getLogger("disttune"), Handler()
    logger.addHandler(handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            f(autotune_verbose=True)
    finally:
        logger.removeHandler(handler)
    assert len(runs) < 3 * 15
