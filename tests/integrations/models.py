"""A healthy network, and the same one with two faults, as files and as functions."""

from pathlib import Path

SOURCE = '''
import torch
from torch import nn


def network(fill: float = 0.0):
    """30 ReLUs, dead ones where their bias is very negative."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))
    nn.init.constant_(model[0].bias, fill)
    return model, (4,)


def sunk():
    return network(-10.0)
'''


def write_models(folder: Path) -> None:
    """Write `nets.py` there."""
    (folder / "nets.py").write_text(SOURCE, encoding="utf-8")


DEFINED_AT = SOURCE.splitlines().index("def sunk():") + 1
