"""Whatever is wrong with the input: exit status 2, one line on stderr, nothing on stdout, nothing half-written."""

import errno
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from hessdiag.__main__ import main
from hessdiag.models import mlp

NETS = """
import warnings
import torch
from torch import nn
warnings.warn("from the module")
def good(): return nn.Linear(4, 2), 4
def silent(): return nn.Linear(4, 2)
def needs(width): return nn.Linear(4, width), 4
class Positions(nn.Module):
    def __init__(self): super().__init__(); self.layer, self.input_size = nn.Linear(4, 12), 4
    def forward(self, x): return self.layer(x).view(-1, 3, 4)
class Named(Positions):
    def forward(self, x): return {"first": self.layer(x), "second": super().forward(x)}
def nan_weights():
    module = nn.Linear(4, 2)
    nn.init.constant_(module.weight, float("nan"))
    return module, 4
def complex_outputs():
    class Complex(nn.Linear):
        def forward(self, x): return super().forward(x).to(torch.complex64)
    return Complex(4, 2), 4

def data(): return torch.ones(3, 4), torch.tensor([0, 1, 0])
def data_no_targets(): return torch.ones(3, 4)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets_bad", raising=False)
    Path("nets_bad.py").write_text(NETS)
    Path("folder").mkdir()
    torch.save(mlp([4, 3, 2]).state_dict(), "good.pt")
    return tmp_path


GOOD = ("./nets_bad.py:good",)
REFUSED: list[tuple[tuple[str, ...], str]] = [
    (("./nets_bad.py:silent",), "(--input-size 3,32,32)"),
    (("./nets_bad.py:nan_weights",), "'weight' holds NaN"),
    (("./nets_bad.py:complex_outputs",), "real floating-point"),
    (("./nets_bad.py:needs",), "(--arg NAME=VALUE)"),
    (("./nets_bad.py:needs", "--arg", "width"), "write a name and a value"),
    (("./nets_bad.py:needs", "--arg", "width=" + "(" * 2000), "raised TypeError"),
    ((*GOOD, "--batch-size", "99999999999999999999"), "less than or equal to 1000000000"),
    ((*GOOD, "--input-size", "4,,4"), "write positive sizes"),
    ((*GOOD, "--input-size", "999999999,999999999,999999999"), "out of memory: use a smaller --batch-size"),
    ((*GOOD, "--init", "fan-in", "--weights", "good.pt"), "pass one of them"),
    (("mlp:4-3-2", "--weights", "godo.pt"), "did you mean good.pt"),
    ((*GOOD, "--data", "./nets_bad.py:data_no_targets", "--loss", "cross-entropy"), "needs targets"),
    ((*GOOD, "--loss", "torch.nn:Linear"), "--loss 'torch.nn:Linear' raised TypeError"),
    (("./nets_bad.py:Positions", "--loss", "cross-entropy"), "outputs (batch, 3, 4) may hold the classes"),
    (("./nets_bad.py:Named",), "name one, as in output='first' (--output first)"),
    ((*GOOD, "--json", "absent/report.json"), "cannot write 'absent/report.json': name a file in a writable"),
    ((*GOOD, "--json", "/proc/report.json"), "/proc"),
    ((*GOOD, "--plots", "good.pt/plots"), "good.pt"),
]

OTHERS = [  # lines of every command, and part of what is said
    ("nothing", "No such command 'nothing'. (try: hessdiag -h)"),
    ("diagnose", "Missing argument 'MODEL'. (try: hessdiag diagnose -h)"),
    ("diagnose lenet --jsn x", "No such option"),
    ("diagnose lenet --arg in_channels=0", "does not say the shape of its inputs"),
    ("diagnose mlp:4-3 --matrix fisher", "'fisher' is not one of 'ggn', 'hessian'"),
    ("diagnose mlp:4-3 --max-spread 0", "'--max-spread': Input should be greater than or equal to 1"),
    ("diagnose mlp:4-3 --quick --max-spread 2", "which --quick leaves out: pass one of them"),
    ("diagnose mlp:4-3 --fail-on note", "'note' is not one of 'fault', 'warning'"),
    ("diagnose mlp:4-3 --output logits:last", "write the dimension of the classes behind the colon, as in :1 or :-1"),
    ("explain nonsense", "there is no rule 'nonsense': hessdiag explain lists all"),
    ("reproduce libsvm", "'libsvm' is not one of 'ratios', 'heatmaps'"),
    ("reproduce ratios --quick --out good.pt/deeper", "good.pt' is a file, or cannot"),
    ("diagnose lenet --arg width=-1", "width -1: pass a factor above 0"),
    ("check-init fan-in", "--model"),
    ("check-init fan-in SMALL --max-spread 0.5", "should be greater than or equal to 1"),
    ("lr mlp:6-8-3 --loss random-quadratic", "random-quadratic"),
    ("lr mlp:6-8-3 --steps 0", "--steps"),
]
SMALL = "--model mlp:8-9-7-4 --setups 3 --batch-size 4"


def check_refusal(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts)
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("hessdiag: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert message in err
    assert len(err) < 1200 or "9999" in err
    assert sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts) == before


LINES = [(("diagnose", *arguments), message) for arguments, message in REFUSED]
LINES += [(tuple(line.replace("SMALL", SMALL).split()), message) for line, message in OTHERS]


@pytest.mark.parametrize(("arguments", "message"), LINES, ids=[" ".join(a)[:70] for a, _ in LINES])
def test_every_command_refuses_in_one_line(arguments: tuple[str, ...], message: str, capsys) -> None:
    check_refusal(arguments, message, capsys)


def test_a_folder_that_may_not_be_written_is_refused_before_measuring(monkeypatch, capsys) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr("hessdiag.cli.options.Subject.prepare", lambda *_, **__: pytest.fail("prepared all the same"))
    line = ("diagnose", "lenet", "--batch-size", "100000", "--json", "folder/r.json")
    check_refusal(line, "in a writable folder", capsys)


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("hessdiag.diagnosis.rules.overview", full)
    assert main(["explain"]) == 2
    assert capsys.readouterr().err == "hessdiag: the output cannot be written: No space left on device\n"
