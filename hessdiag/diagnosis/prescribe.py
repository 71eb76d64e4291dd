"""Scales that make the measured curvature of all weights equal, and leave what the network computes as it is.

W → s W with a multiplier 1/s on what the layer reads changes nothing but this one block, whose σ², γ and ν are
multiplied by s⁻⁴. So s = (q / q*)^¼ brings a measured q to q*, whatever the architecture around is: residual branches,
where σ² is β² γ, as well. What is left to iterate over is the noise of sampled σ², and every result is measured again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from hessdiag.arguments import check_number, check_options, check_whole
from hessdiag.curvature.plan import check_choice
from hessdiag.data.batch import Inputs
from hessdiag.data.stream import batches_of
from hessdiag.derivatives.losses import LossFunction
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.diagnosis.learning_rate_estimate import learning_rates
from hessdiag.diagnosis.recipe import RATE_POWERS, BlockRecipe, RateGroup, Recipe
from hessdiag.diagnosis.scale_trial import Trial
from hessdiag.errors import HessdiagError
from hessdiag.results.balance import scale_invariant
from hessdiag.results.learning_rates import LearningRate
from hessdiag.results.numbers import geometric_mean, spread
from hessdiag.results.rate_balance import UNTRAINED, told_rates
from hessdiag.results.report import SPREAD_KEYS, Report
from hessdiag.surgery import rescale_weight
from hessdiag.torch_arguments import check_model

QUANTITIES = {"sigma": "avg_sq_singular_value", "gamma": "gamma"}
BALANCES = (*QUANTITIES, "rate")
POWER = -4.0  # of s, by which these change; a learning rate by the inverse of what would make up for s
UNDEFINED = {
    "sigma": "its σ² is undefined",
    "gamma": "the theory has no γ for it",
    "rate": "the loss has no minimum along its first step",
}
FIXED = ("seed", "optimizer", "signals", "learning_rates", "distributed", "resume")


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
        balance: `"sigma"` makes the measured σ² equal, `"gamma"` the theory's γ with its measured moments, `"rate"` the
            learning rates at which a first step of each weight alone is best for the optimiser.
        target: spread, largest over smallest, at which it is done.
        rounds: corrections at most, each followed by a measurement.
        options: of `hessdiag.diagnose`, such as `rtol=0.02`.

    Raises:
        HessdiagError: an argument cannot be used, or no weight of the network can be balanced.

    >>> import torch
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
        return diagnose(
            network, batches, loss=loss, seed=seed, optimizer=optimizer, **({"noise_scale": False} | options)
        )

    quantity = _Quantity(balance, optimizer)
    before = measure(model)
    quantity.check(before)
    trial = Trial.of(model, replace(stream[0], output=options.get("output")), seed)
    left_out = _left_out(before, quantity, trial)
    names = [block.name for block in before.weights if block.name not in left_out]
    if not names:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:1])
        raise HessdiagError(f"no weight of {type(model).__name__} can be balanced ({reasons})")
    goal = _goal(before, names, left_out, quantity)
    factors, after, count = _balance(trial.model, before, names, goal, measure, target=target, rounds=rounds)
    return Recipe(
        blocks=tuple(_block(before, after, name, factors[name]) for name in names),
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
        spread_of_all_before=spread(list(quantity.of(before).values())),
        spread_of_all=spread(list(quantity.of(after).values())),
        rounds=count,
        sampling_error=max(before[name].relative_stderr for name in names),
        output_change=trial.change(),
        learning_rate_before=_rate(before),
        learning_rate=_rate(after),
        training_rate_before=_training_rate(model, batches, before, loss, options),
        training_rate=_training_rate(trial.model, batches, before, loss, options),
        groups_before=_groups(before, model),
        groups=_groups(after, trial.model),
        findings=before.findings,
    )


@dataclass(frozen=True)
class _Quantity:
    """What is to be equal."""

    balance: str
    optimizer: str

    @property
    def power(self) -> float:
        """To which power of s it changes."""
        return POWER if self.balance in QUANTITIES else -RATE_POWERS[self.optimizer]

    def of(self, report: Report) -> dict[str, float]:
        """Its value of every weight block."""
        if self.balance in QUANTITIES:
            return {block.name: getattr(block, QUANTITIES[self.balance]) for block in report.weights}
        return {block.name: report.learning_rates[self.optimizer].blocks[block.name] for block in report.weights}

    def check(self, report: Report) -> None:
        """Refuse to balance what was not measured."""
        if self.balance == "rate" and _rate(report) is None:
            why = "the paper's loss is not trained with" if report.loss == UNTRAINED else "there are none"
            raise HessdiagError(
                f"balance 'rate' needs learning rates of a loss that is trained with ({why}): pass loss='cross-entropy'"
            )


@dataclass(frozen=True)
class _Goal:
    """What is to be equal, and to which value."""

    quantity: _Quantity
    value: float

    def factors(self, report: Report, names: Iterable[str]) -> dict[str, float]:
        """The s of each block that brings it to the value."""
        values = self.quantity.of(report)
        return {name: float((self.value / values[name]) ** (1 / self.quantity.power)) for name in names}

    def distance(self, report: Report, names: Iterable[str]) -> float:
        """Largest over smallest, the value included."""
        values = self.quantity.of(report)
        return spread([self.value, *(values[name] for name in names)])


def _left_out(report: Report, quantity: _Quantity, trial: Trial) -> dict[str, str]:
    """The weights that are not balanced, and why."""
    invariant, values = scale_invariant(report), quantity.of(report)
    found = {}
    for block in report.weights:
        value = values[block.name]
        if block.name in invariant:
            reason = "a normalisation follows: the network does not depend on its scale"
        elif block.avg_sq_singular_value == 0:
            reason = "it has no curvature on this batch"
        elif quantity.balance != "gamma" and block.lost_in_noise:
            reason = "its σ² is lost in sampling noise"
        elif not 0 < value < math.inf:
            reason = UNDEFINED[quantity.balance]
        else:
            continue
        found[block.name] = reason
    refused = trial.refusals([block.name for block in report.weights if block.name not in found])
    return {block.name: (found | refused)[block.name] for block in report.weights if block.name in found | refused}


def _goal(report: Report, names: Iterable[str], left_out: Mapping[str, str], quantity: _Quantity) -> _Goal:
    """The geometric mean: of what cannot be moved but counts, else of what can."""
    invariant, values = scale_invariant(report), quantity.of(report)
    level = geometric_mean([values[name] for name in left_out if name not in invariant])
    if math.isnan(level):
        level = geometric_mean([values[name] for name in names])
    return _Goal(quantity, level)


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
        step = goal.factors(best, names)
        for name, factor in step.items():
            rescale_weight(model, name, factor)
        report = measure(model)
        if not goal.distance(report, names) < reached:  # noise: no better than it was
            for name, factor in step.items():
                rescale_weight(model, name, 1 / factor)
            break
        best, factors, done = report, {name: factors[name] * step[name] for name in names}, number
    return factors, best, done


def _block(before: Report, after: Report, name: str, factor: float) -> BlockRecipe:
    old, new = before[name], after[name]
    rates = (_rate(before), _rate(after))
    rate_before, rate = (math.nan if r is None else r.blocks.get(name, math.nan) for r in rates)
    return BlockRecipe(
        name=name,
        shape=old.shape,
        weight_factor=factor,
        multiplier=1 / factor,
        rate_factor=factor ** RATE_POWERS[before.optimizer],
        weight_sq_before=old.weight_sq,
        weight_sq=new.weight_sq,
        curvature_before=old.avg_sq_singular_value,
        curvature=new.avg_sq_singular_value,
        gamma_before=old.gamma,
        gamma=new.gamma,
        nu_before=old.nu,
        nu=new.nu,
        rate_before=rate_before,
        rate=rate,
    )


def _rate(report: Report) -> LearningRate | None:
    """The learning rate of the first step, where there is one to train with."""
    found = told_rates(report)
    return found if found is not None and math.isfinite(found.value) else None


def _training_rate(
    model: nn.Module, batches: list[Any], report: Report, loss: str | LossFunction, options: Mapping[str, Any]
) -> LearningRate | None:
    """The rate for training, along virtual steps; None where the loss is not trained with, or no rate can be told."""
    if report.loss == UNTRAINED:
        return None
    asked: dict[str, Any] = {key: options[key] for key in ("class_dim", "output") if key in options}
    asked |= {"loss": loss, "optimizers": [report.optimizer], "seed": report.seed}
    found = learning_rates(model, batches, **asked)[report.optimizer]
    return found if math.isfinite(found.value) else None


def _groups(report: Report, model: nn.Module) -> tuple[RateGroup, ...]:
    """The parameter groups that the rates of a report ask for, by names."""
    if _rate(report) is None:
        return ()
    names = {id(p): name for name, p in model.named_parameters()}
    groups = report.parameter_groups(model)
    return tuple(RateGroup(names=tuple(names[id(p)] for p in g["params"]), lr=float(g["lr"])) for g in groups)


def _spreads(report: Report, names: Iterable[str]) -> dict[str, float]:
    blocks, rate = [report[name] for name in names], _rate(report)
    rates = math.nan if rate is None else spread([rate.blocks[block.name] for block in blocks])
    return {key: spread([getattr(block, key) for block in blocks]) for key in SPREAD_KEYS} | {"learning_rate": rates}


def _check_arguments(*, optimizer: str, balance: str, target: float, rounds: int, options: Mapping[str, Any]) -> None:
    check_choice("optimizer", optimizer, tuple(RATE_POWERS))
    check_choice("balance", balance, BALANCES)
    check_number("target", target, "pass a spread of at least 1, such as 1.5", above=0)
    if target < 1:
        raise HessdiagError(f"target {target!r}: pass a spread of at least 1, such as 1.5")
    check_whole("rounds", rounds, least=1)
    check_options(options, diagnose, fixed=FIXED)
