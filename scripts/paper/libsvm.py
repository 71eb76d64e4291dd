"""Table 2 of arXiv 1906.04267: training losses of initialisations on LIBSVM's multi-class data sets.

    python scripts/paper/libsvm.py --data ~/libsvm --quick          # three small sets, half a minute
    python scripts/paper/libsvm.py --data ~/libsvm                  # all sets in the folder, hours on one core
    python scripts/paper/libsvm.py --data ~/libsvm --datasets iris,mnist:20000,news20:2000x500 --optimizer sgd
    python scripts/paper/libsvm.py --compare runs/*/libsvm.json     # figures/libsvm_robustness.json

Networks of three layers (hidden widths 384 and 64) with ReLU and biases, LayerNorm without parameters on the input,
logits scaled to a standard deviation of 0.05 on the first minibatch; five epochs, learning rates 2^1 to 2^-12, ten
seeds. The paper names neither optimiser nor batch size, and does not say of what the loss is: here it is the mean over
all training examples after the last epoch. Rates are added until no best one lies on an edge. A finished data set,
initialisation and seed is a line of OUT/libsvm.runs.jsonl, and is skipped when the script is started again.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import study
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import spearmanr
from study import array
from torch import Tensor, nn

from hessdiag import diagnose, init
from hessdiag.models import mlp

SITE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"
# Rows and features of the training part, its file on LIBSVM's page, stand-ins that are read where it is missing.
SETS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "iris": (150, 4, ("iris.scale",)), "wine": (178, 13, ("wine.scale",)), "glass": (214, 9, ("glass.scale",)),
    "svmguide4": (300, 10, ("svmguide4",)), "svmguide2": (391, 20, ("svmguide2",)),
    "vowel": (528, 10, ("vowel.scale",)), "vehicle": (846, 18, ("vehicle.scale",)),
    "segment": (2_310, 19, ("segment.scale",)), "pendigits": (7_494, 16, ("pendigits",)),
    "satimage": (4_435, 36, ("satimage.scale",)), "letter": (15_000, 16, ("letter.scale",)),
    "poker": (25_010, 10, ("poker",)), "dna": (2_000, 180, ("dna.scale",)),
    "shuttle": (43_500, 9, ("shuttle.scale", "shuttle")), "usps": (7_291, 256, ("usps", "usps.unsmoothed")),
    "sensorless": (58_509, 48, ("Sensorless.scale",)), "protein": (17_766, 357, ("protein",)),
    "connect-4": (67_557, 126, ("connect-4",)), "aloi": (108_000, 128, ("aloi.scale",)),
    "covtype": (581_012, 54, ("covtype.scale", "covtype", "covtype.first20k")), "mnist": (60_000, 780, ("mnist",)),
    "cifar10": (50_000, 3_072, ("cifar10",)), "svhn": (73_257, 3_072, ("SVHN",)),
    "smallnorb": (24_300, 18_432, ("smallNORB",)), "news20": (15_935, 62_061, ("news20", "news20.bydate")),
}  # fmt: skip
OPENERS: dict[str, Any] = {"": open, ".bz2": bz2.open, ".xz": lzma.open, ".gz": gzip.open}
PAPER = ("arithmetic", "fan-in", "fan-out", "geometric")
OTHERS = ("xavier", "lecun", "pytorch-default", "geometric-orthogonal")
HIDDEN, LOGIT_STD, WEIGHT_DECAY = (384, 64), 0.05, 1e-5
POWERS, STEP, LARGEST, SMALLEST = tuple(range(1, -13, -1)), 2, 11, -22  # of 2: the paper's rates, and how far beyond
RESAMPLES = 2000


def load(wanted: str, folder: Path) -> dict[str, Any]:
    """Read NAME, NAME:ROWS or NAME:ROWSxFEATURES: rows normalised to mean 0 and variance 1, and classes."""
    try:
        from sklearn.datasets import load_svmlight_file
    except ModuleNotFoundError:
        raise SystemExit("libsvm.py reads svmlight files with scikit-learn: pip install scikit-learn") from None
    name, _, part = wanted.partition(":")
    if name not in SETS:
        raise SystemExit(f"--datasets {name!r}: use {', '.join(SETS)}")
    rows, features, files = SETS[name]
    paths = [folder / f"{file}{ending}" for file in files for ending in OPENERS]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise SystemExit(f"--data {str(folder)!r} has no {name}: download {files[0]} from {SITE}")
    with OPENERS[path.suffix if path.suffix in OPENERS else ""](path, "rb") as file:
        x, labels = load_svmlight_file(file, dtype=np.float32)
    stem = path.name.removesuffix(path.suffix) if path.suffix in OPENERS else path.name
    notes = [stem] if stem != files[0] else []
    notes += [f"{x.shape[0]:,} rows, LIBSVM has {rows:,}"] if x.shape[0] != rows else []
    notes += [f"{x.shape[1]:,} features, LIBSVM has {features:,}"] if x.shape[1] != features else []
    most, _, widest = part.partition("x")
    if widest and int(widest) < x.shape[1]:
        notes.append(f"the {widest} most frequent features")
        x = x[:, np.sort(np.argsort(-np.asarray(x.getnnz(axis=0)), kind="stable")[: int(widest)])]
    if most and int(most) < x.shape[0]:
        notes.append(f"{most} of {x.shape[0]} rows")
        chosen = np.sort(np.random.default_rng(0).permutation(x.shape[0])[: int(most)])
        x, labels = x[chosen], labels[chosen]
    classes, targets = np.unique(labels, return_inverse=True)
    return {"name": name, "rows": x.shape[0], "features": x.shape[1], "classes": len(classes), "note": "; ".join(notes),
            "x": x, "targets": torch.from_numpy(targets)}  # fmt: skip


def inputs(data: dict[str, Any], chosen: Tensor) -> Tensor:
    """Return these rows, LayerNorm without parameters on them."""
    return F.layer_norm(torch.from_numpy(data["x"][chosen.numpy()].toarray()), (data["features"],))


def build(data: dict[str, Any], scheme: str, seed: int) -> nn.Sequential:
    """Initialise a network; all schemes scale the same random numbers of a seed."""
    model, generator = mlp([data["features"], *HIDDEN, data["classes"]]), study.stream(seed, "initialisation")
    if scheme not in ("xavier", "lecun", "pytorch-default"):
        return init.apply(model, scheme, generator=generator)  # type: ignore[return-value]
    with torch.no_grad():
        for layer in (module for module in model.modules() if isinstance(module, nn.Linear)):
            n, m = layer.in_features, layer.out_features
            if scheme == "pytorch-default":
                for parameter in (layer.weight, layer.bias):
                    parameter.uniform_(-1 / math.sqrt(n), 1 / math.sqrt(n), generator=generator)
            else:
                layer.weight.normal_(0, math.sqrt(2 / (n + m) if scheme == "xavier" else 1 / n), generator=generator)
                layer.bias.zero_()
    return model


def minibatches(count: int, seed: int, epochs: int, size: int) -> list[Tensor]:
    """Shuffle anew every epoch, the same for all schemes and rates of a seed."""
    generator = study.stream(seed, "order")
    return [part for _ in range(epochs) for part in torch.randperm(count, generator=generator).split(size)]


def train(model: nn.Module, data: dict[str, Any], powers: Sequence[int], seed: int, how: dict[str, Any]) -> Tensor:
    """Train copies of a network side by side, one a learning rate; return their losses over all examples, (G,).

    Weights are stacked along a first dimension, (G, n, m), so that a layer of all copies is one batched product.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    batches, G = minibatches(data["rows"], seed, how["epochs"], how["batch_size"]), len(powers)
    with torch.no_grad():
        scale = LOGIT_STD / float(model(inputs(data, batches[0])).std())
    weights = [layer.weight.detach().T.repeat(G, 1, 1).requires_grad_() for layer in layers]
    biases = [layer.bias.detach().repeat(G, 1, 1).requires_grad_() for layer in layers]
    parameters, rates = [*weights, *biases], torch.tensor([2.0**power for power in powers]).view(G, 1, 1)
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))

    def losses(chosen: Tensor, reduction: str) -> Tensor:  # (G,)
        x = inputs(data, chosen).expand(G, -1, -1)  # (G, B, n)
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), 1):
            x = torch.baddbmm(bias, x, weight)
            x = x.relu() if number < len(weights) else x * scale
        each = F.cross_entropy(x.flatten(0, 1), data["targets"][chosen].repeat(G), reduction="none").view(G, -1)
        return each.sum(1) if reduction == "sum" else each.mean(1)

    for step, chosen in enumerate(batches, 1):
        gradients = torch.autograd.grad(losses(chosen, "mean").sum(), parameters)
        with torch.no_grad():
            for p, gradient, m, v in zip(parameters, gradients, first, second, strict=True):
                gradient = gradient.add(p, alpha=WEIGHT_DECAY)
                if how["optimizer"] == "adam":
                    m.lerp_(gradient, 0.1)
                    v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                    p -= rates / (1 - 0.9**step) * m / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
                else:
                    p -= rates * m.mul_(0.9 if how["optimizer"] == "momentum" else 0.0).add_(gradient)
    with torch.no_grad():
        total = sum(losses(chosen, "sum").double() for chosen in torch.arange(data["rows"]).split(64))
    return torch.nan_to_num(total / data["rows"], nan=math.inf)


def spreads(model: nn.Module, data: dict[str, Any], seed: int, how: dict[str, Any]) -> tuple[float, float]:
    """Diagnose a network on its first minibatch, logits scaled: largest over smallest σ² and γ of the weights."""
    chosen = minibatches(data["rows"], seed, 1, how["batch_size"])[0]
    x = inputs(data, chosen)
    with torch.no_grad():
        scale = LOGIT_STD / float(model(x).std())
    scaled = nn.Sequential(model, nn.Linear(data["classes"], data["classes"], bias=False))
    scaled[1].weight.data = scale * torch.eye(data["classes"])
    scaled[1].requires_grad_(False)
    report = diagnose(scaled, x, data["targets"][chosen], loss="cross-entropy", seed=seed, progress=False)
    return report.spread["avg_sq_singular_value"], report.spread["gamma"]


def measure_set(data: dict[str, Any], schemes: Sequence[str], seeds: Sequence[int], powers: Sequence[int],
                how: dict[str, Any], runs: study.Runs) -> dict[str, Any]:  # fmt: skip
    """Train every scheme, rate and seed of a data set, with more rates until no best one is on an edge."""
    place = f"{data['name']} {data['rows']}x{data['features']} {how}"
    grid: dict[int, np.ndarray] = {}  # (schemes, seeds) losses by power of 2; NaN where not run
    asked = dict.fromkeys(schemes, tuple(powers))
    while any(asked.values()):
        for row, scheme in enumerate(schemes):
            for column, seed in enumerate(seeds if asked[scheme] else ()):
                key = f"{place} {scheme} seed {seed} rates {asked[scheme]}"
                found = runs(key, partial(train, build(data, scheme, seed), data, asked[scheme], seed, how))
                for power, loss in zip(asked[scheme], array(found), strict=True):
                    empty = np.full((len(schemes), len(seeds)), np.nan)
                    grid.setdefault(power, empty)[row, column] = float(f"{loss:.6g}")
        asked = {scheme: beyond(grid, row) for row, scheme in enumerate(schemes)}
    starts = array([[runs(f"{place} {s} seed {n} start", lambda s=s, n=n: spreads(build(data, s, n), data, n, how))
                     for n in seeds[:3]] for s in schemes])  # fmt: skip
    ordered = sorted(grid, reverse=True)
    return {key: data[key] for key in ("name", "rows", "features", "classes", "note")} | {
        "powers": ordered, "losses": np.stack([grid[power] for power in ordered], axis=1),
        "sigma_spread": starts[..., 0], "gamma_spread": starts[..., 1],
    }  # fmt: skip


def beyond(grid: dict[int, np.ndarray], row: int) -> tuple[int, ...]:
    """Name rates to add beyond the edge on which a scheme's best one lies, or none."""
    run = [power for power in sorted(grid, reverse=True) if not np.isnan(grid[power][row]).any()]
    best = min(run, key=lambda power: np.median(grid[power][row]))
    above = range(best + 1, min(best + STEP, LARGEST) + 1) if best == run[0] else ()
    below = range(best - 1, max(best - STEP, SMALLEST) - 1, -1) if best == run[-1] else ()
    return (*above, *below)


def medians(found: dict[str, Any], block: dict[str, Any], *, widened: bool) -> tuple[np.ndarray, list[int]]:
    """(schemes, rates) median losses over seeds, and the rates: all, or those of the paper's grid."""
    kept = [i for i, power in enumerate(block["powers"]) if widened or power in found["powers"]]
    with np.errstate(invalid="ignore"):
        return np.median(array(block["losses"])[:, kept], axis=-1), [block["powers"][i] for i in kept]


def best(found: dict[str, Any], *, widened: bool) -> tuple[np.ndarray, np.ndarray]:
    """(D, schemes) losses at the best learning rate of each, and these rates as powers of 2."""
    each = [medians(found, block, widened=widened) for block in found["blocks"]]
    losses = np.stack([np.nanmin(values, axis=1) for values, _ in each])
    return losses, np.stack([np.array(powers)[np.nanargmin(values, axis=1)] for values, powers in each])


def rank(found: dict[str, Any], schemes: Sequence[str], *, widened: bool) -> list[dict[str, Any]]:
    """Make the paper's table: mean loss over the worst scheme's, times worst, times best, with 95 % intervals.

    Intervals come from drawing data sets and seeds with replacement, the seeds of a data set for all schemes alike.
    """
    rows = [found["schemes"].index(scheme) for scheme in schemes]

    def summarise(losses: np.ndarray) -> np.ndarray:  # (..., D, schemes) -> (3, ..., schemes)
        worst, least = (pick(losses, axis=-1)[..., None] == np.arange(len(rows)) for pick in (np.argmax, np.argmin))
        return np.stack([normalised(losses).mean(-2), worst.sum(-2), least.sum(-2)])

    generator, drawn = np.random.default_rng(0), np.empty((RESAMPLES, len(found["blocks"]), len(rows)))
    for number, block in enumerate(found["blocks"]):
        kept = [i for i, power in enumerate(block["powers"]) if widened or power in found["powers"]]
        grid = array(block["losses"])[rows][:, kept]  # (schemes, rates, seeds)
        chosen = generator.integers(grid.shape[-1], size=(RESAMPLES, grid.shape[-1]))
        with np.errstate(invalid="ignore"):
            drawn[:, number] = np.nanmin(np.median(grid[..., chosen], axis=-1), axis=1).T
    sets = generator.integers(drawn.shape[1], size=drawn.shape[:2])
    ranges = np.quantile(summarise(drawn[np.arange(RESAMPLES)[:, None], sets]), [0.025, 0.975], axis=1)
    average, worst, least = summarise(best(found, widened=widened)[0][:, rows])
    return [
        {"scheme": s, "average": average[i], "low": ranges[0, 0, i], "high": ranges[1, 0, i], "worst": int(worst[i]),
         "worst_range": ranges[:, 1, i], "best": int(least[i]), "best_range": ranges[:, 2, i]}
        for i, s in enumerate(schemes)
    ]  # fmt: skip


def normalised(losses: np.ndarray) -> np.ndarray:
    """Divide by the worst scheme's."""
    return losses / losses.max(axis=-1, keepdims=True)


def correlate(found: dict[str, Any], quantity: str) -> dict[str, float]:
    """Correlate the ranks of spread at the start and loss within data sets: mean and 95 % interval over data sets."""
    losses = normalised(best(found, widened=True)[0])
    starts = np.array([np.median(array(block[f"{quantity}_spread"]), axis=1) for block in found["blocks"]])
    pairs = [[[float(f"{v:.3g}") for v in values] for values in pair] for pair in zip(starts, losses, strict=True)]
    each = np.array([spearmanr(*pair).statistic if all(map(np.ptp, pair)) else np.nan for pair in pairs])
    chosen = np.random.default_rng(0).integers(len(each), size=(RESAMPLES, len(each)))
    low, high = np.nanquantile(np.nanmean(each[chosen], axis=1), [0.025, 0.975])
    return {"mean": float(np.nanmean(each)), "low": float(low), "high": float(high)}


def edges(found: dict[str, Any]) -> tuple[int, int]:
    """Count best rates on an edge of the paper's grid, and all best rates."""
    rates = best(found, widened=False)[1]
    return int(np.isin(rates, (found["powers"][0], found["powers"][-1])).sum()), rates.size


def summary(found: dict[str, Any]) -> str:
    """Write the paper's Table 2 on its grid and on the widened one, and the losses behind it."""
    shared = [scheme for scheme in found["schemes"] if scheme in PAPER] or found["schemes"]
    tables = [(f"learning rates 2^{found['powers'][0]} to 2^{found['powers'][-1]}:", shared, False),
              ("learning rates widened until no optimum is on an edge:", shared, True)]  # fmt: skip
    if len(shared) < len(found["schemes"]):
        tables.append(("all initialisations, widened:", found["schemes"], True))
    lines = [f"{len(found['blocks'])} data sets, {found['optimizer']}, batch {found['batch_size']}, {found['epochs']}"
             f" epochs, median of {array(found['blocks'][0]['losses']).shape[-1]} seeds"]  # fmt: skip
    for title, schemes, widened in tables:
        rows = [
            [r["scheme"], f"{r['average']:.2f} ({r['low']:.2f}–{r['high']:.2f})",
             *("{} ({:.0f}–{:.0f})".format(r[key], *r[f"{key}_range"]) for key in ("worst", "best"))]
            for r in rank(found, schemes, widened=widened)
        ]  # fmt: skip
        lines += [
            "",
            title,
            study.table(("initialisation", "average normalised loss", "worst in #", "best in #"), rows),
        ]
    losses, powers = best(found, widened=True)
    rows = [[block["name"], *(f"{x:.3g} ({p})" for x, p in zip(*each, strict=True))]
            for block, *each in zip(found["blocks"], losses, powers, strict=True)]  # fmt: skip
    lines += ["", "loss at the best learning rate, and that rate as a power of 2:"]
    lines += [study.table(("data set", *found["schemes"]), rows), ""]
    lines += ["{} of {} best learning rates lie on an edge of the paper's grid".format(*edges(found))]
    for quantity, symbol in (("sigma", "σ²"), ("gamma", "γ")):
        lines.append(f"rank correlation of the spread of {symbol} at the start with the loss, within data sets:"
                     " {:.2f} ({:.2f} to {:.2f})".format(*correlate(found, quantity).values()))  # fmt: skip
    return "\n".join([*lines, *(f"{b['name']}: {b['note']}" for b in found["blocks"] if b["note"])])


def draw(found: dict[str, Any]) -> Figure:
    """Draw the loss of each scheme over the worst one's, by data set, and against the spread of σ² at the start."""
    shared = [scheme for scheme in found["schemes"] if scheme in PAPER] or found["schemes"]
    rows = [found["schemes"].index(scheme) for scheme in shared]
    losses = normalised(best(found, widened=True)[0][:, rows])  # (D, schemes)
    starts = np.array([np.median(array(block["sigma_spread"]), axis=1) for block in found["blocks"]])[:, rows]
    note = (f"{found['optimizer']} · batch {found['batch_size']} · median training loss after {found['epochs']} epochs"
            " · best learning rate of the widened grid · σ² of the weights on the first minibatch")  # fmt: skip
    size = (7.6, max(2.8, 0.2 * len(losses) + 1.6))
    with study.picture("Fan-in is ahead, not balance", note, figsize=size) as (
        figure,
        (left, right),
    ):
        for place, colour in enumerate(study.colours(shared)):
            heights = np.arange(len(losses)) + 0.15 * (place - (len(shared) - 1) / 2)
            left.plot(losses[:, place], heights, "o", color=colour, markersize=4.5, alpha=0.85)
            right.plot(starts[:, place], losses[:, place], "o", color=colour, markersize=4.5, alpha=0.85)
        left.set_yticks(range(len(losses)), [block["name"] for block in found["blocks"]])
        left.set(xlabel="training loss / worst loss on the data set", ylim=(len(losses) - 0.5, -0.5))
        right.set(xscale="log", xlabel="largest / smallest σ² of the layers at the start", ylabel="loss / worst loss")
        study.head(left, "Loss by data set")
        study.head(right, "Loss against balance", "rank correlation {:.2f} ({:.2f} to {:.2f})".format(
            *correlate(found, "sigma").values()))  # fmt: skip
        marks = [
            Line2D([], [], marker="o", ls="", color=c, label=s)
            for s, c in zip(shared, study.colours(shared), strict=True)
        ]
        figure.legend(handles=marks, loc="outside upper right", ncols=len(shared))
    return figure


def compare(paths: Sequence[str]) -> dict[str, Any]:
    """Collect what several runs conclude, one entry a file: does it survive another optimiser or batch size?"""
    blocks = []
    for found in map(study.read, paths):
        on_edge, count = edges(found)
        losses, powers = best(found, widened=True)
        blocks.append({
            "optimizer": found["optimizer"], "batch_size": found["batch_size"], "schemes": found["schemes"],
            "datasets": [block["name"] for block in found["blocks"]], "on_an_edge": on_edge, "best_rates": count,
            "grid": rank(found, found["schemes"], widened=False),
            "widened": rank(found, found["schemes"], widened=True),
            "correlation": correlate(found, "sigma"), "losses": losses, "powers": powers,
        })  # fmt: skip
    return {"schema": "hessdiag.libsvm-robustness/1", "blocks": blocks}


def measure(asked: Any) -> dict[str, Any]:
    """Train on one data set after the other."""
    if not asked.data:
        raise SystemExit(f"--data DIR: a folder of files from {SITE}")
    small = [name for name, (rows, features, _) in SETS.items() if rows * features <= 2_000_000]
    wanted = asked.datasets.split(",") if asked.datasets else ["iris", "wine", "glass"] if asked.quick else small
    schemes = asked.schemes.split(",") if asked.schemes else [*PAPER, *OTHERS]
    if unknown := set(schemes) - {*PAPER, *OTHERS}:
        raise SystemExit(f"--schemes {unknown.pop()!r}: use {', '.join((*PAPER, *OTHERS))}")
    powers, seeds = POWERS[::2] if asked.quick else POWERS, range(asked.seed, asked.seed + (3 if asked.quick else 10))
    how = {"optimizer": asked.optimizer, "batch_size": asked.batch_size, "epochs": asked.epochs}
    runs = study.Runs(asked.out / "libsvm.runs.jsonl")
    blocks = [measure_set(load(name, asked.data), schemes, seeds, powers, how, runs) for name in wanted]
    return {"schema": "hessdiag.libsvm/1", **how, "weight_decay": WEIGHT_DECAY, "logit_std": LOGIT_STD,
            "hidden": HIDDEN, "schemes": schemes, "powers": powers, "blocks": blocks}  # fmt: skip


def main() -> None:
    asked = study.options(
        __doc__, data={"type": Path, "help": "folder of svmlight files, named as on LIBSVM's page"},
        datasets={"default": "", "help": "NAME, NAME:ROWS or NAME:ROWSxFEATURES, with commas between"},
        schemes={"default": "", "help": "initialisations, with commas between"},
        optimizer={"choices": ("sgd", "momentum", "adam"), "default": "momentum"},
        batch_size={"type": int, "default": 32}, epochs={"type": int, "default": 5},
        compare={"nargs": "+", "metavar": "JSON", "help": "write OUT/libsvm_robustness.json of these files"},
    )  # fmt: skip
    torch.set_num_threads(1)  # the stacks are small, and sums round otherwise with more
    if asked.compare:
        found = study.plain(compare(asked.compare))
        (asked.out / "libsvm_robustness.json").write_text(study.json.dumps(found) + "\n", encoding="utf-8")
        return
    study.main("libsvm", asked, lambda: measure(asked), summary, draw)


if __name__ == "__main__":
    main()
