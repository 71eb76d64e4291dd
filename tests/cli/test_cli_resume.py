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
    "chunks": "diagnose lenet --batch-size 700 --max-memory 24MiB",
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


@pytest.mark.parametrize("kind", RUNS)
def test_a_finished_run_started_again_writes_the_same_bytes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left to measure, but what no journal keeps, such as the gradient that signals are of."""
    monkeypatch.chdir(tmp_path)
    for name in ("first", "again"):
        assert main([*RUNS[kind].split(), "--resume", "run", "--json", f"{name}.json"]) == 0
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "first.json").read_bytes()


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["diagnose", "mlp:6-8-5", "--batch-size", "9", "--resume", "run", "--json", "-"]
    assert main(command) == 0
    first = Report.from_json(capsys.readouterr().out)
    for place in ("diagnosis.moments._sums", "curvature.exact.output_jacobians"):
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


NET = """
import torch
from torch import nn

SCALE = 1.0

def act(x):
    return torch.tanh(x)

class Net(nn.Module):
    input_size = (6,)

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 5)
        self.slope = 1.0

    def forward(self, x):
        return self.last(SCALE * self.slope * act(self.first(x)))

def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.xavier_normal_(m.weight)

def data():
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        yield torch.randn(4, 6, generator=generator), torch.zeros(4, dtype=torch.int64)
"""
OPTIONS = ["--init", "./net.py:init_weights", "--data", "./net.py:data", "--batches", "all", "--loss", "cross-entropy"]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("return self.last(", "return -self.last(", "code"),
        ("torch.tanh(x)", "torch.sigmoid(x)", "code"),
        ("SCALE = 1.0", "SCALE = 0.5", "code"),
        ("self.slope = 1.0", "self.slope = 0.5", ""),
        ("xavier_normal_", "kaiming_normal_", "weights"),
        ("range(2)", "range(3)", ""),
        ("torch.zeros(4, dtype", "torch.ones(4, dtype", ""),
        ("randn(4, 6,", "rand(4, 6,", ""),
    ],
)
def test_edited_code_is_never_answered_with_old_numbers(
    old: str, new: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused by what differs, or measured anew."""
    monkeypatch.chdir(tmp_path)
    command = ["diagnose", "./net.py:Net", *OPTIONS, "--json", "-"]
    (tmp_path / "net.py").write_text(NET)
    assert main([*command, "--resume", "run"]) == 0
    before = Report.from_json(capsys.readouterr().out)
    assert NET.count(old) == 1
    (tmp_path / "net.py").write_text(NET.replace(old, new) + "# a file of another size is read again\n")
    status = main([*command, "--resume", "run"])
    printed = capsys.readouterr()
    if status == 2:
        assert f"it is of another measurement, {named}" in printed.err
        return
    assert main(command) == 0
    assert Report.from_json(printed.out) == Report.from_json(capsys.readouterr().out) != before


def test_a_comment_is_no_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["diagnose", "./net.py:Net", *OPTIONS, "--json", "-", "--resume", "run"]
    found = []
    for text in (NET, "# a comment\n" + NET):
        (tmp_path / "net.py").write_text(text)
        assert main(command) == 0
        found.append(Report.from_json(capsys.readouterr().out))
        monkeypatch.setattr("hessdiag.diagnosis.moments._sums", lambda *_: pytest.fail("measured again"))
    assert found[0] == found[1]


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


@pytest.mark.parametrize("method", ["exact", "sketch"])
def test_a_run_may_go_on_with_other_memory(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of other sizes, though no more of them, are other units: sums of both would be of no batch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hessdiag.execution.memory.CHUNK", 2**40)
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


def test_an_initialisation_check_resumes_by_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["check-init", "geometric", "--model", "mlp:8-9-4", "--setups", "2", "--batch-size", "4"]
    resumed = [*command, "--resume", "run"]
    assert main([*command, "--json", "plain.json"]) == 0
    assert main([*resumed, "--json", "first.json"]) == 0
    again = "hessdiag.diagnosis.random_setups.diagnose_prepared"
    monkeypatch.setattr(again, lambda *_, **__: pytest.fail("measured again"))
    assert main([*resumed, "--json", "second.json"]) == 0
    assert Path("first.json").read_text() == Path("second.json").read_text() == Path("plain.json").read_text()


def test_a_comparison_with_predictions_resumes_by_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["predict", "mlp:8-9-4", "--init", "geometric", "--compare", "--setups", "2", "--batch-size", "4"]
    resumed = [*command, "--resume", "run"]
    assert main([*resumed, "--json", "first.json"]) == 0
    fresh = "hessdiag.diagnosis.random_setups.diagnose_prepared"
    monkeypatch.setattr(fresh, lambda *_, **__: pytest.fail("measured again"))
    assert main([*resumed, "--json", "second.json"]) == 0
    assert Path("first.json").read_text() == Path("second.json").read_text()
    assert main([*command[:4], "--resume", "run"]) == 2  # nothing to resume without --compare
