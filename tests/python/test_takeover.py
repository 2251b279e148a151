"""disttune in place of an original package's tuners, with a stand-in for that package."""

import os
import subprocess
import sys
import textwrap

import pytest

# What the stand-in prints when its own tuners are used.
ORIGINAL = {
    "__init__.py": "",
    "utils.py": "NAME = 'original utils'\n",
    "tune.py": "print('original tune')\nautotune = None\n",
    "autotuner.py": "print('original autotuner')\ncontextual_autotune = None\n",
    "kernels/__init__.py": "from ..tune import autotune\nfrom ..utils import NAME\n",
}


@pytest.fixture
def original(tmp_path):
    """A folder with a package that is called triton_dist and is not ours."""
    for name, text in ORIGINAL.items():
        file = tmp_path / "site" / "triton_dist" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "site"


def run(tmp_path, original, program, *arguments, before=()):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(original), *sys.path])}
    return subprocess.run(
        [sys.executable, *before, str(path), *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )


USES = """
    import triton_dist.tune
    import triton_dist.utils
    from triton_dist.kernels import NAME, autotune
    from triton_dist.tune import load_autotune_data, to_hashable

    import disttune

    assert autotune is disttune.autotune is triton_dist.tune.autotune
    assert to_hashable is disttune.to_hashable
    print(NAME, triton_dist.utils.__file__.endswith("triton_dist/utils.py"))
"""


def test_an_import_takes_the_two_modules_and_nothing_else(tmp_path, original):
    done = run(tmp_path, original, "import disttune.takeover\n" + textwrap.dedent(USES))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "original utils True\n"


def test_a_program_runs_unchanged(tmp_path, original):
    program = textwrap.dedent(USES) + textwrap.dedent(
        """
        import sys
        assert "runpy" not in globals() and "install" not in globals()
        print(__name__, sys.argv[1:], __file__ == sys.argv[0])
        """
    )
    before = ("-m", "disttune.takeover")
    done = run(tmp_path, original, program, "a", "--b", before=before)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "original utils True\n__main__ ['a', '--b'] True\n"


def test_spawned_workers_of_a_program_are_included(tmp_path, original):
    program = """
        import multiprocessing

        import triton_dist.tune

        import disttune
        from disttune._identity import identity


        def launch(x, cfg):
            return x


        def work(queue):
            queue.put((triton_dist.tune.autotune is disttune.autotune, identity(launch)))


        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            worker = context.Process(target=work, args=(queue,))
            worker.start()
            taken, who = queue.get(timeout=60)
            worker.join()
            print(taken, who == identity(launch), who["function"])
        """
    done = run(tmp_path, original, program, before=("-m", "disttune.takeover"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True True program.launch\n"


def test_taking_over_too_late_is_an_error(tmp_path, original):
    done = run(tmp_path, original, "import triton_dist.tune\nimport disttune.takeover\n")
    assert done.returncode != 0
    assert "comes too late: triton_dist.tune" in done.stderr
    assert "python -m disttune.takeover" in done.stderr


def test_a_second_takeover_changes_nothing(tmp_path, original):
    program = """
        import importlib
        import sys
        import disttune.takeover
        import triton_dist.tune
        before = list(sys.meta_path)
        importlib.import_module("disttune.takeover")
        disttune.takeover.install()
        print(before == sys.meta_path)
        """
    done = run(tmp_path, original, program)
    assert done.stdout == "True\n", done.stderr


def test_wrong_use_says_how(tmp_path, original):
    done = run(tmp_path, original, "", before=("-m", "disttune.takeover", "-h"))
    assert done.returncode == 0
    assert "usage: python -m disttune.takeover" in done.stdout


def test_a_programs_annotations_are_its_own(tmp_path, original):
    program = "def f(x: int): pass\nprint(f.__annotations__)\n"
    done = run(tmp_path, original, program, before=("-m", "disttune.takeover"))
    assert done.stdout == "{'x': <class 'int'>}\n", done.stderr


@pytest.mark.parametrize("name", ["program", "package.tool", "package"])
def test_spawned_workers_of_a_module_are_included(tmp_path, original, name):
    text = """
        import multiprocessing
        import sys

        import triton_dist.tune


        def work(queue):
            queue.put(triton_dist.tune.autotune.__module__)


        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            worker = context.Process(target=work, args=(queue,))
            worker.start()
            print(queue.get(timeout=60), sys.argv[1:], __package__)
            worker.join()
        """
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    for file in ("program", "package/tool", "package/__main__"):
        (tmp_path / f"{file}.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "-m", "disttune.takeover", "-m", name, "a"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(original), *sys.path])},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    package = "package" if name.startswith("package") else ""
    assert done.stdout == f"disttune._function ['a'] {package}\n"


def test_what_cannot_be_run_is_said_in_a_line(tmp_path, original):
    for arguments in (["nowhere.py"], ["-m", "nowhere"]):
        done = subprocess.run(
            [sys.executable, "-m", "disttune.takeover", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(original), *sys.path])},
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode != 0
        assert "nowhere" in done.stderr
        assert "Traceback" not in done.stderr
