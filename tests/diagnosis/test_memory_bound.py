"""A measurement takes no more than it may, or says how much it takes."""

import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import hessdiag
from hessdiag.execution.memory import as_bytes

MEASURE = """
import sys, torch, hessdiag
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
widths, memory = [int(width) for width in sys.argv[1].split(",")], sys.argv[2]
layers = [layer for n, m in zip(widths, widths[1:]) for layer in (nn.Linear(n, m), nn.ReLU())]
warm = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5))  # loads code, which is not of the measurement
hessdiag.diagnose(warm, torch.randn(2, 3), torch.randint(5, (2,)), loss="cross-entropy")
x, t = torch.randn(256, widths[0]), torch.randint(widths[-1], (256,))
report = hessdiag.diagnose(nn.Sequential(*layers[:-1]), x, t, loss="cross-entropy", max_memory=memory)
print(report.peak_memory)
"""


@pytest.mark.parametrize(
    ("widths", "memory"), [("300,800,800,800,800,800,10", "100MiB"), ("500,2000,2000,10", "250MiB")]
)
def test_a_measurement_stays_within_a_fifth_of_what_it_may_take(widths: str, memory: str) -> None:
    ran = subprocess.run([sys.executable, "-c", MEASURE, widths, memory], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 1.2 * as_bytes(memory)


def test_too_little_is_refused_with_what_would_do() -> None:
    model, x = nn.Sequential(nn.Linear(400, 500), nn.ReLU(), nn.Linear(500, 5)), torch.randn(20, 400)
    with pytest.raises(hessdiag.HessdiagError, match="max_memory 1MiB: gradients of") as refused:
        hessdiag.diagnose(model, x, max_memory="1MiB")
    told = re.search(r"take about (\d+MiB)", str(refused.value))
    assert told is not None
    assert hessdiag.diagnose(model, x, max_memory=told[1]).blocks


def test_no_bound_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessdiag.execution.memory.free_memory", lambda device: 2**20)
    assert hessdiag.diagnose(nn.Linear(400, 500), torch.randn(3, 400), method="sketch").blocks
