"""`hessdiag check-init`: a new user's file, results on stdout, a gate, and one line for what cannot be."""

import json
from pathlib import Path

import pytest

from hessdiag.results.init_check import InitCheck

MINE = """
import torch


def init(weight):
    torch.nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
"""
CONVENTIONS = """
import torch
from torch import nn


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.kaiming_normal_(m.weight)
        nn.init.zeros_(m.bias)


def init_all(model):
    for module in model.modules():
        init_weights(module)


def init_weight(weight):
    return torch.nn.init.kaiming_normal_(weight)


def nothing(m):
    if isinstance(m, nn.Conv3d):
        nn.init.zeros_(m.weight)


def array(weight):
    return weight.numpy() * 2
"""
SAID = {
    "init_weights": "called with every module, as by model.apply",
    "init_all": "called once, with the whole model",
    "init_weight": "called with every weight, biases set to zero",
}
SMALL = "--model mlp:8-9-7-4 --setups 2 --batch-size 4"


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path) -> None:
    """A user's own initialisation in the folder."""
    (tmp_path / "mine.py").write_text(MINE)


def test_ones_own_initialisation_against_the_known_ones(run) -> None:
    status, out, err = run(f"check-init ./mine.py:init {SMALL}")
    assert (status, err) == (0, "")
    assert "mlp:8-9-7-4: initialisation ./mine.py:init against 4 others, 2 set-ups each" in out
    for name in ("fan-in", "fan-out", "arithmetic", "geometric", "./mine.py:init *"):
        assert f"\n{name} " in out
    assert out.startswith(("./mine.py:init: balanced", "./mine.py:init: uneven", "./mine.py:init: unbalanced"))


@pytest.mark.parametrize("name", SAID)
def test_every_convention_is_understood_and_said(run, name: str, tmp_path: Path) -> None:
    """All draw the same weights by the same seed, hence the same numbers."""
    (tmp_path / "ways.py").write_text(CONVENTIONS)
    line = f"{SMALL} --against ./ways.py:init_weight"
    status, out, err = run(f"check-init ./ways.py:{name} {line} --json c.json")
    check = InitCheck.from_json("c.json")
    assert (status, err) == (0, "wrote c.json\n")
    assert check.checked.convention.startswith(SAID[name])
    assert check.schemes[0].setups.columns["gamma"].tolist() == check.schemes[-1].setups.columns["gamma"].tolist()
    assert f"./ways.py:{name}: {SAID[name]}" in " ".join(out.split())
    status, _, err = run(f"diagnose mlp:8-9-7-4 --batch-size 2 --init ./ways.py:{name}")
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith(f"hessdiag: --init ./ways.py:{name}: {SAID[name]}")


def test_a_function_that_initialises_nothing_is_refused(run, tmp_path: Path) -> None:
    (tmp_path / "ways.py").write_text(CONVENTIONS)
    for name, message in {"nothing": "was called with every module", "array": "returned a ndarray"}.items():
        for command in (f"check-init INIT {SMALL}", "diagnose mlp:8-9-4 --init INIT"):
            status, out, err = run(command.replace("INIT", f"./ways.py:{name}"))
            assert (status, out, err.count("\n")) == (2, "", 1)
            assert err.startswith(f"hessdiag: init './ways.py:{name}' {message}")


def test_files(run, tmp_path: Path) -> None:
    line = f"check-init fan-out {SMALL} --against geometric --max-spread 1"
    status, out, err = run(f"{line} --json c.json --html c.html --plots drawn")
    assert status == 1
    assert "spread of σ² under fan-out is" in err
    assert json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["schema"] == "hessdiag.init-check/3"
    assert repr(InitCheck.from_json("c.json")) == out.rstrip("\n")
    assert sorted(p.name for p in (tmp_path / "drawn").iterdir()) == ["init-check.png", "init-check.svg"]
    assert [line.split()[0] for line in err.splitlines()] == ["drew"] * 2 + ["wrote"] * 2 + ["hessdiag:"]
