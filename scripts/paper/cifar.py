"""Training curves on CIFAR-10, each network at the best of a sweep of learning rates: what two figures share.

Images are one tensor on the device; order and augmentation have random streams of their own, so that networks of one
seed see the same minibatches whatever their initialisation and learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import study
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import ttest_ind
from study import array
from torch import Tensor, nn

RECORD, PADDING, POINTS = 1 + 3 * 32 * 32, 4, 60
HOPELESS, LOOK = 4.0, 20  # times the loss of a constant guess; steps between two looks at the loss
MAX_POWER, MIN_POWER = 4, -16
OPTIONS: dict[str, dict[str, Any]] = {
    "data": {"type": Path, "help": "folder with data_batch_1.bin to data_batch_5.bin; else torchvision downloads"},
    "epochs": {"type": int},
    "batch_size": {"type": int},
    "seeds": {"type": int},
    "mixed_precision": {"action": "store_true", "help": "compute in bfloat16 where that is safe"},
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How networks are trained: SGD with momentum 0.9, weight decay 1e-4, the rate divided by ten after `drops`."""

    powers: tuple[int, ...]  # learning rates of the sweep, as powers of 2
    sweep_seeds: int
    seeds: int
    epochs: int
    batch_size: int
    window: int  # steps that a loss is averaged over
    drops: tuple[int, ...] = ()
    mixed_precision: bool = False


def load(folder: Path | None, device: str) -> tuple[Tensor, Tensor]:
    """Return the training images (50000, 3, 32, 32) in uint8 and their classes."""
    if folder is None:
        try:
            from torchvision.datasets import CIFAR10
        except ModuleNotFoundError:
            raise SystemExit("pass --data with CIFAR-10's binary files, or pip install torchvision") from None
        data = CIFAR10(Path.home() / ".cache" / "hessdiag", download=True)
        return torch.from_numpy(data.data).movedim(3, 1).to(device), torch.tensor(data.targets, device=device)
    paths = [folder / f"data_batch_{number}.bin" for number in range(1, 6)]
    if missing := [path for path in paths if not path.is_file()]:
        raise SystemExit(f"--data {str(folder)!r} has no {missing[0].name}: name a folder of CIFAR-10's binary files")
    records = torch.from_numpy(np.concatenate([np.fromfile(path, dtype=np.uint8) for path in paths])).view(-1, RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32).to(device), records[:, 0].long().to(device)


def standardised(pixels: Tensor) -> Tensor:
    """Return pixels with mean 0 and variance 1 in every channel."""
    x = pixels.float() / 255
    return (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)


def train(network: nn.Module, images: Tensor, targets: Tensor, plan: Plan, *, rate: float, seed: int) -> np.ndarray:
    """Train in place; return the minibatch loss of every step, inf from where it diverged."""
    losses = torch.full((len(images) // plan.batch_size * plan.epochs,), math.inf)
    limit, step = HOPELESS * math.log(int(targets.max()) + 1), 0
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(plan.drops), gamma=0.1)
    network.train()
    for epoch in range(plan.epochs):
        for x, t in minibatches(images, targets, plan.batch_size, seed=seed, epoch=epoch):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=plan.mixed_precision):
                loss = F.cross_entropy(network(x), t)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[step], step = loss.detach(), step + 1
            if step % LOOK == 0 and not bool((losses[step - LOOK : step] < limit).all()):
                return diverged(losses, limit)
        schedule.step()
    return diverged(losses, limit)


def diverged(losses: Tensor, limit: float) -> np.ndarray:
    """Return losses, infinite from the first one that is undefined or beyond hope."""
    return np.where(np.cumsum(~(losses.numpy() < limit)), np.inf, losses.double().numpy())


def minibatches(
    images: Tensor, targets: Tensor, size: int, *, seed: int, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the shuffled minibatches of an epoch, cropped at random from padded images, every other one mirrored."""
    order = torch.randperm(len(images), generator=study.stream(seed, f"order of epoch {epoch}")).to(images.device)
    generator = study.stream(seed, f"augmentation of epoch {epoch}")
    for chosen in order[: len(order) // size * size].split(size):
        yield augmented(images[chosen], generator), targets[chosen]


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror images (B, C, H, W) with probability 1/2 and shift them by up to `PADDING` pixels."""
    B, _, H, W = x.shape
    mirrored = torch.rand(B, generator=generator).to(x.device) < 0.5
    top, left = torch.randint(2 * PADDING + 1, (2, B), generator=generator).to(x.device)
    padded = F.pad(torch.where(mirrored.view(B, 1, 1, 1), x.flip(3), x), (PADDING,) * 4).movedim(1, 3)  # (B, H', W', C)
    rows = top.view(B, 1, 1) + torch.arange(H, device=x.device).view(1, H, 1)
    columns = left.view(B, 1, 1) + torch.arange(W, device=x.device).view(1, 1, W)
    return padded[torch.arange(B, device=x.device).view(B, 1, 1), rows, columns].movedim(3, 1)


def curves(builds: Mapping[str, Callable[[int], nn.Module]], images: Tensor, targets: Tensor, plan: Plan,
           runs: study.Runs, *, seed: int, place: str) -> dict[str, Any]:  # fmt: skip
    """Train every network at all rates, widened while the best is on the edge, then all seeds at the best rate."""
    steps = len(images) // plan.batch_size * plan.epochs
    window = min(plan.window, steps)
    ends = np.unique(np.linspace(window, steps, POINTS).round().astype(int))

    def curve(name: str, power: int, own: int) -> np.ndarray:
        def run() -> list[float]:
            losses = train(builds[name](own), images, targets, plan, rate=2.0**power, seed=own)
            return [float(losses[end - window : end].mean()) for end in ends]

        return array(runs(f"{place} {name} rate 2^{power} seed {own}", run))

    sets = []
    for name in builds:
        powers, first = sorted(plan.powers, reverse=True), range(seed, seed + plan.sweep_seeds)
        while True:
            sweep = np.array([[curve(name, power, own)[-1] for own in first] for power in powers])
            best = powers[int(np.argmin(np.median(sweep, axis=1)))]
            if best == powers[0] and best < MAX_POWER:
                powers.insert(0, best + 1)
            elif best == powers[-1] and best > MIN_POWER:
                powers.append(best - 1)
            else:
                break
        found = [curve(name, best, own) for own in range(seed, seed + plan.seeds)]
        sets.append({"name": name, "powers": powers, "sweep": sweep, "power": best, "curves": np.array(found)})
    return {"window": window, "steps": ends.astype(float), "sets": sets}


def p_value(found: dict[str, Any], name: str, reference: str, point: int) -> float:
    """Compute the two-sided p of Welch's t-test over the seeds of two sets, at a point."""
    pair = [array(each["curves"])[:, point] for wanted in (name, reference) for each in found["sets"]
            if each["name"] == wanted]  # fmt: skip
    a, b = (losses[np.isfinite(losses)] for losses in pair)
    return float(ttest_ind(a, b, equal_var=False).pvalue) if min(len(a), len(b)) > 1 else math.nan


def summary(found: dict[str, Any], reference: str) -> str:
    """Write final losses, the lowest first, and how sure the differences from the reference are."""
    rows, half = [], (len(found["steps"]) - 1) // 2
    for each in sorted(found["sets"], key=lambda each: np.median(array(each["curves"])[:, -1])):
        losses = array(each["curves"])
        low, high = np.quantile(losses[:, -1], (0.25, 0.75), method="nearest")
        p = ["" if each["name"] == reference else f"{p_value(found, each['name'], reference, point):.2g}"
             for point in (-1, half)]  # fmt: skip
        rows.append([each["name"], f"2^{each['power']}", f"{np.median(losses[:, -1]):.2f}", f"{low:.2f}–{high:.2f}",
                     f"{(~np.isfinite(losses[:, -1])).sum()}/{len(losses)}", p[0],
                     f"{np.median(losses[:, half]):.2f}", p[1]])  # fmt: skip
    titles = ("", "rate", "loss", "quartiles", "diverged", "p", "half-way", "p half-way")
    seeds = len(found["sets"][0]["curves"])
    return "\n".join([
        f"{found['model']} on {found['data']}", f"{found['training']}; {seeds} seeds;"
        f" loss: median of means over the last {found['window']} steps", "", study.table(titles, rows), "",
        f"p: Welch's t-test over seeds against {reference}, two-sided",
    ])  # fmt: skip


def draw(found: dict[str, Any], title: str) -> Figure:
    """Draw median and quartiles of the loss at the best rate by step, and the loss of each rate of the sweep."""
    note = " · ".join([found["model"], found["data"], found["training"], f"{len(found['sets'][0]['curves'])} seeds"])
    with study.picture(title, note, width_ratios=(1.5, 1)) as (figure, (left, right)):
        names = [each["name"] for each in found["sets"]]
        for each, colour in zip(found["sets"], study.colours(names), strict=True):
            losses = array(each["curves"])
            low, middle, high = np.nanquantile(np.where(np.isfinite(losses), losses, np.nan), (0.25, 0.5, 0.75), axis=0)
            left.plot(found["steps"], middle, color=colour, linewidth=1.4)
            left.fill_between(found["steps"], low, high, color=colour, alpha=0.2, linewidth=0)
            sweep = np.median(array(each["sweep"]), axis=1)
            known = np.isfinite(sweep)
            right.plot(2.0 ** np.array(each["powers"])[known], sweep[known], "o-", color=colour, markersize=3.5)
        left.set(xlabel="step", ylabel=f"training loss, mean of {found['window']} steps")
        right.set(xlabel="learning rate", ylabel="training loss at the end")
        right.set_xscale("log", base=2)
        study.head(left, "At the best learning rate", "median and quartiles over seeds")
        study.head(right, "Sweep of learning rates", "no dot: diverged or not tried")
        marks = [Line2D([], [], color=c, label=name) for name, c in zip(names, study.colours(names), strict=True)]
        figure.legend(handles=marks, loc="outside upper right", ncols=len(marks))
    return figure
