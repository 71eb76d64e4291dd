"""Table 1 of arXiv 1906.04267, measured: which operations keep ς, the activation scaling factor, and by how much not.

For each row a random network input -> random layer -> operation -> random linear layer -> yᵀRy is drawn many times;
ς = n ρ² E[Δx²] E[x²] is measured before and behind the operation on a batch of random inputs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.execution.seeds import stream
from hessdiag.execution.work import Result, Work
from hessdiag.experiments.figure import Figure
from hessdiag.experiments.operation_settings import CHANNELS, SETTINGS, SIDE, WIDTH, Setting
from hessdiag.network.torch_state import seeded_rng
from hessdiag.results.numbers import Z95
from hessdiag.results.operation_table import OperationRow, OperationTable

DRAWS, QUICK_DRAWS, BATCH_SIZE = 200, 20, 16
OUTPUTS = 10
TOLERANCE = 0.05  # a change of ς by less is called none


class Mark(nn.Module):
    """x -> u x with u = 1: a learnable scalar whose ς is that of the activation it stands on."""

    def __init__(self) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the value of x."""
        return self.u * x


class Sum(nn.Module):
    """relu(a) + b of two random layers: what a ReLU behind a skip connection reads."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """Return what is shaped like the outputs of the layers."""
        return F.relu(self.first(x)) + self.second(x)  # type: ignore[no-any-return]


def network(setting: Setting, *, exact: bool = False) -> tuple[nn.Module, nn.Module, nn.Module, tuple[int, ...]]:
    """Build (what comes before, the operation, what comes behind, shape of one input), all random.

    Args:
        setting: the operation and what it reads.
        exact: scale every weight such that its E[W²] is what its distribution says.
    """

    def normal(module: nn.Module, second_moment: float) -> None:
        with torch.no_grad():
            weight = module.get_parameter("weight").detach().normal_()
            weight *= math.sqrt(second_moment / float(weight.square().mean() if exact else 1.0))

    def layer() -> nn.Module:
        made: nn.Module
        made = nn.Conv2d(3, CHANNELS, 3, bias=False) if setting.image else nn.Linear(100, WIDTH, bias=False)
        fan_in = 27 if setting.image else 100
        normal(made, setting.gain**2 / fan_in)
        return made

    before: nn.Module = layer()
    if setting.reads == "relu":
        before = nn.Sequential(before, nn.ReLU())
    elif setting.reads == "residual":
        before = Sum(before, layer())
    operation = setting.build().train()
    for module in operation.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            normal(module, 2 / module.weight[0].numel())
    size = (3, SIDE + 2, SIDE + 2) if setting.image else (100,)
    with torch.no_grad():
        width = operation(before(torch.zeros(1, *size))).numel()
    last = nn.Linear(width, OUTPUTS, bias=False)
    normal(last, 2 / width)
    return before, operation, nn.Sequential(nn.Flatten(), last), size


def draw_ratio(setting: Setting, seed: int) -> float:
    """Measure ς behind over ς before the operation of one random network, over one batch of random inputs."""
    with seeded_rng(stream(seed, f"{setting.row} {setting.detail} {setting.reads}").initial_seed()):
        before, operation, behind, size = network(setting)
        x = before(torch.randn(BATCH_SIZE, *size)).detach().requires_grad_()
        y = operation(x)
        outputs = behind(y)
        R = torch.randn(OUTPUTS, OUTPUTS)
        loss = ((outputs @ R) * outputs).sum()
        dx, dy = torch.autograd.grad(loss, (x, y))

    def varsigma(value: Tensor, delta: Tensor) -> float:
        moments = value.detach().double().square().mean() * delta.double().square().mean()
        return float(moments) * value[0].numel()

    return varsigma(y, dy) / varsigma(x, dx)


def predict_ratio(setting: Setting) -> float:
    """Predict the same by the calculus, between two marks around the operation."""
    from hessdiag.calculus import predict

    with seeded_rng(0):
        before, operation, behind, size = network(setting, exact=True)
    whole = nn.Sequential(before, Mark(), operation, Mark(), behind)
    prediction = predict(whole, size, batch_size=BATCH_SIZE)
    return prediction.block("3.u").activation_scaling / prediction.block("1.u").activation_scaling


def steps(*, quick: bool) -> int:
    """Count the units of work."""
    return len(SETTINGS)


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work) -> OperationTable:
    """Measure every setting on its random networks; small enough for the CPU, whatever the device."""
    draws = QUICK_DRAWS if quick else DRAWS

    def unit(setting: Setting) -> Result:
        row = measure_setting(setting, draws=draws, seed=seed)
        return {key: np.asarray(value) for key, value in vars(row).items()}

    found = work.each("setting", SETTINGS, unit)
    return OperationTable(tuple(OperationRow(**{key: value.item() for key, value in row.items()}) for row in found))


def measure_setting(setting: Setting, *, draws: int, seed: int) -> OperationRow:
    """Measure the geometric mean of the ratio over `draws` networks, with its 95 % interval."""
    logs = torch.tensor([math.log(draw_ratio(setting, seed + number)) for number in range(draws)], dtype=torch.float64)
    middle, error = float(logs.mean()), Z95 * float(logs.std()) / math.sqrt(draws)
    ratio, low, high = (math.exp(middle + shift) for shift in (0.0, -error, error))
    kept = low <= 1 <= high or abs(ratio - 1) < TOLERANCE
    return OperationRow(
        row=setting.row,
        detail=setting.detail,
        reads=setting.reads,
        paper=setting.paper,
        ratio=ratio,
        low=low,
        high=high,
        predicted=predict_ratio(setting),
        verdict="✓" if kept else "✗",
        draws=draws,
    )


def draw(table: OperationTable) -> Any:
    """Draw one dot with an interval a setting."""
    from hessdiag.plots import draw_scaling

    return draw_scaling(table.blocks)


def summary(table: OperationTable) -> list[str]:
    """Write the table in Markdown."""
    lines = [
        "| operation | setting | input | paper | ς behind / before (95 %) | calculus | ours |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in table.blocks:
        interval = f"{r.ratio:.2f} ({r.low:.2f}–{r.high:.2f})"
        lines.append(f"| {r.row} | {r.detail} | {r.reads} | {r.paper} | {interval} | {r.predicted:.2f} | {r.verdict} |")
    return lines


FIGURE = Figure(
    name="layers",
    steps=steps,
    measure=measure,
    write=OperationTable.to_json,
    read=OperationTable.from_json,
    draw=draw,
    summary=summary,
)
