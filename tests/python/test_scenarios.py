"""Public bug reports of comparable tools that no other test file is about, by their S-numbers."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import disttune
import pytest


class Clock:
    """A clock that launchers move."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def make(clock: Clock, space: list[dict[str, Any]], key: Any = None, **options: Any) -> Any:
    runs: list[int] = []

    def launcher(*args: Any, block: int, **kwargs: Any) -> int:
        runs.append(block)
        clock.now += 1000 * block
        return block

    options = {"name": "scenario", "version": "1", "timer": clock, **options}
    tuned = disttune.autotune(space, key, **options)(launcher)
    return tuned, runs


SPACE = [{"block": 3}, {"block": 1}]


def run_python(text: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_S05_another_measuring_policy_has_a_record_of_its_own() -> None:
    clock = Clock()
    make(clock, SPACE)[0](1)
    tuned, runs = make(clock, SPACE, cache="cold")
    assert tuned.explain(1).source == "none"
    assert any("cache" in line for line in tuned.explain(1).differences)
    tuned(1)
    assert len(runs) == 2 * 15 + 1


def test_S08_strides_are_a_key_with_to_hashable() -> None:
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(numpy.zeros((4, 8), dtype="float32"))
    assert disttune.to_hashable(x) != disttune.to_hashable(x.t().contiguous().t())
    clock = Clock()
    tuned, _ = make(clock, SPACE, disttune.to_hashable)
    tuned(x)
    tuned(x.t().contiguous().t())
    assert len(tuned.best_configs) == 2


def test_S10_two_dtypes_alternate_and_each_keeps_its_own_entry() -> None:
    torch = pytest.importorskip("torch")
    clock = Clock()
    fast = {torch.float16: 1, torch.float32: 3}
    seen = []

    def launcher(x: Any, block: int) -> int:
        clock.now += 1000 if block == fast[x.dtype] else 5000
        seen.append((x.dtype, block))
        return block

    tuned = disttune.autotune(SPACE, lambda x: x.dtype, timer=clock)(launcher)
    for _ in range(50):
        for dtype, block in fast.items():
            assert tuned(torch.zeros(2, dtype=dtype)) == block


def test_S11_the_fingerprint_is_the_same_text_when_written_and_when_read() -> None:
    clock = Clock()
    make(clock, SPACE)[0](1)
    first = make(clock, SPACE)[0].result(1)
    program = """
        import disttune
        tuned = disttune.autotune([{"block": 3}, {"block": 1}], None, name="scenario", version="1",
                                  timer=lambda: 0)(lambda *a, block: block)
        print(tuned.explain(1).source)
    """
    assert run_python(program, PYTHONHASHSEED="1").strip() == "store"
    assert first.hardware == make(clock, SPACE)[0].result(1).hardware


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"key": lambda x: (x, 2)}, "key"),
        ({"cache": "cold"}, "cache"),
        ({"version": "2"}, "version"),
    ],
)
def test_S15_each_change_alone_is_a_miss_that_names_its_field(change: Any, named: str) -> None:
    clock = Clock()
    make(clock, SPACE, lambda x: (x, 1))[0](7)
    options = {"key": lambda x: (x, 1), **change}
    explained = make(clock, SPACE, **options)[0].explain(7)
    assert explained.source == "none"
    assert len(explained.differences) == 1 and named in explained.differences[0]


def test_S17_tuning_and_look_up_share_the_bucket_function() -> None:
    clock = Clock()
    tuned, runs = make(clock, SPACE, lambda n: n.bit_length())
    for n in (7, 8, 9, 15, 16, 17):
        tuned(n)
    assert len(tuned.best_configs) == 3
    before = len(runs)
    for n in (7, 8, 9, 15, 16, 17):
        tuned(n)
    assert len(runs) == before + 6


def test_S31_three_runs_use_one_folder_and_one_choice() -> None:
    program = """
        import disttune
        now = [0]
        def launcher(n, block):
            now[0] += 1000 * block
            print("run", block)
        tuned = disttune.autotune([{"block": 3}, {"block": 1}], lambda n: n, name="thrice",
                                  version="1", timer=lambda: now[0])(launcher)
        tuned(1)
        print("folder", tuned.func_dir())
    """
    first, second, third = (run_python(program) for _ in range(3))
    assert len(first.splitlines()) == 31 + 1
    assert second == third
    assert second.splitlines()[0] == "run 1" and len(second.splitlines()) == 2


def test_S50_a_race_gives_a_slow_candidate_up_after_a_few_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_STRATEGY", "race")
    clock = Clock()
    space = [*({"block": b} for b in range(1, 9)), {"block": 10_000}]
    tuned, runs = make(clock, space)
    tuned(1)
    assert tuned.best_configs[None] == {"block": 1}
    assert runs.count(10_000) <= 3


def test_S52_a_candidate_that_kills_the_process_is_skipped_by_the_next_one(tmp_path: Path) -> None:
    script = tmp_path / "fault.py"
    script.write_text(
        textwrap.dedent("""
            import os, signal, disttune
            now = [0]
            def launcher(block):
                now[0] += 1000 * block
                if block == 1:
                    os.kill(os.getpid(), signal.SIGSEGV)
            space = [{"block": b} for b in (3, 1, 2)]
            tuned = disttune.autotune(space, None, timer=lambda: now[0])(launcher)
            tuned()
            print(*[c.status for c in tuned.result().candidates], tuned.best_configs[None]["block"])
        """)
    )

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
        )

    assert run().returncode == -signal.SIGSEGV
    again = run()
    assert again.stdout.split() == ["ok", "crashed", "ok", "2"], again.stdout + again.stderr


def test_a_reference_that_kills_the_process_is_no_candidates_fault(tmp_path: Path) -> None:
    script = tmp_path / "fault.py"
    script.write_text(
        textwrap.dedent("""
            import os, signal, sys, disttune
            now = [0]
            def reference():
                if sys.argv[1] == "dies":
                    os.kill(os.getpid(), signal.SIGSEGV)
            def launcher(block):
                now[0] += 1000 * block
            space = [{"block": b} for b in (3, 1, 2)]
            tuned = disttune.autotune(
                space, None, timer=lambda: now[0], check=reference, name="f", version="1"
            )(launcher)
            tuned()
            print(*[c.status for c in tuned.result().candidates], tuned.best_configs[None]["block"])
        """)
    )

    def run(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), how]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert run("dies").returncode == -signal.SIGSEGV
    again = run("lives")
    assert again.stdout.split() == ["ok", "ok", "ok", "1"], again.stdout + again.stderr


@pytest.mark.parametrize("end", ["normal", "interrupted"])
def test_S55_compilers_started_by_prepare_end_with_the_program(end: str, tmp_path: Path) -> None:
    script = tmp_path / "compiling.py"
    script.write_text(
        textwrap.dedent("""
            import os, signal, subprocess, sys, disttune
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background
            now = [0]
            def launcher(block):
                now[0] += 1000 * block
            def compile_one(entry):
                compiler = subprocess.Popen(["sleep", sys.argv[1]])
                os.write(1, b"%d\\n" % compiler.pid)
                if compiler.wait():
                    raise RuntimeError("the compiler was interrupted")
            space = [{"block": b} for b in range(1, 9)]
            disttune.autotune(space, None, timer=lambda: now[0], prepare=compile_one)(launcher)()
        """)
    )
    program = subprocess.Popen(
        [sys.executable, str(script), "0" if end == "normal" else "3"],
        env={**os.environ, "TRITON_DIST_AUTOTUNE_WORKERS": "2"}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert program.stdout is not None and program.stderr is not None
    compilers = [int(program.stdout.readline()) for _ in range(2)]
    if end == "interrupted":  # as a terminal does it: the whole group is told
        os.killpg(program.pid, signal.SIGINT)
    compilers += [int(pid) for pid in program.stdout.read().split()]
    errors = program.stderr.read()
    program.wait()
    if end == "normal":
        assert program.returncode == 0, errors
        assert len(compilers) == 8
    else:
        assert program.returncode != 0 and "KeyboardInterrupt" in errors, errors
        # Each worker may have begun one more before the main thread learned of the interrupt.
        assert len(compilers) <= 4
    for pid in compilers:
        assert not Path(f"/proc/{pid}").exists()


def test_S57_reset_restore_and_prune_run_where_the_documentation_says() -> None:
    clock = Clock()
    seen: list[str] = []
    cell = bytearray(b"\x07")

    def launcher(cell: Any, block: int) -> int:
        seen.append("run" if cell[0] == 7 else "run on leftovers")
        cell[0] = 0
        clock.now += 1000 * block
        return block

    def prune(entry: Any, cell: Any) -> bool:
        seen.append("prune")
        return True

    tuned = disttune.autotune(SPACE, None, prune, timer=clock, restore=["cell"])(launcher)
    tuned(cell)
    # Every run of the tuning, its final one too, finds the argument as the caller gave it.
    assert seen == ["prune"] * 2 + ["run"] * (2 * 15 + 1)
    seen.clear()
    cell[0] = 7
    tuned(cell)
    tuned(cell)
    assert seen == ["run", "run on leftovers"]  # warm calls are left alone


def test_S60_another_process_that_tunes_on_the_device_is_in_the_record() -> None:
    clock = Clock()
    alone, _ = make(clock, SPACE, lambda n: n)
    alone(1)
    assert "contended" not in alone.result(1).tunings[0].quality
    program = """
        import sys, disttune
        now = [0]
        told = []
        def launcher(n, block):
            now[0] += 1000
            if not told:
                told.append(1)
                print("inside", flush=True)
                sys.stdin.readline()
        space = [{"block": 1}]
        disttune.autotune(space, None, timer=lambda: now[0], store=sys.argv[1])(launcher)(1)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(Path(alone.func_dir()).parent / "x")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None and other.stdout.readline().strip() == "inside"
        alone(2)
        other.communicate("go\n", timeout=60)
    assert "contended" in alone.result(2).tunings[0].quality


def test_S63_a_choice_tuned_eagerly_does_not_serve_where_graph_replay_is_declared() -> None:
    clock = Clock()
    options = {"name": "policy", "version": "1"}
    eager = disttune.autotune(SPACE, None, **options)(lambda *a, block: block)
    eager(1)
    graph = disttune.autotune(SPACE, None, timer="graph", **options)(lambda *a, block: block)
    explained = graph.explain(1)
    assert explained.source == "none"
    assert any("launch" in line or "clock" in line for line in explained.differences)
    del clock


def test_S74_workers_never_run_the_main_script_again(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    count = tmp_path / "count"
    script.write_text(
        textwrap.dedent(f"""
            open({str(count)!r}, "a").write("x")
            import disttune
            now = [0]
            def launcher(n, block):
                now[0] += 1000 * block
            tuned = disttune.autotune(
                [{{"block": b}} for b in (1, 2, 3, 4)], None, timer=lambda: now[0],
                prepare=lambda entry, *args, **kwargs: None,
            )(launcher)
            tuned(1)
        """)
    )
    subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "TRITON_DIST_AUTOTUNE_WORKERS": "4"}, check=True, timeout=120,
    )  # fmt: skip
    assert count.read_text() == "x"


def test_S75_a_forked_child_tunes_and_is_served() -> None:
    program = """
        import os, disttune
        now = [0]
        def launcher(n, block):
            now[0] += 1000 * block
            return block
        space = [{"block": 3}, {"block": 1}]
        tuned = disttune.autotune(space, lambda n: n, timer=lambda: now[0])(launcher)
        tuned(1)
        child = os.fork()
        if child == 0:
            ok = tuned(1) == 1 and tuned(2) == 1
            os._exit(0 if ok else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(tuned(2))
    """
    assert run_python(program).split() == ["0", "1"]


@pytest.mark.parametrize("name", ["REPEAT", "WARMUP"])
def test_S81_a_variable_set_after_the_import_counts_at_the_next_new_key(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    tuned, runs = make(clock, [{"block": 1}], lambda n: n)
    tuned(1)
    assert len(runs) == 16
    monkeypatch.setenv(f"TRITON_DIST_AUTOTUNE_{name}", "2")
    tuned(1)
    assert len(runs) == 17
    tuned(2)
    assert len(runs) == 17 + {"REPEAT": 5 + 2, "WARMUP": 2 + 10}[name] + 1
    shown = run_python("from disttune.__main__ import main; main(['env'])")
    assert name in shown and "2" in shown


def test_S78_a_warm_call_above_its_limit_fails_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Path(__file__).resolve().parents[2] / "bench"
    monkeypatch.syspath_prepend(str(bench))
    loader = importlib.machinery.SourceFileLoader("bench_run", str(bench / "run"))
    spec = importlib.util.spec_from_loader("bench_run", loader)
    assert spec is not None
    run = importlib.util.module_from_spec(spec)
    loader.exec_module(run)
    (tmp_path / "CMakeLists.txt").write_text("")
    (tmp_path / "warm.py").write_text(
        "import os\ndef main(report):\n"
        "    report.figure('ratio_call', float(os.environ['TAKES']), 1.5)\n"
    )
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "use_project_python", lambda: None)
    monkeypatch.setattr(sys, "argv", ["bench/run", "warm", "--json"])
    for takes, ends_with, said in (("1.4", 0, "at most 1.5)"), ("1.6", 1, "ABOVE")):
        monkeypatch.setenv("TAKES", takes)
        assert run.main() == ends_with
        assert said in capsys.readouterr().out
    # The real ones have their limits: two in Python, and one for each size of the table in C++.
    python, cpp = ((bench / name).read_text() for name in ("call.py", "call.cpp"))
    assert len(re.findall(r'report\.figure\("ratio_.*, [\d.]+\)', python)) == 2
    assert "report.limited(" in cpp


def test_S82_what_the_program_sets_before_the_first_call_is_what_its_workers_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Candidates are prepared by threads of this process: there is no other environment to see.
    clock = Clock()
    seen: set[tuple[int, str | None]] = set()

    def prepare(entry: Any) -> None:
        seen.add((os.getpid(), os.environ.get("VISIBLE_DEVICES")))

    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_WORKERS", "4")
    tuned, _ = make(clock, [{"block": b} for b in range(1, 9)], prepare=prepare)
    monkeypatch.setenv("VISIBLE_DEVICES", "3")
    tuned()
    assert seen == {(os.getpid(), "3")}
