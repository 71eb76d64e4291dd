"""How often 95 % intervals hold the truth: every sampling method, entry by entry of the map, over many seeds.

    python scripts/paper/interval_coverage.py                                      # 200 seeds
    python scripts/paper/interval_coverage.py --only probe --seeds 1000 --out /tmp
    python scripts/paper/interval_coverage.py --quick                              # 10 seeds

The interval is that of a report: value ± 1.96 standard errors. The truth is dense, from torch.func in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import study
import torch
from matplotlib.figure import Figure
from study import array
from torch import Tensor, nn
from torch.func import functional_call, hessian, jacrev

import hessdiag
from hessdiag import init

CLASSES, BAND = 20, (0.92, 0.98)


class Attention(nn.Module):
    """One transformer block on four tokens, read out at the last."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, numbers: Tensor) -> Tensor:
        x = self.embedding(numbers)  # (B, T, width)
        q, k, v = self.query_key_value(x).chunk(3, dim=-1)
        x = x + self.out(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), dim=-1) @ v)
        return self.head((x + self.down(nn.functional.gelu(self.up(x))))[:, -1])


def mlp(examples: int) -> tuple[nn.Module, Tensor]:
    layers = (nn.Linear(16, 14), nn.Tanh(), nn.Linear(14, 12), nn.Tanh(), nn.Linear(12, CLASSES))
    return nn.Sequential(*layers), torch.randn(examples, 16, dtype=torch.float64)


def lenet(examples: int) -> tuple[nn.Module, Tensor]:
    convolutions = (nn.Conv2d(2, 5, 3, stride=2), nn.ReLU(), nn.Conv2d(5, 6, 3, stride=2), nn.ReLU(), nn.Flatten())
    linear = (nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, CLASSES))
    return nn.Sequential(*convolutions, *linear), torch.randn(examples, 2, 12, 12, dtype=torch.float64)


def transformer(examples: int) -> tuple[nn.Module, Tensor]:
    return Attention(), torch.randint(CLASSES, (examples, 4))


NETWORKS: dict[str, Callable[[int], tuple[nn.Module, Tensor]]] = {
    "LeNet-like": lenet, "MLP": mlp, "transformer": transformer,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "sketch": {"method": "sketch"},
    "sketch, per batch": {"method": "sketch", "per": "batch"},
    "probe, per example": {"method": "probe", "matrix": "hessian"},
    "probe, per batch": {"method": "probe", "matrix": "hessian", "per": "batch"},
}


def truth(model: nn.Module, x: Tensor, targets: Tensor, names: list[str], matrix: str, per: str) -> np.ndarray:
    """(L, L) squared norms of the blocks, of each example's matrix and averaged or of the batch's."""
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def outputs(some: dict[str, Tensor], one: Tensor) -> Tensor:
        return functional_call(model, weights | some, (one.unsqueeze(0),)).squeeze(0)

    def loss(some: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs(some, one), target)

    chosen = {name: weights[name] for name in names}
    sums = np.zeros((len(names), len(names)))
    whole: dict[tuple[int, int], Any] = {}
    for one, target in zip(x, targets, strict=True):
        if matrix == "hessian":
            H = hessian(loss)(chosen, one, target)
        else:
            p = torch.softmax(outputs(chosen, one), dim=0)
            J = {name: each.flatten(1) for name, each in jacrev(outputs)(chosen, one).items()}
            S = torch.diag(p) - torch.outer(p, p)
        for i, a in enumerate(names):
            for j, b in enumerate(names):
                block = H[a][b].reshape(chosen[a].numel(), -1) if matrix == "hessian" else J[a].T @ S @ J[b]
                sums[i, j] += float(block.square().sum()) / len(x)
                if per == "batch":
                    whole[i, j] = whole.get((i, j), 0) + block / len(x)
    return np.array([[float(whole[i, j].square().sum()) for j in range(len(names))] for i in range(len(names))]) if (
        per == "batch") else sums  # fmt: skip


def coverage(method: str, network: str, seeds: int) -> list[dict[str, Any]]:
    """One row an entry (i, j) of the map, i <= j: how many intervals held it, bias, and standard errors."""
    how = {"matrix": "ggn", "per": "example"} | METHODS[method]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model, x = NETWORKS[network](32 if how["per"] == "batch" else 8)
        model = init.apply(model.double(), "fan-in")
        targets = torch.randint(CLASSES, (len(x),))
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.dim() > 1)
    reports = [
        hessdiag.diagnose(model, x, targets, loss="cross-entropy", seed=seed, signals=False, progress=False, **how)
        for seed in range(seeds)
    ]
    names = list(reports[0].heatmap.names)
    true = truth(model, x, targets, names, how["matrix"], how["per"])
    values, errors = (np.array([getattr(report.heatmap, key) for report in reports])
                      for key in ("frobenius_sq", "stderr"))  # fmt: skip
    rows = []
    for i, j in zip(*np.triu_indices(len(names)), strict=True):
        gap, error = values[:, i, j] / true[i, j] - 1, errors[:, i, j] / true[i, j]
        if not (np.isfinite(gap).all() and true[i, j] > 1e-20 * true.max()):
            continue
        rows.append({
            "method": method, "network": network, "row": names[i], "column": names[j], "seeds": seeds,
            "covered": int((np.abs(gap) <= 1.96 * error + 1e-9).sum()), "bias": gap.mean(),
            "bias_stderr": gap.std(ddof=1) / math.sqrt(seeds), "stderr": np.median(error), "spread": gap.std(),
        })  # fmt: skip
    return rows


def measure(asked: Any) -> dict[str, Any]:
    runs, seeds = study.Runs(asked.out / "coverage.runs.jsonl"), asked.seeds or (10 if asked.quick else 200)
    cases = [(method, network) for method in METHODS for network in NETWORKS if method.startswith(asked.only)]
    found = [runs(f"{m} {n} {seeds} seeds", partial(coverage, m, n, seeds)) for m, n in cases]
    return {"schema": "hessdiag.coverage/2", "rows": [row for rows in found for row in rows]}


def summary(found: dict[str, Any]) -> str:
    """Write shares of seeds, the worst bias in its standard errors, and the median standard error."""
    lines, cases = [], dict.fromkeys((row["method"], row["network"]) for row in found["rows"])
    for case in cases:
        own = [row for row in found["rows"] if (row["method"], row["network"]) == case and not exact(row)]
        if not own:
            lines.append([*case, "exact", "", "", ""])
            continue
        shares = [row["covered"] / row["seeds"] for row in own]
        z = max((row["bias"] / row["bias_stderr"] for row in own if row["bias_stderr"]), key=abs, default=0.0)
        error = np.median([row["stderr"] for row in own if row["row"] == row["column"]] or [math.nan])
        lines.append([*case, f"{np.mean(shares):.3f}", f"{min(shares):.3f}–{max(shares):.3f}", f"{z:+.1f}",
                      f"{error:.3f}"])  # fmt: skip
    return study.table(("method", "network", "coverage", "range", "worst bias (z)", "stderr"), lines)


def exact(row: dict[str, Any]) -> bool:
    """Whether seeds differ by rounding only, so that there is no interval to judge."""
    return bool(row["spread"] < 1e-9 or row["stderr"] == 0)


def draw(found: dict[str, Any]) -> Figure:
    """Draw the share of seeds whose interval held the truth: a line a method, a dot an entry of the map."""
    methods = list(dict.fromkeys(row["method"] for row in found["rows"] if not exact(row)))
    networks = list(dict.fromkeys(row["network"] for row in found["rows"]))
    note = f"one dot an entry · {max(row['seeds'] for row in found['rows'])} seeds · band: 92 to 98 %"
    title, size = "How often 95 % intervals hold the truth", (6.8, 0.45 * len(methods) + 1.4)
    with study.picture(title, note, 1, 1, figsize=size) as (figure, axes):
        axes.axvspan(*BAND, color=study.BAND, linewidth=0)
        for place, network in enumerate(networks):
            own = [row for row in found["rows"] if row["network"] == network and not exact(row)]
            shares = array([row["covered"] / row["seeds"] for row in own])
            heights = [methods.index(row["method"]) + 0.2 * (place - (len(networks) - 1) / 2) for row in own]
            axes.plot(shares, heights, "o", color=study.COLOURS[place], markersize=3, alpha=0.6, label=network)
        axes.set_yticks(range(len(methods)), methods)
        axes.set(ylim=(max(1, len(methods)) - 0.5, -0.5), xlabel="share of seeds whose 95 % interval holds the truth")
        figure.legend(loc="outside upper right", ncols=max(1, len(networks)))
    return figure


def main() -> None:
    asked = study.options(
        __doc__, only={"default": "", "help": "methods whose name starts so"}, seeds={"type": int}
    )  # fmt: skip
    torch.set_num_threads(1)
    study.main("coverage", asked, lambda: measure(asked), summary, draw)


if __name__ == "__main__":
    main()
