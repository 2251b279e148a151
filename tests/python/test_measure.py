"""Timing in the steady state."""

import pytest
from disttune import _core, autotune
from disttune._measure import measure


def test_counts_are_exact():
    runs = []
    found = measure(lambda x, *, y: runs.append((x, y)), 3, y=4, warmup=2, repeat=7)
    assert runs == [(3, 4)] * 9
    assert isinstance(found, _core.Measurement)
    assert len(found.samples_ns) == 7
    assert found.median_ns > 0
    assert found.slowest_rank == 0


def test_a_measurement_reads_as_what_it_says():
    text = repr(measure(lambda: None, repeat=7))
    assert text.startswith("Measurement(median ")
    assert "7 samples" in text


def test_a_tuned_launcher_is_tuned_first_and_its_winner_timed(clock):
    runs = []

    @autotune(config_space=[{"b": 9}, {"b": 1}], key_fn=lambda x: x, timer=clock)
    def launch(x, b):
        runs.append(b)
        clock.spend(b)

    measure(launch, 3, warmup=2, repeat=5)
    assert runs == [9] * 15 + [1] * 15 + [1] + [1] * 7


BAD = [{"warmup": -1}, {"repeat": 0}, {"repeat": True}, {"cache": "warm"}, {"timer": "gpu"}]


@pytest.mark.parametrize("options", BAD)
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        measure(lambda: None, **options)
    with pytest.raises(TypeError, match="callable"):
        measure(3)


def test_an_exception_is_the_callers():
    def fail():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        measure(fail)
