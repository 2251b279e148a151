"""The versions of software that a record keeps."""

import sys
import types

import pytest
from disttune._software import versions


@pytest.fixture
def mindspore(monkeypatch):
    module = types.ModuleType("mindspore")
    monkeypatch.setitem(sys.modules, "mindspore", module)
    return module


def test_a_package_counts_from_when_it_is_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "mindspore", raising=False)
    assert "mindspore" not in versions()
    module = types.ModuleType("mindspore")
    module.__version__ = "2.4"
    monkeypatch.setitem(sys.modules, "mindspore", module)
    assert versions()["mindspore"] == "2.4"


def test_every_answer_is_the_askers_own(mindspore):
    mindspore.__version__ = "2.4"
    versions()["mindspore"] = "changed"
    assert versions()["mindspore"] == "2.4"
    mindspore.__version__ = "2.5"
    assert versions()["mindspore"] == "2.5"


@pytest.mark.parametrize("version", [None, 3, [2, 4]])
def test_a_version_that_is_no_text_is_unknown(mindspore, version):
    mindspore.__version__ = version
    assert "mindspore" not in versions()


def test_python_itself_counts():
    assert versions()["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
