"""`hessdiag check-init`: a new user's file, results on stdout, a gate, and one line for what cannot be."""

import json
from pathlib import Path

import pytest

from hessdiag.__main__ import main
from hessdiag.results.init_check import InitCheck

MINE = """
import torch


def init(weight):
    torch.nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
"""
SMALL = "--model mlp:8-9-7-4 --setups 3 --batch-size 4"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a command line in a folder that holds a user's own initialisation."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)

    def run(line: str):
        status = main(line.split())
        return (status, *capsys.readouterr())

    return run


def test_ones_own_initialisation_against_the_known_ones(run) -> None:
    status, out, err = run(f"check-init ./mine.py:init {SMALL}")
    assert (status, err) == (0, "")
    assert "mlp:8-9-7-4: initialisation ./mine.py:init against 4 others, 3 set-ups each" in out
    for name in ("fan-in", "fan-out", "arithmetic", "geometric", "./mine.py:init *"):
        assert f"\n{name} " in out
    assert " ".join(out.split()).split("./mine.py:init: ")[-1].startswith(("balanced", "uneven", "unbalanced"))


def test_files(run, tmp_path: Path) -> None:
    status, out, err = run(
        f"check-init fan-out {SMALL} --against geometric --widths 1,2 --json c.json --html c.html --plots drawn"
    )
    assert status == 0
    assert repr(InitCheck.from_json("c.json")) == out.rstrip("\n")
    assert sorted(p.name for p in (tmp_path / "drawn").iterdir()) == [
        "init-check.png",
        "init-check.svg",
        "widths.png",
        "widths.svg",
    ]
    assert [line.split()[0] for line in err.splitlines()] == ["wrote"] * 2 + ["drew"] * 4
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_json_alone(run) -> None:
    status, out, _ = run(f"check-init geometric {SMALL} --against fan-in --json -")
    record = json.loads(out)
    assert status == 0
    assert record["schema"] == "hessdiag.init-check/1"
    assert [row["init"] for row in record["ranking"]] == record["order"]
    assert {"spread", "spread_interval", "ratio", "output_variance", "saturates"} <= set(record["ranking"][0])


def test_the_gate(run) -> None:
    assert run(f"check-init fan-out {SMALL} --against fan-in --max-spread 1000")[0] == 0
    status, out, err = run(f"check-init fan-out {SMALL} --against fan-in --max-spread 1")
    assert status == 1
    assert out
    assert "spread of σ² under fan-out is" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check-init fan-in", "--model"),
        (f"check-init fan-inn {SMALL}", "unknown initialisation 'fan-inn': did you mean fan-in"),
        (f"check-init ./nothing.py:f {SMALL}", "there is no file 'nothing.py'"),
        (f"check-init fan-in {SMALL} --widths 1,x", "--widths '1,x': write positive factors"),
        (f"check-init fan-in {SMALL} --widths -1", "write positive factors"),
        (f"check-init fan-in {SMALL} --setups 0", "0 set-ups"),
        (f"check-init fan-in {SMALL} --max-spread 0.5", "at least 1"),
        (f"check-init fan-in {SMALL} --json nowhere/c.json", "there is no folder 'nowhere'"),
        ("check-init fan-in --model lenett", "did you mean lenet"),
        ("reproduce resnet --part training", "--part 'training': use conditioning"),
    ],
)
def test_what_cannot_be_is_one_line(run, line: str, message: str) -> None:
    status, out, err = run(line)
    assert (status, out) == (2, "")
    assert err.startswith("hessdiag: ")
    assert err.count("\n") == 1
    assert message in err


def test_help_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from hessdiag.__main__ import main; main(['check-init', '--help']);"
        " main(['reproduce', 'resnet', '--help']); assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
