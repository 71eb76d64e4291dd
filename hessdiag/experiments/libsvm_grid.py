"""The grid of one data set: every initialisation, learning rate and seed, widened until no optimum is on an edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.datasets.dataset import MAX_DENSE_BYTES, Dataset
from hessdiag.execution.seeds import stream
from hessdiag.execution.work import Result, Work
from hessdiag.experiments.libsvm_schemes import initialise
from hessdiag.experiments.libsvm_settings import HIDDEN, LibsvmSettings
from hessdiag.models.mlp import mlp
from hessdiag.results.numbers import Array
from hessdiag.results.training_study import median_over_seeds
from hessdiag.training.stacked import Examples, Member, train_stacked

STEP = 2  # powers of 2 that a grid is widened by at once
LARGEST, SMALLEST = 11, -22  # powers of 2 beyond which it is not
DIGITS = 6  # of a loss that is kept

Grid = dict[int, Array]  # (schemes, seeds) losses by power of 2; NaN where not run


@dataclass(frozen=True)
class Unit:
    """Networks of one scheme and one seed, one for each learning rate."""

    scheme: str
    seed: int
    powers: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.scheme} seed {self.seed} rates 2^{', '.join(map(str, self.powers))}"


def run_grid(dataset: Dataset, settings: LibsvmSettings, *, seed: int, device: str, work: Work) -> Grid:
    """Train all networks of a data set; each unit of work is those of one scheme and one seed."""
    examples = to_examples(dataset, device)
    grid: Grid = {}
    asked = dict.fromkeys(settings.schemes, settings.powers)

    def measure(unit: Unit) -> Result:
        network = make_network(dataset, unit.scheme, unit.seed).to(device)
        members = [Member(network, 2.0**power, unit.seed) for power in unit.powers]
        with one_thread():
            return {"losses": train_stacked(members, examples, settings.training).numpy()}

    while any(asked.values()):
        seeds = range(seed, seed + settings.seeds)
        units = [Unit(scheme, each, powers) for scheme, powers in asked.items() for each in seeds if powers]
        for unit, found in zip(units, work.each("networks", units, measure, label=str), strict=True):
            row = settings.schemes.index(unit.scheme)
            for power, loss in zip(unit.powers, found["losses"], strict=True):
                empty = np.full((len(settings.schemes), settings.seeds), np.nan)
                grid.setdefault(power, empty)[row, unit.seed - seed] = float(f"{loss:.{DIGITS}g}")
        asked = powers_beyond(grid, settings.schemes)
    return grid


def powers_beyond(grid: Mapping[int, Array], schemes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Learning rates to add for each scheme: some beyond the edge on which its best one lies, or none."""
    powers = sorted(grid, reverse=True)
    medians = np.stack([median_over_seeds(grid[power]) for power in powers], axis=1)  # (schemes, rates)
    found: dict[str, tuple[int, ...]] = {}
    for scheme, row in zip(schemes, medians, strict=True):
        run = [power for power, loss in zip(powers, row, strict=True) if not np.isnan(loss)]
        best = powers[int(np.nanargmin(row))]
        above = range(best + 1, min(best + STEP, LARGEST) + 1) if best == run[0] else ()
        below = range(best - 1, max(best - STEP, SMALLEST) - 1, -1) if best == run[-1] else ()
        found[scheme] = (*above, *below)
    return found


def as_array(grid: Grid) -> tuple[tuple[int, ...], Array]:
    """Powers of 2 from the largest, and (schemes, rates, seeds) losses."""
    powers = tuple(sorted(grid, reverse=True))
    return powers, np.stack([grid[power] for power in powers], axis=1)


def make_network(dataset: Dataset, scheme: str, seed: int) -> nn.Module:
    """Initialise the network of a data set; all schemes scale the same random numbers of a seed."""
    model = mlp([dataset.features, *HIDDEN, dataset.classes])
    return initialise(model, scheme, stream(seed, "initialisation"))


def to_examples(dataset: Dataset, device: str) -> Examples:
    """Normalise every row to mean 0 and variance 1, LayerNorm on the input; once where dense rows fit into memory."""
    targets = torch.from_numpy(dataset.targets).to(device)

    def rows(index: Tensor) -> Tensor:
        return F.layer_norm(dataset.take(index), (dataset.features,)).to(device)

    if 4 * len(dataset) * dataset.features > MAX_DENSE_BYTES:
        return Examples(rows, targets)
    everything = rows(torch.arange(len(dataset)))
    return Examples(lambda index: everything[index.to(device)], targets)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread: sums round otherwise with more, and processes share the work better than threads do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
