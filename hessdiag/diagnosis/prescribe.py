"""Scales that make the measured curvature of all weights equal, and leave what the network computes as it is.

W → s W with a multiplier 1/s on what the layer reads changes nothing but this one block, whose σ², γ and ν are
multiplied by s⁻⁴. So s = (q / q*)^¼ brings a measured q to q*, whatever the architecture around is: residual branches,
where σ² is β² γ, as well. What is left to iterate over is the noise of sampled σ², and every result is measured again.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_number, check_options, check_whole
from hessdiag.data.batch import Batch, Inputs
from hessdiag.data.stream import batches_of
from hessdiag.derivatives.losses import LossFunction
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.diagnosis.recipe import RATE_POWERS, BlockRecipe, Recipe
from hessdiag.errors import HessdiagError
from hessdiag.network.preserve import preserve_state
from hessdiag.results.balance import lost_in_noise, scale_invariant
from hessdiag.results.numbers import geometric_mean, spread
from hessdiag.results.report import SPREAD_KEYS, BlockReport, Report
from hessdiag.surgery import rescale_weight
from hessdiag.torch_arguments import check_model

QUANTITIES = {"sigma": "avg_sq_singular_value", "gamma": "gamma"}
POWER = -4.0  # of s, to which all of them change
TRIED = 4  # examples on which a factor is tried
TRIAL_FACTOR = 2.0  # exact in binary: the outputs stay the same to the last digit
MAX_CHANGE = 1e-3  # of the outputs, relative
BYPASSED = "the model reads it past the layer that holds it"
FIXED = ("seed", "distributed", "resume")


def prescribe(
    model: nn.Module,
    inputs: Inputs | Iterable[Any],
    targets: Tensor | None = None,
    *,
    loss: str | LossFunction = "random-quadratic",
    optimizer: str = "sgd",
    balance: str = "sigma",
    target: float = 1.5,
    rounds: int = 3,
    seed: int = 0,
    **options: Any,
) -> Recipe:
    """Measure a network, and find what to change before training so that all of its weights are equally curved.

    The model is left exactly as it was: everything is tried on a copy. `recipe.apply(model)` makes the change.

    Args:
        model, inputs, targets, loss, seed: as for `hessdiag.diagnose`; batches are kept to be measured again.
        optimizer: `"sgd"` or `"adam"`, for which learning rates are given.
        balance: `"sigma"` makes the measured σ² equal, `"gamma"` the theory's γ with its measured moments.
        target: spread, largest over smallest, at which it is done.
        rounds: corrections at most, each followed by a measurement.
        options: of `hessdiag.diagnose`, such as `rtol=0.02`.

    Raises:
        HessdiagError: an argument cannot be used, or no weight of the network can be balanced.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)).double()
    >>> recipe = prescribe(model, torch.ones(4, 2).double(), loss="mse", targets=torch.zeros(4, 1).double())
    >>> round(recipe.spread["avg_sq_singular_value"], 6)
    1.0
    """
    check_model(model)
    _check_arguments(optimizer=optimizer, balance=balance, target=target, rounds=rounds, options=options)
    stream = list(batches_of(inputs, targets))
    batches = [(batch.inputs, batch.targets) for batch in stream]

    def measure(network: nn.Module) -> Report:
        return diagnose(network, batches, loss=loss, seed=seed, **({"noise_scale": False} | options))

    before = measure(model)
    few = replace(stream[0], output=options.get("output")).narrow(0, TRIED)
    trial = _Trial.of(_copy(model), few, seed)
    left_out = _left_out(before, QUANTITIES[balance], trial)
    names = [block.name for block in before.weights if block.name not in left_out]
    if not names:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:1])
        raise HessdiagError(f"no weight of {type(model).__name__} can be balanced ({reasons})")
    goal = _goal(before, names, left_out, QUANTITIES[balance])
    factors, after, count = _balance(trial.model, before, names, goal, measure, target=target, rounds=rounds)
    return Recipe(
        blocks=tuple(_block(before[name], after[name], factors[name], optimizer) for name in names),
        left_out=tuple(left_out.items()),
        model=before.model,
        loss=before.loss,
        batch_size=before.batch_size,
        seed=seed,
        optimizer=optimizer,
        balance=balance,
        target=target,
        spread_before=_spreads(before, names),
        spread=_spreads(after, names),
        spread_of_all_before=spread([getattr(block, goal.key) for block in before.weights]),
        spread_of_all=spread([getattr(block, goal.key) for block in after.weights]),
        rounds=count,
        output_change=trial.change(),
        findings=before.findings,
    )


@dataclass(frozen=True)
class _Goal:
    """What is to be equal, and to which value."""

    key: str
    value: float

    def factor(self, block: BlockReport) -> float:
        """The s that brings a block to the value."""
        return float((getattr(block, self.key) / self.value) ** (-1 / POWER))

    def distance(self, report: Report, names: Iterable[str]) -> float:
        """Largest over smallest, the value included."""
        return spread([self.value, *(getattr(report[name], self.key) for name in names)])


@dataclass(frozen=True)
class _Trial:
    """A copy of the model to change, and what it gave for a few examples before."""

    model: nn.Module
    batch: Batch
    seed: int
    y: Tensor

    @classmethod
    def of(cls, model: nn.Module, batch: Batch, seed: int) -> _Trial:
        return cls(model, batch, seed, _outputs(model, batch, seed))

    def change(self) -> float:
        """How far the outputs are from what they were, relative to their size."""
        size = float(self.y.norm())
        apart = float((_outputs(self.model, self.batch, self.seed) - self.y).norm())
        return apart / size if size > 0 else apart

    def refusals(self, names: Iterable[str]) -> dict[str, str]:
        """Which weights cannot be scaled with a multiplier that undoes it, and why; all are left as they are."""
        tried = {name: _refusal(self.model, name) for name in names}
        found = {name: reason for name, reason in tried.items() if reason}
        scaled = [name for name in tried if name not in found]
        seen = self.change()
        for name in scaled:
            rescale_weight(self.model, name, 1 / TRIAL_FACTOR)
        if seen <= MAX_CHANGE:
            return found
        return found | {name: BYPASSED for name in scaled if not self.undone(name)}

    def undone(self, name: str) -> bool:
        """Whether the outputs stay when one weight is scaled."""
        rescale_weight(self.model, name, TRIAL_FACTOR)
        seen = self.change()
        rescale_weight(self.model, name, 1 / TRIAL_FACTOR)
        return seen <= MAX_CHANGE


def _refusal(model: nn.Module, name: str) -> str:
    """Scale a weight for a trial; why that is refused, or nothing."""
    try:
        rescale_weight(model, name, TRIAL_FACTOR)
    except HessdiagError as error:
        return str(error).rpartition(":")[0]
    return ""


def _outputs(model: nn.Module, batch: Batch, seed: int) -> Tensor:
    with preserve_state(model, seed=seed), torch.no_grad():
        return batch.call(model).detach().double()


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # of modules that hold what cannot be copied
        what = " ".join(f"{type(error).__name__}: {error}".split())[:150]
        raise HessdiagError(
            f"{type(model).__name__} cannot be copied to try a change on ({what}): pass a network as it is built, "
            "before any forward pass"
        ) from error


def _left_out(report: Report, key: str, trial: _Trial) -> dict[str, str]:
    """The weights that are not balanced, and why."""
    invariant = scale_invariant(report)
    found = {}
    for block in report.weights:
        value = getattr(block, key)
        if block.name in invariant:
            reason = "a normalisation follows: the network does not depend on its scale"
        elif math.isnan(value):
            reason = "the theory has no γ for it" if key == "gamma" else "its σ² is undefined"
        elif value == 0:
            reason = "it has no curvature on this batch"
        elif value < 0 or math.isinf(value) or (key != "gamma" and lost_in_noise(block)):
            reason = "its σ² is lost in sampling noise"
        else:
            continue
        found[block.name] = reason
    refused = trial.refusals([block.name for block in report.weights if block.name not in found])
    return {block.name: (found | refused)[block.name] for block in report.weights if block.name in found | refused}


def _goal(report: Report, names: Iterable[str], left_out: Mapping[str, str], key: str) -> _Goal:
    """The geometric mean: of what cannot be moved but counts, else of what can."""
    invariant = scale_invariant(report)
    fixed = [getattr(report[name], key) for name in left_out if name not in invariant]
    level = geometric_mean([value for value in fixed if value == value])
    if math.isnan(level):
        level = geometric_mean([getattr(report[name], key) for name in names])
    return _Goal(key, level)


def _balance(
    model: nn.Module,
    before: Report,
    names: list[str],
    goal: _Goal,
    measure: Any,
    *,
    target: float,
    rounds: int,
) -> tuple[dict[str, float], Report, int]:
    """Scale and measure in turns: the factors of the best network, what was measured of it, and the rounds it took."""
    best, factors, done = before, dict.fromkeys(names, 1.0), 0
    for number in range(1, rounds + 1):
        reached = goal.distance(best, names)
        if reached <= target:
            break
        step = {name: goal.factor(best[name]) for name in names}
        for name, factor in step.items():
            rescale_weight(model, name, factor)
        report = measure(model)
        if not goal.distance(report, names) < reached:  # noise: no better than it was
            for name, factor in step.items():
                rescale_weight(model, name, 1 / factor)
            break
        best, factors, done = report, {name: factors[name] * step[name] for name in names}, number
    return factors, best, done


def _block(before: BlockReport, after: BlockReport, factor: float, optimizer: str) -> BlockRecipe:
    return BlockRecipe(
        name=before.name,
        shape=before.shape,
        weight_factor=factor,
        multiplier=1 / factor,
        rate_factor=factor ** RATE_POWERS[optimizer],
        weight_sq_before=before.weight_sq,
        weight_sq=after.weight_sq,
        curvature_before=before.avg_sq_singular_value,
        curvature=after.avg_sq_singular_value,
        gamma_before=before.gamma,
        gamma=after.gamma,
        nu_before=before.nu,
        nu=after.nu,
    )


def _spreads(report: Report, names: Iterable[str]) -> dict[str, float]:
    blocks = [report[name] for name in names]
    return {key: spread([getattr(block, key) for block in blocks]) for key in SPREAD_KEYS}


def _check_arguments(*, optimizer: str, balance: str, target: float, rounds: int, options: Mapping[str, Any]) -> None:
    for name, value, known in (("optimizer", optimizer, RATE_POWERS), ("balance", balance, QUANTITIES)):
        if value not in known:
            raise HessdiagError(f"{name} {value!r}: use {' or '.join(known)}")
    check_number("target", target, "pass a spread of at least 1, such as 1.5", above=0)
    if target < 1:
        raise HessdiagError(f"target {target!r}: pass a spread of at least 1, such as 1.5")
    check_whole("rounds", rounds, least=1)
    check_options(options, diagnose, fixed=FIXED)
