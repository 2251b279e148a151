"""Arguments put back before every run of a tuning, and results compared with a reference's."""

import dataclasses
import math

import pytest
from disttune._check import Check, difference, poison
from disttune._guard import GuardPlan

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")


# -- comparing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result, expected",
    [
        (torch.ones(4), torch.ones(4) + 1e-7),
        (torch.ones(4, dtype=torch.float16), torch.ones(4, dtype=torch.float16) * 1.0005),
        (torch.tensor([math.nan, 1.0]), torch.tensor([math.nan, 1.0])),
        (torch.arange(3), torch.arange(3)),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64)),
        (torch.zeros(0), torch.zeros(0)),
        (numpy.ones((2, 3), numpy.float32), numpy.ones((2, 3), numpy.float32) + 1e-7),
        (torch.ones(2), numpy.ones(2, numpy.float32)),
        ([torch.ones(1), {"a": 2}], [torch.ones(1), {"a": 2}]),
        ((1, "x"), (1, "x")),
        (1, 1.0),
        (math.nan, math.nan),
        (complex(math.nan, 1), complex(math.nan, 1)),
        (None, None),
    ],
)
def test_equal_within_tolerance(result, expected):
    assert difference(result, expected) is None


@pytest.mark.parametrize(
    "result, expected, text",
    [
        (torch.tensor([[1.0, 2], [3, 9]]), torch.tensor([[1.0, 2], [3, 4]]),
         "1 of 4 elements of result differ; the largest difference is at result[1, 1]: 9.0 "
         "instead of 4.0"),
        (torch.tensor([math.nan]), torch.tensor([1.0]), "nan instead of 1.0"),
        (torch.ones(2), torch.ones(3), "result has shape (2,), not (3,)"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "result[1]: 2 instead of 3"),
        (torch.tensor([True]), torch.tensor([False]), "True instead of False"),
        (numpy.array([1.0, 5.0]), numpy.array([1.0, 2.0]), "result[1]: 5.0 instead of 2.0"),
        (None, torch.ones(1), "result is a NoneType, not a Tensor"),
        ([1, [2, 3]], [1, [2, 4]], "result[1][1] is 3, not 4"),
        ({"a": 1}, {"b": 1}, "result has the keys ['a'], not ['b']"),
        ([1], [1, 2], "result has 1 items, not 2"),
        ([1, 2], (1, 2), "result is a list, not a tuple"),
        ({"a": (1,)}, {"a": [1]}, "result['a'] is a tuple, not a list"),
        (1.5, 2.5, "result is 1.5, not 2.5"),
        (0.1 + 0.2, 0.3, "result is 0.30000000000000004, not 0.3"),
        ([1j + 1e-12], [1j], "result[0] is (1e-12+1j), not 1j"),
        (math.nan, 1.0, "result is nan, not 1.0"),
        (1.0, math.nan, "result is 1.0, not nan"),
        ("a", "b", "result is 'a', not 'b'"),
    ],
)  # fmt: skip
def test_a_difference_says_where_and_how_much(result, expected, text):
    assert text in difference(result, expected)


def test_a_comparison_of_the_users_own():
    plain = Check(len, compare=lambda a, b: abs(a - b) < 2)
    assert plain.verdict(3, 4) is None
    assert plain.verdict(3, 9) == "the comparison said no"
    assert Check(len, compare=lambda a, b: "too far").verdict(1, 2) == "too far"

    def strict(a, b):
        assert a == b, "not the same"

    assert Check(len, compare=strict).verdict(1, 1) is None
    assert "not the same" in Check(len, compare=strict).verdict(1, 2)


def test_poison_is_no_plausible_result():
    tensors = [torch.ones(2), torch.ones(2, dtype=torch.int8), torch.tensor([True, False])]
    array = numpy.ones(2)
    poison([*tensors, {"a": array}, None, 3])
    assert tensors[0].isnan().all()
    assert (tensors[1] == 0x5A).all()
    assert tensors[2].tolist() == [False, True]
    assert numpy.isnan(array).all()
    truths = [torch.tensor([True, False]), numpy.array([True, True])]
    poison(truths, [numpy.array([True, True]), torch.tensor([False, True])])
    assert [list(truth) for truth in truths] == [[False, False], [True, False]]


# -- putting back ----------------------------------------------------------------------------------


def test_S56_restored_arguments_are_as_before_each_run():
    def launch(x, y, cfg):
        y += x

    x, y = torch.ones(4), torch.arange(4.0)
    guard = GuardPlan(launch, restore=["y"]).begin((x, y), {})
    for _ in range(5):
        guard.before_run()
        launch(x, y, 0)
    assert y.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["args", "kw"])
def test_the_name_of_packed_parameters_stands_for_all_that_they_take(name):
    def launch(x, *args, n, cfg=1, **kw):
        seen.append([float(value[0]) for value in (*args, *kw.values())])
        for value in (*args, *kw.values()):
            value += cfg * x

    x, here, there = torch.ones(2), torch.ones(2) * 5, torch.ones(2) * 7
    for option, start in (("restore", (5.0, 7.0)), ("reset", (0.0, 0.0))):
        seen = []
        args, kwargs = ((here, there), {}) if name == "args" else ((), {"p": here, "q": there})
        guard = GuardPlan(launch, **{option: [name]}).begin((x, *args), {"n": 3, **kwargs})
        for _ in range(3):
            guard.before_run()
            launch(x, *args, n=3, **kwargs)
        assert seen == [list(start)] * 3
    check = Check(lambda x, *args, n, **kw: launch(x, *args, n=n, **kw), outputs=[name])
    for held in ("restore", "reset"):
        guard = GuardPlan(launch, check=check, **{held: [name]}).begin(
            (x, *args), {"n": 3, **kwargs}
        )
        assert guard.check({"cfg": 1}) is None
        assert "instead of" in guard.check({"cfg": 2})

    def write(x, *args, n, cfg=4, **kw):
        for value in (*args, *kw.values()):
            value[:cfg] = x[:cfg]

    guard = GuardPlan(write, check=Check(write, outputs=[name])).begin(
        (x, *args), {"n": 3, **kwargs}
    )
    assert guard.check({"cfg": 4}) is None
    assert "instead of" in guard.check({"cfg": 1})


def test_everything_that_holds_tensors_can_be_put_back():
    def launch(a, b, c, d=None, e=None, **more):
        pass

    a = [torch.ones(2), 3]
    b = {"x": numpy.ones(2), "n": 1}
    c = (torch.ones(2), None)
    more = torch.ones(1)
    guard = GuardPlan(launch, restore=["a", "b", "c", "d", "e", "more"]).begin(
        (a, b, c), {"e": 7, "more": more}
    )
    guard.before_run()
    a[0].zero_()
    a.append(4)
    b["x"][0] = 9
    b["new"] = 1
    del b["n"]
    c[0].zero_()
    more.zero_()
    guard.before_run()
    assert a[0].tolist() == [1, 1] and a[1:] == [3]
    assert b["x"].tolist() == [1, 1] and set(b) == {"x", "n"}
    assert c[0].tolist() == [1, 1]
    assert more.tolist() == [1]


def test_reset_sets_to_zero_and_tolerates_none():
    def launch(out, extra=None):
        pass

    out = torch.ones(3)
    guard = GuardPlan(launch, reset=["out", "extra"]).begin((out,), {})
    guard.before_run()
    assert out.tolist() == [0, 0, 0]


def test_what_cannot_be_put_back_is_refused_by_name():
    def launch(x):
        pass

    with pytest.raises(TypeError, match=r"restore='x'.*object"):
        GuardPlan(launch, restore=["x"]).begin((object(),), {}).before_run()
    with pytest.raises(TypeError, match=r"reset='x'.*str"):
        GuardPlan(launch, reset=["x"]).begin(("a",), {}).before_run()


def test_S83_wrong_options_are_refused_at_decoration():
    def launch(x, y):
        pass

    with pytest.raises(ValueError, match=r"restore=\['z'\].*\['x', 'y'\]"):
        GuardPlan(launch, restore=["z"])
    with pytest.raises(ValueError, match="outputs"):
        GuardPlan(launch, check=Check(len, outputs=["z"]))
    with pytest.raises(TypeError, match="list of parameter names"):
        GuardPlan(launch, restore="x")
    with pytest.raises(ValueError, match="both"):
        GuardPlan(launch, restore=["x"], reset=["x"])
    with pytest.raises(TypeError, match="not callable"):
        GuardPlan(launch, check=3)


# -- checking --------------------------------------------------------------------------------------


def counted(function):
    calls = []

    def wrapper(*args, **kwargs):
        calls.append(kwargs)
        return function(*args, **kwargs)

    wrapper.calls = calls
    return wrapper


def test_a_returned_result_is_compared():
    def launch(x, factor):
        return x * factor

    guard = GuardPlan(launch, check=lambda x: x * 2).begin((torch.ones(2),), {})
    assert guard.check({"factor": 2}) is None
    assert "3.0 instead of 2.0" in guard.check({"factor": 3})


def test_the_reference_runs_once_and_each_candidate_once():
    runs, references = [], []

    def launch(x, cfg):
        runs.append(cfg)
        return x + 1

    def reference(x):
        references.append(x)
        return x + 1

    guard = GuardPlan(launch, check=reference).begin((torch.ones(2),), {})
    for cfg in range(4):
        assert guard.check({"cfg": cfg}) is None
    assert runs == [0, 1, 2, 3]
    assert len(references) == 1


@pytest.mark.parametrize(
    "reference",
    [
        lambda x, y: 2 * x,
        lambda x, y: torch.mul(x, 2, out=y),
        lambda x, y: torch.mul(x, 2, out=y) is None or None,
    ],
)
def test_S59_a_candidate_that_writes_half_of_its_output_is_wrong(reference):
    def launch(x, y, part):
        y[: len(y) // part] = 2 * x[: len(y) // part]

    x = torch.ones(8)
    y = 2 * x  # what an earlier call left there: the right result
    before = y.clone()
    check = Check(reference, outputs=["y"])
    guard = GuardPlan(launch, check=check).begin((x,), {"y": y})
    assert guard.check({"part": 1}) is None
    assert "nan instead of 2.0" in guard.check({"part": 2})
    assert torch.equal(y, before)


def _truths(module, *values):
    return module.tensor(values) if module is torch else module.array(values)


def _say(how, right, y):
    if how == "filled":
        y[...] = right
        return None
    return right if how == "returned" else (right, 7)


@pytest.mark.parametrize("module", [torch, numpy])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("how", ["filled", "returned", "beside another"])
@pytest.mark.parametrize("named", [True, False])
def test_truth_values_that_are_not_written_are_found(module, before, how, named):
    if how == "filled" and not named:
        return

    def launch(x, y, part):
        y[: 4 // part] = x[: 4 // part]
        return {"filled": None, "returned": y}.get(how, (y, 7))

    x = _truths(module, True, False, True, False)
    y = _truths(module, *[before] * 4)
    check = Check(lambda x, y: _say(how, x, y), outputs=["y"] if named else [])
    guard = GuardPlan(launch, check=check).begin((x, y), {})
    assert guard.check({"part": 1}) is None
    assert "2 of 4 elements" in guard.check({"part": 2})
    assert not named or y.tolist() == [before] * 4


def test_truth_values_that_the_reference_does_not_write_need_not_be_written():
    def launch(x, y, wrong):
        y[:2] = x[:2] ^ wrong

    def reference(x, y):
        asked.append(y.tolist())
        y[:2] = x[:2]

    asked = []
    x, y = torch.tensor([True, False, True, False]), torch.tensor([True, True, True, False])
    guard = GuardPlan(launch, check=Check(reference, outputs=["y"])).begin((x, y), {})
    assert guard.check({"wrong": False}) is None
    assert "2 of 4 elements" in guard.check({"wrong": True})
    assert len(asked) == 2


def test_S59_an_argument_that_is_returned_is_an_output():
    def launch(x, y, part):
        y[: len(y) // part] = 2 * x[: len(y) // part]
        return y

    x = torch.ones(8)
    y = 2 * x
    guard = GuardPlan(launch, check=lambda x, y: 2 * x).begin((x, y), {})
    assert "nan" in guard.check({"part": 2})
    assert guard.check({"part": 1}) is None
    first = GuardPlan(launch, check=lambda x, y: 2 * x).begin((x, y), {})
    assert first.check({"part": 1}) is None
    assert "nan" in first.check({"part": 4})


def test_the_reference_sees_the_callers_arguments_and_leaves_them_alone():
    def launch(x, y, cfg):
        y.copy_(x)
        x.zero_()

    def reference(x, y):
        y.copy_(x)
        x.add_(100)

    x, y = torch.arange(3.0), torch.zeros(3)
    plan = GuardPlan(launch, check=Check(reference, outputs=["y"]), restore=["x"])
    guard = plan.begin((x, y), {})
    assert guard.check({"cfg": 1}) is None
    assert guard.check({"cfg": 2}) is None
    guard.before_run()
    assert x.tolist() == [0, 1, 2]
    assert y.tolist() == [0, 0, 0]


@pytest.mark.parametrize("module", [torch, numpy])
@pytest.mark.parametrize("put_back", ["restore", "reset"])
@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_checked_run_starts_from_what_is_put_back(module, put_back, returned, named):
    if not (returned or named):
        return

    def launch(x, y, factor):
        seen.append(y.tolist())
        y += factor * x
        return y if returned else None

    def reference(x, y):
        seen.append(y.tolist())
        y += x
        return y if returned else None

    x, y = module.ones(2), module.ones(2) * 10
    seen = []
    check = Check(reference, outputs=["y"] if named else [])
    guard = GuardPlan(launch, check=check, **{put_back: ["y"]}).begin((x, y), {})
    assert "instead of" in guard.check({"factor": 2})
    assert guard.check({"factor": 1}) is None
    assert "instead of" in guard.check({"factor": 3})
    start = [10, 10] if put_back == "restore" else [0, 0]
    assert seen == [start] * len(seen)


def test_a_part_of_a_returned_output_is_compared_with_the_same_part_of_the_references():
    def launch(x, out, factor):
        out[: len(x)] = factor * x
        return out

    def reference(x, out):
        out[: len(x)] = 2 * x
        return out

    x, out = torch.ones(2), torch.full((4,), 7.0)
    guard = GuardPlan(launch, check=reference).begin((x, out), {})
    assert guard.check({"factor": 2}) is None
    assert guard.check({"factor": 2}) is None
    assert "3.0 instead of 2.0" in guard.check({"factor": 3})
    other = GuardPlan(launch, check=reference).begin((x, out), {})
    assert "3.0 instead of 2.0" in other.check({"factor": 3})
    assert other.check({"factor": 2}) is None


def test_plain_values_and_dataclass_results():
    @dataclasses.dataclass
    class Result:
        n: int

    guard = GuardPlan(lambda n, cfg: Result(n + cfg), check=lambda n: Result(n)).begin((3,), {})
    assert guard.check({"cfg": 0}) is None
    assert "Result(n=4)" in guard.check({"cfg": 1})
