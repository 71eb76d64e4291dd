"""`hessdiag check-init`: a new user's file, results on stdout, a gate, and one line for what cannot be."""

import json
from pathlib import Path

import pytest

from hessdiag.results.setups import InitCheck

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
"""
SAID = {
    "init_weights": "called with every module, as by model.apply",
    "init_all": "called once, with the whole model",
    "init_weight": "called with every weight, biases set to zero",
}
SMALL = "--model mlp:8-9-7-4 --setups 2 --batch-size 4"


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


def test_files(run, tmp_path: Path) -> None:
    line = f"check-init fan-out {SMALL} --against geometric --max-spread 1"
    status, out, err = run(f"{line} --json c.json --plots drawn")
    assert status == 1
    assert "spread of σ² under fan-out is" in err
    assert json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["schema"] == "hessdiag.init-check/3"
    assert repr(InitCheck.from_json("c.json")) == out.rstrip("\n")
    assert sorted(p.name for p in (tmp_path / "drawn").iterdir()) == ["init-check.png", "init-check.svg"]
    assert [line.split()[0] for line in err.splitlines()] == ["drew"] * 2 + ["wrote"] + ["hessdiag:"]
