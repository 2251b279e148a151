"""Who a Python function is: equal in every process, different for different functions."""

import dataclasses
import functools
import hashlib
import importlib.util
import itertools
import os
import subprocess
import sys
import textwrap
import threading

import pytest
from disttune._identity import digest_of, identity


def load(tmp_path, text, name="launchers"):
    """Import ``text`` as a module of that name from a folder of its own."""
    path = tmp_path / f"{name}.py"
    path.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def parts(fn, key_fn=None, **options):
    return identity(fn, key_fn, **options)


PLAIN = """
BLOCK = 4


def helper(x):
    return x + BLOCK


def launch(x, cfg):
    # A comment.
    return helper(x) * cfg
"""


def test_moving_and_decorating_a_function_leaves_it_the_same(tmp_path):
    moved = "import functools\n\n\ndef mark(f):\n    return f\n\n\n# here\n" + PLAIN.replace(
        "def launch", "@mark\n@functools.partial(\n    mark,\n)\ndef launch"
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = parts(load(tmp_path / "a", PLAIN).launch)
    after = parts(load(tmp_path / "b", moved).launch)
    assert before == after


EDITED = """
import functools


class Launcher:
    def __call__(self, x, cfg):
        return x * 10

    @staticmethod
    def of(x):
        return x


def deco(f):
    return f


def helper(x):
    return x * 10


@deco
def launch(x, cfg):
    return helper(x)


both = [lambda x, cfg: x * 10, lambda x, cfg: x * 20]
"""


def edit(path, text):
    path.write_text(text)
    later = path.stat().st_mtime + 10  # not within what a clock of files, or a .pyc, tells apart
    os.utime(path, (later, later))


@pytest.mark.parametrize(
    "old, new, pick",
    [
        ("x * 10", "x * 11", lambda module: module.launch),
        ("x * 10", "x * 11", lambda module: module.both[0]),
        ("x * 10", "x * 11", lambda module: module.Launcher()),
        ("x * 10", "x * 11", lambda module: module.Launcher),
        ("return helper(x)", "return helper(-x)", lambda module: module.launch),
        (
            "x * 10, lambda x, cfg: x * 20",
            "x * 20, lambda x, cfg: x * 10",
            lambda module: module.both[0],
        ),
    ],
)
def test_a_file_that_was_edited_after_its_import_does_not_speak_for_what_runs(
    tmp_path, old, new, pick
):
    first = load(tmp_path, EDITED)
    unedited = parts(pick(first))
    edit(tmp_path / "launchers.py", EDITED.replace(old, new))
    running = parts(pick(first))
    edited = parts(pick(load(tmp_path, EDITED.replace(old, new), "edited")))
    for found in (unedited, running, edited):
        del found["function"]
    assert len({str(kind) for kind in (unedited, running, edited)}) == 3
    assert unedited.keys() == running.keys()


def test_the_text_of_an_unedited_file_counts(tmp_path):
    first = load(tmp_path, EDITED)
    text = "def launch(x, cfg):\n    return helper(x)"
    assert parts(first.launch)["source"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    edit(tmp_path / "launchers.py", EDITED.replace("x * 10", "x * 11"))
    assert parts(first.launch)["source"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    load(tmp_path, "from __future__ import annotations\n" + EDITED, "later")
    assert parts(sys.modules["later"].launch)["source"] == parts(first.launch)["source"]


@pytest.mark.parametrize(
    "old, new, part",
    [
        ("* cfg", "+ cfg", "source"),
        ("x + BLOCK", "x - BLOCK", "uses launchers.helper"),
        ("BLOCK = 4", "BLOCK = 8", "constant launchers.BLOCK"),
        ("x, cfg):", "x, cfg=3):", "default cfg"),
    ],
)
def test_a_change_anywhere_is_seen_and_named(tmp_path, old, new, part):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = parts(load(tmp_path / "a", PLAIN).launch)
    after = parts(load(tmp_path / "b", PLAIN.replace(old, new)).launch)
    assert before.get(part) != after.get(part)


def test_the_source_of_the_key_function_counts():
    def launch(x, cfg):
        return x

    one = parts(launch, lambda x: x.shape)
    two = parts(launch, lambda x: x.dtype)
    assert one["source"] == two["source"]
    assert one["key_fn"] != two["key_fn"]


def test_two_lambdas_of_one_line_differ():
    # fmt: off
    one, two = (lambda x: x + 1), (lambda x: x + 2)
    # fmt: on
    assert parts(one) != parts(two)
    inner = (lambda x: lambda x: x + 1)(0)
    [outer] = [lambda x: lambda x: x + 1]
    assert parts(inner)["source"] != parts(outer)["source"]


def test_S7_products_of_one_factory_differ_by_what_they_captured():
    def make(m):
        def launch(x, cfg):
            return x * m

        return launch

    assert parts(make(3)) != parts(make(4))
    assert parts(make(3)) == parts(make(3))
    assert parts(make(1)) != parts(make(True))
    assert parts(make(3), ignore=["m"]) == parts(make(4), ignore=["m"])


def test_S19_equal_names_in_two_modules_differ(tmp_path):
    one = load(tmp_path, PLAIN, "first")
    two = load(tmp_path, PLAIN, "second")
    assert parts(one.launch) != parts(two.launch)


def test_what_cannot_be_described_counts_by_its_type():
    def make(thing):
        def launch(x, cfg):
            return thing

        return launch

    assert parts(make(threading.Lock())) == parts(make(threading.Lock()))
    assert parts(make(threading.Lock())) != parts(make(threading.Event()))
    assert parts(make(threading.Event()))["closure thing"] == "type threading.Event"


def test_state_that_the_launcher_writes_to_does_not_count():
    def make(log, totals, counter):
        count = 0

        def launch(x, cfg):
            nonlocal count
            count += 1
            log.append(cfg)
            totals[0] += 1
            return next(counter)

        return launch

    one = make([], [0], itertools.count())
    before = parts(one)
    one(0, "a")
    one(0, "b")
    assert parts(one) == before
    assert parts(make([1, 2], [7], itertools.count(4))) == before


def test_a_list_that_is_only_read_counts_by_its_value():
    def make(costs):
        def launch(x, cfg):
            return costs[cfg] + costs.index(x)

        return launch

    assert parts(make([1, 2])) != parts(make([2, 1]))


def test_a_scripted_clock_that_a_helper_advances_is_state():
    @dataclasses.dataclass
    class Clock:
        now: int = 0

        def advance(self, by):
            self.now += by

    def make(clock):
        def launch(x, cfg):
            clock.advance(cfg)

        return launch

    assert parts(make(Clock(0))) == parts(make(Clock(5)))


def test_dataclass_methods_that_only_read_keep_the_value():
    @dataclasses.dataclass
    class Shape:
        m: int

        def rows(self):
            return self.m

    def make(shape):
        def launch(x, cfg):
            return shape.rows()

        return launch

    assert parts(make(Shape(1))) != parts(make(Shape(2)))


def test_functions_that_call_each_other_end():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    found = parts(even)
    assert any(part.endswith("odd") for part in found)


def test_a_function_without_source_counts_by_its_code():
    def make(text):
        space = {"__name__": "made"}
        exec(text, space)
        return space["f"]

    one = "def f(x, cfg):\n    return x in {1, 2, 3} and x * 2\n"
    assert parts(make(one)) == parts(make("\n\n" + one))
    assert parts(make(one)) != parts(make(one.replace("* 2", "* 3")))
    assert parts(make(one)) != parts(make(one.replace("3}", "4}")))


def test_partials_methods_callable_objects_and_builtins():
    def launch(x, y, cfg=None):
        return x

    assert parts(functools.partial(launch, 1)) != parts(functools.partial(launch, 2))
    assert parts(functools.partial(launch, y=1)) != parts(functools.partial(launch, y=2))
    assert parts(functools.partial(launch, 1)) == parts(functools.partial(launch, 1))

    @dataclasses.dataclass(frozen=True)
    class Launcher:
        block: int

        def __call__(self, x, cfg):
            return x

        def run(self, x, cfg):
            return x + 1

    assert parts(Launcher(1)) == parts(Launcher(1))
    assert parts(Launcher(1)) != parts(Launcher(2))
    assert parts(Launcher(1).run) != parts(Launcher(2).run)
    assert parts(Launcher(1).run) != parts(Launcher(1))
    assert parts(len) != parts(abs)


def test_name_and_version_together_are_the_whole_identity():
    def one(x, cfg):
        return x

    def two(x, cfg):
        return x + 1

    assert parts(one, name="scale", version="3") == {"name": "scale", "version": "3"}
    assert parts(one, name="scale", version="3") == parts(two, name="scale", version="3")
    assert parts(one, version="3")["version"] == "3"
    assert parts(one, version="3") != parts(one, version="4")
    assert parts(one, name="scale") != parts(two, name="scale")


def test_helpers_are_reached_through_modules_wrappers_and_defaults(tmp_path):
    load(tmp_path, "def twice(x):\n    return 2 * x\n\n\nTILE = 16\nOTHER = 1\n", "tools")
    text = """
    import functools
    import math
    import tools


    def wrap(f):
        @functools.wraps(f)
        def inner(*args):
            return f(*args)
        return inner


    @wrap
    def wrapped(x):
        return x


    def hook(x):
        return x


    def launch(x, cfg, hook=hook):
        return tools.twice(x) + tools.TILE + math.pi + wrapped(x)
    """
    found = parts(load(tmp_path, text).launch)
    assert "uses tools.twice" in found
    assert found["constant tools.TILE"] == "16"
    assert "constant tools.OTHER" not in found
    assert any(part.startswith("uses launchers.wrapped") for part in found)
    assert "uses launchers.hook" in found
    assert not any("math" in part for part in found)


def test_the_same_in_every_process_S22(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import json
            import threading
            from disttune._identity import identity

            NAMES = {"a", "b", "c", "d"}
            TABLE = {"x": 1, "y": {"p", "q", "r"}}
            LOCK = threading.Lock()


            def launch(x, cfg):
                with LOCK:
                    return x in NAMES or TABLE.get(x) in {"k", "l", "m"}


            space = {"__name__": "made"}
            exec("def f(x):\\n    return x in {'k', 'l', 'm'} or (lambda: x)", space)
            print(json.dumps([identity(launch, lambda x: x), identity(space["f"])]))
            """
        )
    )
    seen = set()
    for seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1
    assert "0x" not in seen.pop()


def test_a_program_and_its_import_are_one_function(tmp_path):
    text = """
    from disttune._identity import identity


    def launch(x, cfg):
        return x


    print(identity(launch)["function"])
    """
    (tmp_path / "prog.py").write_text(textwrap.dedent(text))
    as_main = subprocess.run(
        [sys.executable, "prog.py"], cwd=tmp_path, capture_output=True, text=True
    )
    as_module = subprocess.run(
        [sys.executable, "-c", "import sys; sys.path.insert(0, ''); import prog"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert as_main.stdout == as_module.stdout == "prog.launch\n"


def test_digest_names_the_function_and_changes_with_it():
    def hook(nargs):
        return nargs

    def other(nargs):
        return nargs + 1

    name, digest = digest_of(hook)
    assert name.endswith("hook")
    assert len(digest) == 64
    assert digest != digest_of(other)[1]


@pytest.mark.parametrize(
    "text",
    [
        "bound = functools.partial(helper, 1)",
        "bound = functools.partial(helper, y=1)",
        "bound = functools.partial(functools.partial(helper), 1)",
        "bound = functools.partial(operator.mul, 1)",
        "bound = [functools.partial(helper, 1)]",
        "bound = functools.partial(helper, functools.partial(other, 1))",
        "bound = functools.partial(helper, functools.partial(operator.mul, 1))",
        "bound = functools.partial(helper, lambda x: 1)",
    ],
)
@pytest.mark.parametrize("captured", ["global", "closure", "default"])
def test_what_a_captured_partial_has_bound_counts(tmp_path, text, captured):
    program = """
import functools, operator


def helper(x, y=2):
    return x


def other(x):
    return x


BOUND


def launch(x, cfg):
    return bound(x)


def closing(bound):
    return lambda x, cfg: bound(x)


def standing(bound):
    def inner(x, cfg, bound=bound):
        return bound(x)

    return inner


closure, default = closing(bound), standing(bound)
"""
    found = []
    for i, bound in enumerate((text, text, text.replace("1", "7"))):
        (tmp_path / str(i)).mkdir()
        module = load(tmp_path / str(i), program.replace("BOUND", bound))
        found.append(parts(module.launch if captured == "global" else getattr(module, captured)))
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_a_partial_of_a_partial_is_not_one_with_more_arguments(tmp_path):
    module = load(tmp_path, PLAIN)
    inner = functools.partial(module.helper, 2)
    nested = functools.partial(module.helper, inner, 3)
    flat = functools.partial(module.helper, functools.partial(module.helper, 2, 3))
    assert parts(lambda x: nested(x)) != parts(lambda x: flat(x))


KERNELS = """
import triton
import triton.language as tl

SCALE = tl.constexpr(2)


@triton.jit
def inner(x):
    return x * SCALE


@triton.autotune(configs=[triton.Config({"B": 4}), triton.Config({"B": 8})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def kernel(x, n, B: tl.constexpr, EVEN: tl.constexpr):
    tl.store(x, inner(tl.load(x)))


def launch(x, cfg):
    return kernel[(1,)](x, 4)
"""


@pytest.mark.parametrize("interpret", ["0", "1"])
@pytest.mark.parametrize(
    "old, new",
    [
        ("tl.load(x))", "tl.load(x) + 1)"),
        ("x * SCALE", "x + SCALE"),
        ("constexpr(2)", "constexpr(3)"),
        ("% 2", "% 4"),
    ],
)
def test_kernels_count_by_source_constants_and_callees(tmp_path, monkeypatch, interpret, old, new):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    before = parts(load(tmp_path / "a", KERNELS).launch)
    moved = parts(load(tmp_path / "b", "\n\n# moved\n" + KERNELS).launch)
    after = parts(load(tmp_path / "c", KERNELS.replace(old, new)).launch)
    assert before == moved
    assert before != after
