"""What the objects of torch, NumPy and Triton are in keys and entries."""

import dataclasses
import subprocess
import sys

import pytest
from disttune import _core, to_hashable

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


def text(value, entry=False):
    return _core.canonical_text(value, entry=entry)


@pytest.mark.parametrize(
    "value, wanted",
    [
        (torch.float16, "torch.float16()"),
        (torch.float32, "torch.float32()"),
        (torch.Size([2, 3]), "(2, 3)"),
        (torch.device("cuda", 1), 'torch.device("cuda", 1)'),
        (torch.device("cpu"), 'torch.device("cpu", None)'),
        (torch.strided, "torch.strided()"),
        (torch.contiguous_format, "torch.contiguous_format()"),
        (numpy.float32(1.5), "numpy.float32(1.5)"),
        (numpy.dtype("int8"), 'numpy.dtype("|i1")'),
        (tl.float16, "triton.language.fp16()"),
        (tl.pointer_type(tl.float32), 'triton.language.type("pointer<fp32>")'),
        (tl.constexpr(3), "triton.language.constexpr(3)"),
    ],
)
def test_canonical_texts(value, wanted):
    assert text(value) == wanted
    assert text([value]) == f"[{wanted}]"


def test_a_configuration_is_its_attributes():
    config = triton.Config({"B": 2, "A": 1}, num_warps=8)
    assert text(config) == (
        'triton.Config(kwargs={"A": 1, "B": 2}, num_ctas=1, num_stages=3, num_warps=8)'
    )
    assert text(config) == text(triton.Config({"A": 1, "B": 2}, num_warps=8))


@pytest.mark.parametrize(
    "change",
    [
        lambda c: setattr(c, "num_warps", 2),
        lambda c: setattr(c, "num_stages", 2),
        lambda c: setattr(c, "num_ctas", 2),
        lambda c: setattr(c, "maxnreg", 64),
        lambda c: setattr(c, "ir_override", "file.ttgir"),
        lambda c: setattr(c, "multibuffer", True),  # an attribute of a fork
        lambda c: c.kwargs.update(B=3),
        lambda c: c.kwargs.update(B=True),
        lambda c: c.kwargs.update(B=2.0),
    ],
)
def test_S3_S4_S14_every_attribute_counts(change):
    config = triton.Config({"B": 2})
    before = text(config)
    change(config)
    assert text(config) != before


def test_a_hook_counts_by_who_it_is():
    def hook(nargs):
        nargs["x"].zero_()

    def other(nargs):
        nargs["y"].zero_()

    one = triton.Config({"B": 2}, pre_hook=hook)
    assert text(one, entry=True) == text(triton.Config({"B": 2}, pre_hook=hook), entry=True)
    assert text(one, entry=True) != text(triton.Config({"B": 2}, pre_hook=other), entry=True)
    assert text(one, entry=True) != text(triton.Config({"B": 2}), entry=True)


@pytest.mark.parametrize("value", [torch.zeros(2), numpy.zeros(2)])
def test_tensors_are_refused_with_what_to_use(value):
    with pytest.raises(TypeError, match=r"shape \(2,\).*to_hashable"):
        text((1, value))


def test_callables_are_refused_in_keys():
    with pytest.raises(TypeError):
        text(lambda x: x)
    assert text(lambda x: x, entry=True).startswith("function(")


def test_a_class_that_is_changed_is_looked_at_again():
    class Plain:
        pass

    with pytest.raises(TypeError, match="register_description"):
        text(Plain())
    Plain.a = 1
    Plain.__annotations__ = {"a": int}
    dataclasses.dataclass(Plain)
    assert text(Plain(2)).endswith("Plain(a=2)")
    Plain.__module__ = "elsewhere"
    assert text(Plain(2)).startswith("elsewhere.")


def test_more_classes_inside_one_another_than_are_remembered():
    value, wanted = 0, "0"
    for i in range(100):
        made = dataclasses.make_dataclass(f"C{i}", [("x", object), ("y", object)])
        made.__module__ = "m"
        value, wanted = made(value, i), f"m.C{i}(x={wanted}, y={i})"
    assert text(value) == text(value) == wanted


def test_a_description_of_ones_own_for_a_device():
    code = """
import disttune, torch
disttune.register_description("torch.device", lambda d: d.type)
assert disttune._core.canonical_text(torch.device("cuda", 1)) == '"cuda"'
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_to_hashable():
    t = torch.zeros(4, 6, dtype=torch.float16).t()
    assert to_hashable(t) == ((6, 4), (1, 6), torch.float16)
    assert to_hashable(numpy.zeros((4, 6), numpy.float32).T)[:2] == ((6, 4), (1, 6))
    assert hash(to_hashable(t)) == hash(to_hashable(t))


def test_nothing_is_imported_that_the_caller_does_not_use():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, disttune\n"
            "disttune.autotune(config_space=[{'b': 1}], key_fn=lambda x: x)(lambda x, b: x)(3)\n"
            "print([m for m in ('torch', 'triton', 'numpy') if m in sys.modules])",
        ],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr
