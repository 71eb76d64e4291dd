"""Table 1 of arXiv 1906.04267, measured: which operations keep ς, the activation scaling factor, and by how much not.

    python scripts/paper/layers.py              # half a minute
    python scripts/paper/layers.py --quick

For each row a random network input -> random layer -> operation -> random linear layer -> yᵀRy is drawn many times;
ς = n ρ² E[Δx²] E[x²] is measured before and after the operation on a batch of random inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import study
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from study import array
from torch import Tensor, nn

from hessdiag import predict

CHANNELS, SIDE, WIDTH = 32, 12, 128
DRAWS, QUICK_DRAWS, BATCH_SIZE, OUTPUTS = 200, 20, 16, 10
TOLERANCE = 0.05  # a change of ς by less is called none


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One operation in one setting; `paper` is the paper's ✓ or ✗ for it.

    `reads` is "centred" (outputs of a random layer of deviation `gain`), "relu" (those after a ReLU) or "residual" (a
    ReLU's output plus a layer's); these are images or vectors.
    """

    row: str
    detail: str
    paper: str
    build: Callable[[], nn.Module]
    reads: str = "centred"
    image: bool = True
    gain: float = 1.0


class Residual(nn.Module):
    """α x + β F(x)."""

    def __init__(self, branch: nn.Module, alpha: float = 1.0, beta: float = 1.0) -> None:
        super().__init__()
        self.branch, self.alpha, self.beta = branch, alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha * x + self.beta * self.branch(x)


def conv(k: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    return nn.Conv2d(CHANNELS, CHANNELS, k, stride, padding, bias=False)


def skip(*weights: float) -> nn.Module:
    return Residual(nn.Sequential(nn.ReLU(), conv(3, 1, 1)), *weights)


def rows(row: str, build: Callable[..., nn.Module], *cases: tuple[str, tuple[Any, ...], str, str]) -> list[Setting]:
    """One setting a case: detail, arguments of `build`, the paper's mark, what it reads."""
    return [Setting(row=row, detail=d, build=partial(build, *args), paper=p, reads=r) for d, args, p, r in cases]


def window(k: int, stride: int, padding: int | None = None) -> str:
    return f"kernel {k}, stride {stride}" + ("" if padding is None else f", padding {padding}")


SETTINGS = (
    *(
        Setting(row="linear layer", detail=f"{WIDTH} → {m}", paper="✓", image=False, reads=reads,
                build=partial(nn.Linear, WIDTH, m, bias=False))
        for m, reads in ((WIDTH, "centred"), (512, "centred"), (512, "relu"), (32, "relu"))
    ),
    *rows("convolution", conv, *(
        (window(*args), args, "✓" if args[0] == args[1] else "✗", reads)
        for args, reads in (((2, 2, 0), "relu"), ((3, 3, 0), "relu"), ((3, 1, 0), "relu"), ((3, 1, 1), "relu"),
                            ((3, 2, 1), "relu"), ((5, 2, 0), "relu"), ((5, 1, 0), "centred"), ((1, 2, 0), "relu"))
    )),
    *rows("skip connection", skip, ("x + F(x)", (), "✓", "centred"), ("x + F(x)", (), "✓", "relu"),
          *((f"α² {1 - b:g}, β² {b:g}", (math.sqrt(1 - b), math.sqrt(b)), "✓", "centred") for b in (0.5, 0.1))),
    *rows("skip connection", lambda: Residual(nn.Sequential(conv(3, 1, 1), nn.ReLU())),
          ("F ends in a ReLU", (), "✓", "relu")),
    *rows("average pooling", nn.AvgPool2d, *(
        (window(*args), args, "✓" if args[0] == args[1] else "✗", reads)
        for reads in ("centred", "relu") for args in ((2, 2), (3, 3), (3, 2), (SIDE, SIDE))
    )),
    *rows("max pooling", nn.MaxPool2d, *(
        (window(*args), args, "✗", reads) for reads in ("centred", "relu") for args in ((2, 2), (3, 2))
    )),
    *rows("dropout", nn.Dropout, *((f"p {p:g}", (p,), "✓", "relu") for p in (0.1, 0.5, 0.9))),
    *rows("ReLU", nn.ReLU, ("of centred inputs", (), "✓", "centred"), ("of ReLU outputs", (), "✓", "relu"),
          ("of a sum of ReLU outputs and a layer", (), "✓", "residual")),
    *rows("leaky ReLU", nn.LeakyReLU, *((f"slope {slope:g}", (slope,), "✓", "centred") for slope in (0.01, 0.3))),
    *(  # small inputs stay where tanh is linear
        Setting(row=name, detail=f"inputs of deviation {gain:g}", build=kind, gain=gain,
                paper="✓" if (name, gain) == ("tanh", 0.1) else "✗")
        for name, kind in (("sigmoid", nn.Sigmoid), ("tanh", nn.Tanh)) for gain in (0.1, 1.0, 3.0)
    ),
)  # fmt: skip


class Mark(nn.Module):
    """x -> u x with u = 1: a learnable scalar whose ς is that of the activation it stands on."""

    def __init__(self) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.u * x


class Sum(nn.Module):
    """relu(a) + b of two random layers: the input of a ReLU after a skip connection."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.first(x)) + self.second(x)


def network(setting: Setting, *, exact: bool = False) -> tuple[nn.Module, nn.Module, nn.Module, tuple[int, ...]]:
    """Build the layers before, the operation, those after it and the shape of one input, all random.

    With `exact`, every weight is scaled such that its E[W²] is what its distribution says.
    """

    def normal(module: nn.Module, second_moment: float) -> None:
        with torch.no_grad():
            weight = module.get_parameter("weight").detach().normal_()
            weight *= math.sqrt(second_moment / float(weight.square().mean() if exact else 1.0))

    def layer() -> nn.Module:
        made: nn.Module = nn.Conv2d(3, CHANNELS, 3, bias=False) if setting.image else nn.Linear(100, WIDTH, bias=False)
        normal(made, setting.gain**2 / (27 if setting.image else 100))
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
    """Measure ς after over ς before the operation of one random network, over one batch of random inputs."""
    with study.seeded(seed, f"{setting.row} {setting.detail} {setting.reads}"):
        before, operation, after, size = network(setting)
        x = before(torch.randn(BATCH_SIZE, *size)).detach().requires_grad_()
        y = operation(x)
        outputs = after(y)
        R = torch.randn(OUTPUTS, OUTPUTS)
        dx, dy = torch.autograd.grad(((outputs @ R) * outputs).sum(), (x, y))

    def varsigma(value: Tensor, delta: Tensor) -> float:
        return float(value.detach().double().square().mean() * delta.double().square().mean()) * value[0].numel()

    return varsigma(y, dy) / varsigma(x, dx)


def predict_ratio(setting: Setting) -> float:
    """Predict the same by the calculus, between two marks around the operation."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        before, operation, after, size = network(setting, exact=True)
    found = predict(nn.Sequential(before, Mark(), operation, Mark(), after), size)
    return float(found.block("3.u").activation_scaling / found.block("1.u").activation_scaling)


def measure_setting(setting: Setting, draws: int, seed: int) -> dict[str, Any]:
    """Measure the geometric mean of the ratio over networks, with its 95 % interval."""
    logs = torch.tensor([math.log(draw_ratio(setting, seed + number)) for number in range(draws)], dtype=torch.float64)
    middle, error = float(logs.mean()), 1.96 * float(logs.std()) / math.sqrt(draws)
    ratio, low, high = (math.exp(middle + shift) for shift in (0.0, -error, error))
    return {
        "row": setting.row, "detail": setting.detail, "reads": setting.reads, "paper": setting.paper, "ratio": ratio,
        "low": low, "high": high, "predicted": predict_ratio(setting), "draws": draws,
        "verdict": "✓" if low <= 1 <= high or abs(ratio - 1) < TOLERANCE else "✗",
    }  # fmt: skip


def measure(asked: Any) -> dict[str, Any]:
    draws = QUICK_DRAWS if asked.quick else DRAWS
    return {"schema": "hessdiag.layers/1", "blocks": [measure_setting(s, draws, asked.seed) for s in SETTINGS]}


def summary(found: dict[str, Any]) -> str:
    """Write the table in Markdown."""
    lines = ["| operation | setting | input | paper | ς after / before (95 %) | calculus | ours |", "|---" * 7 + "|"]
    for r in found["blocks"]:
        interval = f"{r['ratio']:.2f} ({r['low']:.2f}–{r['high']:.2f})"
        cells = (r["row"], r["detail"], r["reads"], r["paper"], interval, f"{array(r['predicted']):.2f}", r["verdict"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(found: dict[str, Any]) -> Figure:
    """Draw one dot with an interval a setting, and a tick where the calculus predicts it."""
    blocks = found["blocks"]
    note = ("✓ ✗: what the paper says · in brackets what the operation reads"
            f" · geometric mean over {blocks[0]['draws']} random networks, with its 95 % interval")  # fmt: skip
    size = (7.2, 0.17 * len(blocks) + 1.6)
    with study.picture("What operations do to the activation scaling ς", note, 1, 1, figsize=size) as (figure, axes):
        for place, r in enumerate(blocks):
            colour = study.COLOURS[0 if r["paper"] == r["verdict"] else 1]
            axes.plot(array(r["predicted"]), place, "|", color="black", markersize=9)
            axes.plot([r["low"], r["high"]], [place, place], color=colour)
            axes.plot(r["ratio"], place, "o", color=colour, markersize=4)
            axes.text(1.01, place, f"{r['ratio']:.3g}", transform=axes.get_yaxis_transform(), va="center", fontsize=7)
        axes.axvline(1, color=study.GREY, linestyle="--", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_yticks(range(len(blocks)), [f"{r['row']}, {r['detail']} ({r['reads']})  {r['paper']}" for r in blocks])
        axes.set(ylim=(len(blocks) - 0.5, -0.5), xlabel="ς after the operation / ς before it (dashed: ς is kept)")
        marks = [Line2D([], [], marker="o", color=study.COLOURS[0], label="measured, as the paper says"),
                 Line2D([], [], marker="o", color=study.COLOURS[1], label="measured, against the paper"),
                 Line2D([], [], marker="|", ls="", color="black", label="predicted by the calculus")]  # fmt: skip
        figure.legend(handles=marks, loc="outside upper left", ncols=3)
    return figure


def main() -> None:
    asked = study.options(__doc__)
    study.main("layers", asked, lambda: measure(asked), summary, draw)


if __name__ == "__main__":
    main()
