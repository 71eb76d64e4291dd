"""A run that is killed again and again ends with the numbers of one that never was; bad files are refused."""

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from hessdiag import diagnose
from hessdiag.__main__ import main
from hessdiag.execution.journal import Journal
from hessdiag.results.report import Report

RUNS = {
    "blocks": "diagnose lenet --matrix hessian --batch-size 24 --rtol 0.2",
    "chunks": "diagnose lenet --batch-size 700 --max-memory 4MiB",
}


@pytest.mark.parametrize("kind", RUNS)
def test_killed_at_any_moment_and_started_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*RUNS[kind].split(), "--json", "undisturbed.json"]) == 0
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as here: sums round otherwise with more threads
    command = [sys.executable, "-m", "hessdiag", *RUNS[kind].split(), "--resume", "run", "--json", "resumed.json"]
    moments = random.Random(kind)
    kills = 0
    while kills < 3:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        started = time.monotonic()
        while not (tmp_path / "run").exists() and process.poll() is None and time.monotonic() - started < 60:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.6))
        kills += 1
        process.kill()
        process.wait()
        if process.returncode == 0:
            break
    assert kills
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    assert (tmp_path / "resumed.json").read_bytes() == (tmp_path / "undisturbed.json").read_bytes()


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["diagnose", "mlp:6-8-5", "--batch-size", "9", "--resume", "run", "--json", "-"]
    assert main(command) == 0
    first = Report.from_json(capsys.readouterr().out)
    for place in ("moments._sums", "curvature.exact.output_jacobians"):
        monkeypatch.setattr(f"hessdiag.{place}", lambda *_: pytest.fail("measured again"))
    assert main(command) == 0
    assert Report.from_json(capsys.readouterr().out) == first


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("--seed 1", "seed was 0 and is 1"),
        ("--rtol 0.1", "rtol was 0.05 and is 0.1"),
        ("--loss mse", "loss"),
        ("--matrix hessian", "matrix"),
        ("--dtype float64", "weights was"),
    ],
)
def test_another_run_is_refused_by_what_differs(changed: str, named: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["diagnose", "mlp:6-8-5", "--batch-size", "2", "--resume", "run"]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, *changed.split()]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hessdiag: cannot resume from 'run': it is of another measurement, ")
    assert said.count("\n") == 1
    assert named in said


def test_other_data_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["diagnose", "mlp:6-8-5", "--resume", "run", "--json", "-", "--batch-size"]
    found = []
    for size in ("4", "5"):
        assert main([*command, size]) == 0
        found.append(Report.from_json(capsys.readouterr().out))
    assert main(["diagnose", "mlp:6-8-5", "--json", "-", "--batch-size", "5"]) == 0
    assert Report.from_json(capsys.readouterr().out) == found[1] != found[0]


def corrupt(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\x7f" * 3000)


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE album (title TEXT)")


@pytest.mark.parametrize("make", [corrupt, foreign, lambda path: path.write_text("{}"), Path.mkdir])
def test_a_bad_file_is_refused_in_one_line(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "run")
    assert main(["diagnose", "mlp:6-8-5", "--batch-size", "2", "--resume", "run", "--json", "out.json"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hessdiag: cannot ")
    assert said.count("\n") == 1
    assert not (tmp_path / "out.json").exists()


def test_figures_resume_by_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hessdiag.experiments.ratio_figure.QUICK_SETUPS", 3)
    monkeypatch.setattr("hessdiag.experiments.ratio_figure.QUICK_BATCH_SIZE", 4)
    command = ["reproduce", "ratios", "--quick", "--resume", "run", "--out"]
    assert main([*command, "first"]) == 0
    monkeypatch.setattr("hessdiag.diagnosis.random_setups.diagnose", lambda *_, **__: pytest.fail("measured again"))
    assert main([*command, "second"]) == 0
    assert (tmp_path / "first" / "ratios.json").read_text() == (tmp_path / "second" / "ratios.json").read_text()


@pytest.mark.parametrize("method", ["exact", "sketch"])
def test_a_run_may_go_on_with_other_memory(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of other sizes, though no more of them, are other units: sums of both would be of no batch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hessdiag.execution.memory.CACHED", 2**40)
    torch.manual_seed(0)
    model, x = torch.nn.Linear(300, 60).double(), torch.randn(40, 300, dtype=torch.float64)
    sizes = {}
    for memory in (2**21, 5 * 2**19):
        work = Journal(tmp_path / "run", {})
        monkeypatch.setattr("hessdiag.diagnosis.diagnose.journal", lambda *_, work=work: nullcontext(work))
        resumed = diagnose(model, x, method=method, max_memory=memory, resume="run")
        sizes[memory] = work.connection.execute("SELECT count(*) FROM unit").fetchone()
        work.close()
    fresh = diagnose(model, x, method=method, max_memory=5 * 2**19)
    for a, b in zip(resumed.blocks, fresh.blocks, strict=True):
        assert a.avg_sq_singular_value == pytest.approx(b.avg_sq_singular_value, rel=1e-11)
        assert a.gamma == pytest.approx(b.gamma, rel=1e-11)
    assert sizes[5 * 2**19] > sizes[2**21]
