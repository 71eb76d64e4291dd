"""Table 1 of arXiv 1906.04267, measured: which operations keep ς, the activation scaling factor, and by how much not.

For each row a random network input -> random layer -> operation -> random linear layer -> yᵀRy is drawn many times;
ς = n ρ² E[Δx²] E[x²] is measured before and behind the operation on a batch of random inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.execution.seeds import stream
from hessdiag.execution.work import Result, Work
from hessdiag.results.files import write_text
from hessdiag.results.report import complete, dumps, loads

SCHEMA = "hessdiag.layers/1"
DRAWS, QUICK_DRAWS, BATCH_SIZE = 200, 20, 16
OUTPUTS, CHANNELS, SIDE, WIDTH = 10, 32, 12, 128
NORMAL = 1.959963984540054  # 97.5 % quantile of N(0, 1)
TOLERANCE = 0.05  # a change of ς by less is called none


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One operation in one setting.

    Attributes:
        row: of the paper's table.
        detail: the setting.
        paper: the paper's ✓ or ✗ for it; "" where its table does not say.
        build: makes the operation.
        reads: `"centred"` (outputs of a random layer), `"relu"` (those behind a ReLU) or `"residual"` (a sum of two
            ReLU outputs).
        image: whether it reads images rather than vectors.
        gain: standard deviation of what it reads, for the centred input.
    """

    row: str
    detail: str
    paper: str
    build: Callable[[], nn.Module]
    reads: str = "centred"
    image: bool = True
    gain: float = 1.0


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """What was measured for one setting.

    Attributes:
        row, detail, reads, paper: of the setting.
        ratio, low, high: geometric mean over draws of ς behind over ς before, with its 95 % interval.
        predicted: the same by the calculus with `kernel` moments; NaN where it has no rule.
        verdict: ✓ where ς changes by less than 5 % or the interval holds 1, else ✗.
        draws: random networks.
    """

    row: str
    detail: str
    reads: str
    paper: str
    ratio: float
    low: float
    high: float
    predicted: float
    verdict: str
    draws: int


class Residual(nn.Module):
    """α x + β F(x)."""

    def __init__(self, branch: nn.Module, skip: float = 1.0, weight: float = 1.0) -> None:
        super().__init__()
        self.branch, self.skip, self.weight = branch, skip, weight

    def forward(self, x: Tensor) -> Tensor:
        """Like x."""
        return self.skip * x + self.weight * self.branch(x)  # type: ignore[no-any-return]


class Mark(nn.Module):
    """x -> u x with u = 1: a learnable scalar whose ς is that of the activation it stands on."""

    def __init__(self) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        """X itself, in value."""
        return self.u * x


def _conv(k: int, stride: int = 1, padding: int = 0, out: int = CHANNELS) -> nn.Conv2d:
    return nn.Conv2d(CHANNELS, out, k, stride, padding, bias=False)


def _branch() -> nn.Module:
    return nn.Sequential(nn.ReLU(), _conv(3, 1, 1))


def _weighted(b: float) -> nn.Module:
    return Residual(_branch(), math.sqrt(1 - b), math.sqrt(b))


def _settings() -> tuple[Setting, ...]:
    linear = [
        Setting(
            row="linear layer", detail=f"{WIDTH} → {m}", paper="✓", image=False,
            build=partial(nn.Linear, WIDTH, m, bias=False), reads=reads,
        )
        for m, reads in ((WIDTH, "centred"), (512, "centred"), (512, "relu"), (32, "relu"))
    ]  # fmt: skip
    convolutions = [
        Setting(
            row="convolution", detail=f"kernel {k}, stride {s}, padding {p}", paper="✓" if k == s else "✗",
            build=partial(_conv, k, s, p), reads=reads,
        )
        for k, s, p, reads in (
            (2, 2, 0, "relu"), (3, 3, 0, "relu"), (3, 1, 0, "relu"), (3, 1, 1, "relu"), (3, 2, 1, "relu"),
            (5, 2, 0, "relu"), (5, 1, 0, "centred"), (1, 2, 0, "relu"),
        )
    ]  # fmt: skip
    skips = [
        Setting(row="skip connection", detail="x + F(x)", paper="✓", build=lambda: Residual(_branch()), reads=reads)
        for reads in ("centred", "relu")
    ]
    skips += [
        Setting(
            row="skip connection", detail=f"α² {1 - b:g}, β² {b:g}", paper="✓",
            build=partial(_weighted, b),
        )
        for b in (0.5, 0.1)
    ]  # fmt: skip
    skips.append(
        Setting(
            row="skip connection",
            detail="F ends in a ReLU",
            paper="✓",
            reads="relu",
            build=lambda: Residual(nn.Sequential(_conv(3, 1, 1), nn.ReLU())),
        )
    )
    pools = [
        Setting(
            row="average pooling", detail=f"kernel {k}, stride {s}", paper="✓" if k == s else "✗",
            build=partial(nn.AvgPool2d, k, s), reads=reads,
        )
        for reads in ("centred", "relu")
        for k, s in ((2, 2), (3, 3), (3, 2), (SIDE, SIDE))
    ]  # fmt: skip
    pools += [
        Setting(
            row="max pooling", detail=f"kernel {k}, stride {s}", paper="✗", build=partial(nn.MaxPool2d, k, s),
            reads=reads,
        )
        for reads in ("centred", "relu")
        for k, s in ((2, 2), (3, 2))
    ]  # fmt: skip
    dropouts = [
        Setting(row="dropout", detail=f"p {p:g}", paper="✓", build=partial(nn.Dropout, p), reads="relu")
        for p in (0.1, 0.5, 0.9)
    ]
    pointwise = [
        Setting(row="ReLU", detail="of centred inputs", paper="✓", build=nn.ReLU),
        Setting(row="ReLU", detail="of ReLU outputs", paper="✓", build=nn.ReLU, reads="relu"),
        Setting(row="ReLU", detail="of a sum of ReLU outputs and a layer", paper="✓", build=nn.ReLU, reads="residual"),
        Setting(row="leaky ReLU", detail="slope 0.01", paper="✓", build=lambda: nn.LeakyReLU(0.01)),
        Setting(row="leaky ReLU", detail="slope 0.3", paper="✓", build=lambda: nn.LeakyReLU(0.3)),
    ]
    curved = [
        Setting(row=name, detail=f"inputs of deviation {gain:g}", paper="✗", build=kind, gain=gain)
        for name, kind in (("sigmoid", nn.Sigmoid), ("tanh", nn.Tanh))
        for gain in (0.1, 1.0, 3.0)
    ]
    curved = [_with_paper(s, "✓") if s.row == "tanh" and s.gain == 0.1 else s for s in curved]
    return (*linear, *convolutions, *skips, *pools, *dropouts, *pointwise, *curved)


def _with_paper(setting: Setting, paper: str) -> Setting:
    return Setting(**(vars(setting) | {"paper": paper}))


SETTINGS = _settings()


class Sum(nn.Module):
    """relu(a) + b of two random layers: what a ReLU behind a skip connection reads."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """Like the outputs of the layers."""
        return F.relu(self.first(x)) + self.second(x)  # type: ignore[no-any-return]


def network(setting: Setting, *, exact: bool = False) -> tuple[nn.Module, nn.Module, nn.Module, tuple[int, ...]]:
    """(what comes before, the operation, what comes behind, shape of one input), all random.

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
    """ς behind over ς before the operation of one random network, over one batch of random inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, f"{setting.row} {setting.detail} {setting.reads}").initial_seed())
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
    """The same by the calculus, between two marks around the operation."""
    from hessdiag.calculus import predict

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        before, operation, behind, size = network(setting, exact=True)
    whole = nn.Sequential(before, Mark(), operation, Mark(), behind)
    prediction = predict(whole, size, batch_size=BATCH_SIZE)
    return prediction.block("3.u").activation_scaling / prediction.block("1.u").activation_scaling


def steps(*, quick: bool) -> int:
    """Units of work."""
    return len(SETTINGS)


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work) -> tuple[LayerRow, ...]:
    """Every setting on its random networks; small enough for the CPU, whatever the device."""
    draws = QUICK_DRAWS if quick else DRAWS

    def unit(setting: Setting) -> Result:
        row = measure_setting(setting, draws=draws, seed=seed)
        return {key: np.asarray(value) for key, value in vars(row).items()}

    found = work.each("setting", SETTINGS, unit)
    return tuple(LayerRow(**{key: value.item() for key, value in row.items()}) for row in found)


def measure_setting(setting: Setting, *, draws: int, seed: int) -> LayerRow:
    """Geometric mean of the ratio over `draws` networks, with its 95 % interval."""
    logs = torch.tensor([math.log(draw_ratio(setting, seed + number)) for number in range(draws)], dtype=torch.float64)
    middle, error = float(logs.mean()), NORMAL * float(logs.std()) / math.sqrt(draws)
    ratio, low, high = (math.exp(middle + shift) for shift in (0.0, -error, error))
    kept = low <= 1 <= high or abs(ratio - 1) < TOLERANCE
    return LayerRow(
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


def to_json(rows: Sequence[LayerRow], path: Path) -> None:
    """Write the rows."""
    write_text(path, dumps({"schema": SCHEMA, "blocks": [vars(row) for row in rows]}))


def from_json(path: Path) -> tuple[LayerRow, ...]:
    """Read them back."""
    record = loads(path, SCHEMA)
    with complete(SCHEMA):
        rows: list[dict[str, Any]] = record["blocks"]
        return tuple(LayerRow(**row | {"predicted": to_float(row["predicted"])}) for row in rows)


def to_float(value: float | None) -> float:
    """NaN for the `null` of JSON."""
    return math.nan if value is None else value


def draw(rows: Sequence[LayerRow], out: Path) -> list[Path]:
    """Save the numbers as `layers.json`, and the figure drawn from that file as `layers.png` and `.svg`."""
    from hessdiag import plots

    source = out / "layers.json"
    to_json(rows, source)
    return [source, *plots.save(plots.draw_scaling(from_json(source)), out / "layers")]


def summary(rows: Sequence[LayerRow]) -> list[str]:
    """The table, in Markdown."""
    lines = [
        "| operation | setting | input | paper | ς behind / before (95 %) | calculus | ours |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        interval = f"{r.ratio:.2f} ({r.low:.2f}–{r.high:.2f})"
        lines.append(f"| {r.row} | {r.detail} | {r.reads} | {r.paper} | {interval} | {r.predicted:.2f} | {r.verdict} |")
    return lines
