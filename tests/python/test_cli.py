"""The command line."""

import io
import json
import os
import sys

import disttune
import pytest
from disttune.__main__ import main


@pytest.fixture
def tuned(clock):
    @disttune.autotune(
        config_space=[{"block": 4}, {"block": 2}, {"block": 8}],
        key_fn=lambda x, **kwargs: (x, "float32"),
        timer=clock,
    )
    def scale(x, block):
        if block == 8:
            raise ValueError("too large")
        clock.spend(block * 1_000_000)

    scale(16)
    return scale


def test_env_shows_every_variable_with_its_value(monkeypatch, capsys):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_REPEAT", "7")
    assert main(["env"]) == 0
    out = capsys.readouterr().out
    for name, *_ in disttune._core.environment_table():
        assert name.removeprefix("TRITON_DIST_AUTOTUNE_") in out
    assert "7" in out


def test_env_tells_of_variables_that_mean_nothing(monkeypatch, capsys):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_WARMPU", "3")
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_REPEAT", "7")
    assert main(["env"]) == 0
    assert capsys.readouterr().err == (
        "disttune: TRITON_DIST_AUTOTUNE_WARMPU is set, and there is no such variable; "
        "did you mean TRITON_DIST_AUTOTUNE_WARMUP?\n"
    )


def test_env_markdown_is_a_table(capsys):
    assert main(["env", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| variable | accepts | default | meaning |"
    assert len(lines) == 2 + len(disttune._core.environment_table())
    assert any("TRITON_DIST_AUTOTUNE_MODE" in line for line in lines)


@pytest.mark.parametrize("command", [["show", "scale"], ["list"], ["list", "--json"]])
def test_numbers_of_any_length_are_shown(tuned, capsys, command):
    tuned(10**5000)
    limit = sys.get_int_max_str_digits()
    assert main(command) == 0
    assert "1" + "0" * 5000 in capsys.readouterr().out
    assert sys.get_int_max_str_digits() == limit


def test_show_has_every_sample(tuned, capsys):
    assert main(["show", "scale"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "samples" in line] == [
        ["samples"] + ["2"] * 10,
        ["samples"] + ["4"] * 10,
    ]


def test_texts_of_foreign_files_do_not_steer_the_terminal(clock, capsys):
    name = "red\x1b[31m\r\u202e"
    space = [{"b": "\x1b]0;title\x07"}]
    disttune.autotune(space, None, timer=clock, name=name)(lambda b: clock.spend(1000))()
    for command in (["list"], ["show", name]):
        assert main(command) == 0
        out = capsys.readouterr().out
        assert "red\\x1b[31m\\r\\u202e" in out
        assert all(c.isprintable() for c in out.replace("\n", ""))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_output_cannot_show_is_escaped(clock, monkeypatch, encoding):
    name = "größe-张"
    disttune.autotune([{"b": "é"}], None, timer=clock, name=name)(lambda b: clock.spend(1000))()
    for command in (["list"], ["list", name], ["show", name], ["env"], ["env", "--markdown"]):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        assert main(command) == 0
        sys.stdout.flush()
        shown = raw.getvalue().decode(encoding)
        if command[0] != "env":
            assert name.encode(encoding, "backslashreplace").decode(encoding) in shown


def test_list_shows_key_winner_and_gain(tuned, capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("scale ")
    assert "2 ms, the default takes 2.00x" in out
    assert '(16, "float32")' in out
    assert tuned.func_dir() in out


def test_list_as_json_and_by_name(tuned, capsys):
    assert main(["list", "scale", "--json"]) == 0
    [entry] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert entry["name"] == "scale"
    assert entry["winner_ns"] == 2_000_000
    assert main(["list", "other"]) == 0
    assert "no records of 'other'" in capsys.readouterr().err


@pytest.mark.parametrize("by_file", [True, False])
def test_show_has_all_candidates(tuned, capsys, by_file):
    what = tuned.explain(16).file if by_file else "scale"
    assert main(["show", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("*" in line and "2 ms  block=2" in line for line in lines)
    assert any("4 ms  block=4" in line for line in lines)
    assert any("launch_failed" in line and "too large" in line for line in lines)


def test_show_reads_files_of_the_original(tmp_path, capsys):
    file = tmp_path / "old.json"
    file.write_text(json.dumps({
        "config": [[0.5, {"block": 2}], [0.75, {"block": 4}]], "deps": {}, "key": [16, "x"],
        "func": "scale", "timestamp": "2025-01-02_03_04_05",
    }))  # fmt: skip
    assert main(["show", str(file)]) == 0
    out = capsys.readouterr().out
    assert "scale (original format)" in out
    assert "0.5 ms  block=2" in out


def test_what_is_not_there_is_said(tmp_path, capsys):
    assert main(["show", "nothing"]) == 1
    assert "neither a file nor a function" in capsys.readouterr().err
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert main(["show", str(broken)]) == 1
    assert capsys.readouterr().err.startswith("disttune: ")


def test_what_cannot_be_read_is_left_out_and_said(tuned, store, capsys):
    tuned(17)
    first, second = sorted((store / "scale").glob("*.json"))
    first.write_bytes(first.read_bytes()[:-5])
    (store / "scale" / f"{'0' * 64}.json").write_text('{"schema": {"name": "other"')
    assert main(["list"]) == 0
    said = capsys.readouterr()
    assert said.out.count("    winner") == 2  # the beginning of the first is whole
    assert f"left out: {store}/scale/{'0' * 64}.json: " in said.err
    assert main(["show", "scale"]) == 1
    said = capsys.readouterr()
    assert str(second) in said.out  # the damaged one does not keep the other from being shown
    assert str(first) in said.err or "offset" in said.err


def test_a_home_that_is_no_utf8(clock, tmp_path, monkeypatch, capsys):
    home = os.fsdecode(os.fsencode(tmp_path) + b"/h\xff")
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_HOME", home)

    @disttune.autotune([{"b": 2}, {"b": 1}], key_fn=None, timer=clock)
    def scale(b):
        clock.spend(b)

    scale()
    file = scale.explain().file
    assert os.path.exists(file)
    assert "scale" in str(scale.explain())
    assert disttune.load_autotune_data(file)["func"] == "scale"
    for command in (["env"], ["list"], ["list", "--store", home], ["show", file]):
        assert main(command) == 0, command
        assert capsys.readouterr().err == ""


def test_a_store_is_named_as_a_shell_would(tuned, store, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(store.parent))
    assert main(["list", "--store=~/store"]) == 0
    assert "scale" in capsys.readouterr().out
