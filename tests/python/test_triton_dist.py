"""The distribution disttune-triton-dist: what it gives, and that it damages no original."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

import pytest

PROJECT = pathlib.Path(__file__).parents[2] / "python" / "triton_dist"


@pytest.fixture
def backend(monkeypatch):
    pytest.importorskip("scikit_build_core")
    spec = importlib.util.spec_from_file_location("build_backend", PROJECT / "build_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(PROJECT)
    return module


def site(monkeypatch, folder):
    folder.mkdir(exist_ok=True)
    paths = {**sysconfig.get_paths(), "purelib": str(folder), "platlib": str(folder)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda *a, **k: paths)


def python(code, *path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )


def test_the_wheel_has_the_modules_and_nothing_else(backend, tmp_path, monkeypatch):
    site(monkeypatch, tmp_path / "site")
    name = backend.build_wheel(str(tmp_path))
    assert name.startswith("disttune_triton_dist-")
    assert name.endswith("py3-none-any.whl")
    files = [f for f in zipfile.ZipFile(tmp_path / name).namelist() if "dist-info" not in f]
    assert {"triton_dist/__init__.py", "triton_dist/tune.py"} <= set(files)
    assert all(f.startswith("triton_dist/") for f in files)


@pytest.mark.parametrize(
    "files",
    [
        {"triton_dist/__init__.py": "", "triton_dist/tune.py": ""},
        {"triton_dist/utils.py": ""},
        {"triton_dist-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: triton_dist\n"
                                               "Version: 0.1\n"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("build", ["build_wheel", "build_editable"])
def test_it_refuses_to_be_installed_over_an_original(backend, tmp_path, monkeypatch, files, build):
    site(monkeypatch, tmp_path / "site")
    for name, text in files.items():
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with pytest.raises(SystemExit, match=r"disttune\.takeover"):
        getattr(backend, build)(str(tmp_path))


def test_it_may_be_installed_over_itself(backend, tmp_path, monkeypatch):
    site(monkeypatch, tmp_path / "site")
    (tmp_path / "site" / "triton_dist").mkdir()
    text = (PROJECT / "triton_dist" / "__init__.py").read_text()
    (tmp_path / "site" / "triton_dist" / "__init__.py").write_text(text)
    assert backend.build_wheel(str(tmp_path))


def test_the_modules_give_what_programs_import():
    done = python(
        "from triton_dist.tune import (AutoTuner, autotune, load_autotune_data,"
        " pretty_triton_config_repr, to_hashable)\n"
        "import disttune, triton_dist\n"
        "assert autotune is disttune.autotune\n"
        "@autotune(config_space=[{'b': 1}], key_fn=lambda x: x)\n"
        "def f(x, b): return x + b\n"
        "assert isinstance(f, AutoTuner)\n"
        "print(f(1), triton_dist.__file__)",
        PROJECT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"2 {PROJECT}/triton_dist/__init__.py\n"


def test_beside_an_original_it_says_so(tmp_path):
    (tmp_path / "triton_dist").mkdir()
    (tmp_path / "triton_dist" / "__init__.py").write_text("")
    (tmp_path / "triton_dist" / "utils.py").write_text("")
    done = python("import triton_dist.tune", PROJECT, tmp_path)
    assert done.returncode != 0
    assert "beside another triton_dist" in done.stderr
    assert "disttune.takeover" in done.stderr


def test_an_editable_original_is_noticed_too(tmp_path):
    done = python(
        "import sys, types, importlib.machinery as m\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'triton_dist':\n"
        "            return m.ModuleSpec(name, None, origin='/src/triton_dist/__init__.py')\n"
        "Finder.__module__ = '__editable___triton_dist_finder'\n"
        "sys.meta_path.append(Finder())\n"
        "import triton_dist\n",
        PROJECT,
    )
    assert done.returncode != 0
    assert "/src/triton_dist/__init__.py" in done.stderr


def test_configurations_can_be_shown_for_a_while():
    triton = pytest.importorskip("triton")
    from disttune._triton_dist_tune import pretty_triton_config_repr

    config = triton.Config({"BLOCK": 4}, num_warps=2)
    plain = repr(config)
    with pretty_triton_config_repr(), pretty_triton_config_repr():
        assert repr(config).startswith("Config({'BLOCK': 4}, num_warps=2")
    assert repr(config) == plain
