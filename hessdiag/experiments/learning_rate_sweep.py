"""Training curves at the best of several learning rates: what the training experiments of the paper have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from hessdiag.execution.work import Result, Work
from hessdiag.results.numbers import Array
from hessdiag.results.training_curves import CurveSet, windows
from hessdiag.training.image_training import ImageTraining, train

POINTS = 60  # of a curve
Build = Callable[[int], nn.Module]  # from a seed to an initialised network on its device


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep of learning rates, and the seeds that are run at the best one.

    Attributes:
        training: how; its rate is set by the sweep.
        powers: learning rates as powers of 2, from the largest.
        sweep_seeds: seeds of the sweep, the first of the `seeds` that are run at the best rate.
        seeds: of the curves.
        window: steps of the sliding window.
    """

    training: ImageTraining
    powers: tuple[int, ...]
    sweep_seeds: int
    seeds: int
    window: int

    @property
    def units(self) -> int:
        """Trainings of one network, if no rate at the edge is best."""
        return len(self.powers) * self.sweep_seeds + self.seeds - self.sweep_seeds


@dataclass(frozen=True)
class _Unit:
    name: str
    power: int
    seed: int

    def __str__(self) -> str:
        return f"{self.name} rate 2^{self.power} seed {self.seed}"


def curves_of(
    builds: Mapping[str, Build], images: Tensor, targets: Tensor, sweep: Sweep, *, seed: int, work: Work
) -> tuple[Array, tuple[CurveSet, ...]]:
    """Train all networks at all rates, then all seeds at each one's best rate; a training is a unit of work.

    A sweep whose best rate lies on its edge is widened by one power of 2 at a time.

    Returns:
        Ends of the windows, and the curves.
    """
    steps = windows(np.zeros(_steps(images, sweep)), window=sweep.window, points=POINTS)[0]
    found: dict[_Unit, Array] = {}

    def run(units: list[_Unit]) -> None:
        todo = [unit for unit in units if unit not in found]

        def measure(unit: _Unit) -> Result:
            network = builds[unit.name](unit.seed)
            training = replace(sweep.training, rate=2.0**unit.power)
            losses = train(network, images, targets, training, seed=unit.seed)
            return {"curve": windows(losses.double().numpy(), window=sweep.window, points=POINTS)[1]}

        for unit, result in zip(todo, work.each("training", todo, measure, label=str), strict=True):
            found[unit] = result["curve"]

    first = range(seed, seed + sweep.sweep_seeds)
    asked = {name: sorted(sweep.powers, reverse=True) for name in builds}
    while True:
        run([_Unit(name, power, s) for name, powers in asked.items() for power in powers for s in first])
        best = {n: _best(n, powers, found, list(first)) for n, powers in asked.items()}
        wider = {n: _beyond(asked[n], best[n]) for n in builds}
        if not any(wider.values()):
            break
        asked = {name: sorted({*asked[name], *wider[name]}, reverse=True) for name in builds}
    every = range(seed, seed + sweep.seeds)
    run([_Unit(name, best[name], s) for name in builds for s in every])
    return steps, tuple(
        CurveSet(
            name=name,
            powers=tuple(asked[name]),
            sweep=np.array([[found[_Unit(name, power, s)][-1] for s in first] for power in asked[name]]),
            power=best[name],
            curves=np.array([found[_Unit(name, best[name], s)] for s in every]),
        )
        for name in builds
    )


MAX_POWER, MIN_POWER = 4, -16


def _beyond(powers: list[int], best: int) -> list[int]:
    """One more rate beyond the edge on which the best one lies, or none."""
    above = [best + 1] if best == powers[0] and best < MAX_POWER else []
    return above + ([best - 1] if best == powers[-1] and best > MIN_POWER else [])


def _best(name: str, powers: list[int], found: Mapping[_Unit, Array], seeds: list[int]) -> int:
    """The rate of least median loss in the last window."""
    return min(powers, key=lambda power: float(np.median([found[_Unit(name, power, s)][-1] for s in seeds])))


def _steps(images: Tensor, sweep: Sweep) -> int:
    return len(images) // sweep.training.batch_size * sweep.training.epochs


def on(device: str, network: nn.Module) -> nn.Module:
    """The network in training on a device."""
    return network.to(torch.device(device)).train()
