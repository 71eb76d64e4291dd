"""Learning rates before training, along a few virtual steps on copies of the weights.

At every step a first batch gives the directions u, and a second one, which they do not depend on, the slope g·u and the
curvature uᵀGu along them: with one batch for both, the noise of its gradient would look like slope. The copy goes along
Adam's direction, half as far as the quadratic model of the second batch's loss has its minimum. Adam is what leaves the
plateau of a network whose outputs start small within a dozen steps; a dozen steps of SGD can stay on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import cycle, islice
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_loss, check_model, check_whole, did_you_mean, few
from hessdiag.curvature.measurement import Settings
from hessdiag.data.batch import Batch, Inputs
from hessdiag.data.seeds import stream
from hessdiag.data.stream import batches_of
from hessdiag.derivatives.functional import FunctionalModel, outputs_and_tangent
from hessdiag.derivatives.losses import Loss, LossFunction, check_targets
from hessdiag.diagnosis.diagnose import TRIED, check_weights, read_loss
from hessdiag.diagnosis.measurement import check_tensors
from hessdiag.errors import HessdiagError
from hessdiag.loading.first_call import try_model
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import seed_torch
from hessdiag.parallel.progress import Progress, advance, showing
from hessdiag.results.learning_rates import LearningRate, LearningRates

# Best rate of a sweep over the measured one, in the median of the fitting half of docs/results.md's networks.
FACTORS: Mapping[str, float] = {"sgd": 2.0, "momentum": 0.52, "adam": 0.88}
MIN_BATCHES = 8  # with fewer, what was acted on comes back too soon to be fresh
SHARE = 0.5  # of the way to the minimum
MAX_CURVATURE = 10.0  # of the median curvature
COMPARED = 8  # examples on which both ways to a derivative along u are compared
SAME = {torch.float32: 1e-3, torch.float64: 1e-8}  # of both
BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's defaults

Values = Mapping[str, Tensor]  # by name of the parameter


def learning_rates(
    model: nn.Module,
    inputs: Inputs | Iterable[Any],
    targets: Tensor | None = None,
    *,
    loss: str | LossFunction = "cross-entropy",
    class_dim: int | None = None,
    output: str | int | None = None,
    optimizers: Sequence[str] = ("sgd", "adam"),
    steps: int = 12,
    batch_size: int = 128,
    seed: int = 0,
    progress: Progress = None,
) -> LearningRates:
    """Estimate the constant learning rates that a model is best trained with, before training it.

    A copy of the trainable parameters takes a few virtual steps of Adam. Before each, a batch gives the direction u of
    every optimiser, its gradient for SGD, and a fresh batch the slope g·u and the curvature uᵀGu along it, with G the
    Gauss-Newton matrix. Σ g·u / Σ uᵀGu over the steps is the constant rate at which their quadratic models together
    are lowest; the learning rate is `FACTORS` times that, as calibrated on sweeps of small networks (docs/results.md).
    The model is left exactly as it was.

    Args:
        model: any module that maps a batch to one tensor (B, *outputs), in the mode it is trained in.
        inputs, targets: as in `hessdiag.diagnose`: real data, because the rates are for the data they are measured on.
            Of an iterable, two batches are read for each step, as far as there are some. Of less than eight batches,
            all examples serve at every step for directions and slopes alike: less exact, above all for SGD.
        loss: what the model will be trained with: `"cross-entropy"`, `"mse"`, or a callable
            `(outputs, targets) -> mean over the examples it is given`.
        class_dim, output: see `hessdiag.diagnose`.
        optimizers: any of `"sgd"`, `"momentum"` (SGD with momentum 0.9) and `"adam"`.
        steps: virtual steps.
        batch_size: of the training, where inputs are a single batch: so many examples are drawn of it, twice a step.
            Larger batches are less noisy and allow larger rates.
        seed: of what is drawn.
        progress: as in `hessdiag.diagnose`.

    Returns:
        A mapping from optimisers to `LearningRate`; printing it shows the table. A rate is NaN where the loss of fresh
        batches does not fall along the steps, or has no curvature along them.

    Raises:
        HessdiagError: an argument cannot be used; one sentence says why.

    >>> rates = learning_rates(nn.Linear(3, 2), torch.randn(64, 3), torch.randint(2, (64,)))
    >>> list(rates), len(rates["adam"].steps)
    (['sgd', 'adam'], 12)
    """
    check_model(model)
    check_loss(loss)
    check_whole("steps", steps, least=1)
    check_whole("batch_size", batch_size, least=1)
    _check_optimizers(optimizers)
    settings = Settings(per="batch", class_dim=class_dim, output=output, seed=seed)
    device, dtype = check_weights(model)
    batches = [replace(each, output=output) for each in islice(batches_of(inputs, targets), 2 * steps)]
    with preserve_state(model, seed=seed):
        resolved = _resolve(model, batches, loss, settings)
        walk = Walk.of(model, resolved, batches[0], seed=seed)
        pairs = BatchPairs(batches, batch_size)
        with showing(progress, title=f"stepping {type(model).__name__}", total=steps):
            walked = list(walk.steps(pairs.draw(steps, seed=seed)))
    return LearningRates(
        rates={optimizer: _rate(optimizer, walked, pairs.examples) for optimizer in optimizers},
        model=type(model).__name__,
        loss=resolved.name,
        batch_size=pairs.examples,
        fresh=pairs.fresh,
        seed=seed,
        device=device.type,
        dtype=str(dtype).removeprefix("torch."),
        versions={"hessdiag": metadata.version("hessdiag"), "torch": torch.__version__},
    )


def _check_optimizers(optimizers: Sequence[str]) -> None:
    if isinstance(optimizers, str) or not optimizers:
        raise HessdiagError(f"optimizers {optimizers!r}: pass a list, as in optimizers=['sgd', 'adam']")
    for name in optimizers:
        if name not in FACTORS:
            raise HessdiagError(f"optimizer {name!r}: {did_you_mean(name, FACTORS, otherwise=f'use {few(FACTORS)}')}")


def _resolve(model: nn.Module, batches: Sequence[Batch], loss: str | LossFunction, settings: Settings) -> Loss:
    """The loss, after the first call of the model; refuse batches that do not fit."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise HessdiagError("all parameters are frozen (requires_grad=False): there is nothing to train")
    for batch in batches:
        check_tensors(model, batch)
    outputs = try_model(model, batches[0], examples=TRIED[settings.per]).outputs
    resolved = read_loss(batches[0], loss, settings, outputs)
    for batch in batches[1:]:
        check_targets(resolved, like=outputs.y, targets=batch.targets)
    return resolved


def _rate(optimizer: str, walked: Sequence[VirtualStep], examples: int) -> LearningRate:
    """The optimiser's rate, from what was measured before each step."""
    factor = FACTORS[optimizer]
    along = [step.adam if optimizer == "adam" else step.gradient for step in walked]
    rate, stderr = best_constant_rate(along)
    falls = rate > 0
    return LearningRate(
        value=factor * rate if falls else math.nan,
        stderr=factor * stderr if falls else math.nan,
        examples=examples,
        steps=tuple(factor * each.rate for each in along),
    )


@dataclass(frozen=True)
class BatchPairs:
    """Where pairs of batches come from.

    Attributes:
        batches: several are taken whole and in turn, over again where they are too few; of a single one, random
            examples are drawn. Where all of them together are less than `MIN_BATCHES` batches, both batches of a pair
            are all examples.
        batch_size: examples that are drawn of a single batch.
    """

    batches: Sequence[Batch]
    batch_size: int

    @property
    def fresh(self) -> bool:
        """Whether the batches of a pair share no example."""
        if len(self.batches) > 1:
            return len(self.batches) >= MIN_BATCHES
        return self.batches[0].size >= MIN_BATCHES * self.batch_size

    @property
    def examples(self) -> int:
        """How many examples a batch of a pair has."""
        if not self.fresh:
            return sum(batch.size for batch in self.batches)
        return self.batches[0].size if len(self.batches) > 1 else self.batch_size

    def draw(self, count: int, *, seed: int) -> Iterator[tuple[Batch, Batch]]:
        """`count` pairs, in an order that follows from the seed."""
        if not self.fresh:
            whole = Batch.concatenate(self.batches)
            yield from ((whole, whole) for _ in range(count))
        elif len(self.batches) > 1:
            turns = cycle(self.batches)
            yield from ((next(turns), next(turns)) for _ in range(count))
        else:
            yield from self._drawn(count, seed)

    def _drawn(self, count: int, seed: int) -> Iterator[tuple[Batch, Batch]]:
        (whole,), size = self.batches, self.batch_size
        generator = stream(seed, "examples of virtual steps")
        order: list[int] = []
        for _ in range(count):
            if len(order) < 2 * size:
                order = torch.randperm(whole.size, generator=generator).tolist()
            chosen, order = order[: 2 * size], order[2 * size :]
            yield whole.select(chosen[:size]), whole.select(chosen[size:])


class AdamDirection:
    """m̂/(√v̂ + ε), as `torch.optim.Adam` has it (arXiv 1412.6980, Algorithm 1): the sign of the first gradient."""

    def __init__(self) -> None:
        self._steps = 0
        self._first: Values = {}
        self._second: Values = {}

    def __call__(self, gradient: Values) -> Values:
        """Return the direction of the next step, W ← W − rate · u, after a batch with this gradient."""
        self._steps += 1
        self._first = _averaged(self._first, gradient, BETAS[0])
        self._second = _averaged(self._second, {n: g.square() for n, g in gradient.items()}, BETAS[1])
        first, second = (1 - beta**self._steps for beta in BETAS)
        return {n: (m / first) / ((self._second[n] / second).sqrt() + EPSILON) for n, m in self._first.items()}


def _averaged(before: Values, now: Values, beta: float) -> Values:
    if not before:
        return {name: (1 - beta) * value for name, value in now.items()}
    return {name: torch.lerp(value, before[name], beta) for name, value in now.items()}


@dataclass(frozen=True)
class Along:
    """What was measured along one direction.

    Attributes:
        slope: g·u, of a batch that u does not depend on.
        curvature: uᵀGu of the same batch, with G its Gauss-Newton matrix.
    """

    slope: float
    curvature: float

    @property
    def rate(self) -> float:
        """Where the quadratic model along u is lowest; NaN where it has no minimum."""
        return self.slope / self.curvature if self.curvature > 0 else math.nan


@dataclass(frozen=True)
class VirtualStep:
    """What was measured before one step: along the gradient of a batch, and along Adam's direction."""

    gradient: Along
    adam: Along


@dataclass(frozen=True)
class Walk:
    """Steps on copies of a model's trainable parameters; the model itself stays as it is.

    Attributes:
        network: the model as a function of them.
        loss: what falls.
        start: the weights as they are.
        forward_mode: whether derivatives along u are right in forward mode.
        seed: of what the model draws.
    """

    network: FunctionalModel
    loss: Loss
    start: Values
    forward_mode: bool
    seed: int

    @classmethod
    def of(cls, model: nn.Module, loss: Loss, batch: Batch, *, seed: int) -> Walk:
        """Start at the model's weights; `batch` is any that it reads.

        Forward mode is left out where it does not agree with reverse mode: it differentiates what a model computes
        under `torch.no_grad()`.
        """
        start = {
            name: parameter.detach()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and parameter.is_floating_point()
        }
        walk = cls(FunctionalModel(model), loss, start, True, seed)
        few = batch.narrow(0, COMPARED)
        u = {name: torch.ones_like(value) for name, value in start.items()}
        one, other = (walk._pushed(start, u, few, 0, forward_mode=mode)[1] for mode in (True, False))
        alike = bool((one - other).norm() <= SAME.get(one.dtype, 1e-3) * other.norm())
        return cls(walk.network, loss, start, alike, seed)

    def steps(self, pairs: Iterator[tuple[Batch, Batch]]) -> Iterator[VirtualStep]:
        """Walk as far as there are pairs: a batch that the directions are of, one that measures along them."""
        at, adam = self.start, AdamDirection()
        for number, (stepped, measured) in enumerate(pairs):
            gradient = self._gradient(at, stepped, 2 * number)
            u = adam(gradient)
            step = VirtualStep(*(self._along(at, each, measured, 2 * number + 1) for each in (gradient, u)))
            advance("virtual steps")
            yield step
            if math.isfinite(step.adam.rate) and step.adam.rate > 0:
                at = {name: value - SHARE * step.adam.rate * u[name] for name, value in at.items()}

    def _along(self, at: Values, u: Values, batch: Batch, number: int) -> Along:
        """Slope and curvature along u, of the outputs' own slope and curvature along J u."""
        y, moved = self._pushed(at, u, batch, number, forward_mode=self.forward_mode)  # (B, *out)
        slope = self.loss.gradient(y, batch.targets).detach() * moved
        curvature = self.loss.hessian_product(y, batch.targets, moved).detach() * moved
        return Along(*(float(each.sum(dtype=torch.float64)) / batch.size for each in (slope, curvature)))

    def _gradient(self, at: Values, batch: Batch, number: int) -> Values:
        """Gradient of the batch-mean loss."""
        leaves = {name: value.detach().requires_grad_() for name, value in at.items()}
        self._reseed(number)
        y = self.network(leaves, batch)
        if not y.requires_grad:
            return {name: torch.zeros_like(value) for name, value in at.items()}
        own = self.loss.gradient(y.detach(), batch.targets).detach() / batch.size
        found = torch.autograd.grad(y, list(leaves.values()), own.to(y), materialize_grads=True)
        return {name: each.to_dense() for name, each in zip(leaves, found, strict=True)}

    def _pushed(self, at: Values, u: Values, batch: Batch, number: int, *, forward_mode: bool) -> tuple[Tensor, Tensor]:
        """Outputs and J u."""
        self._reseed(number)
        y, moved = outputs_and_tangent(self.network, at, u, batch, forward_mode=forward_mode)
        return y.detach(), moved.detach()

    def _reseed(self, number: int) -> None:
        """Make dropout draw alike whenever the same batch is read."""
        devices = {value.get_device() for value in self.start.values() if value.is_cuda}
        seed_torch(stream(self.seed, f"virtual step {number}").initial_seed(), devices)


def best_constant_rate(steps: Sequence[Along]) -> tuple[float, float]:
    """The rate at which the quadratic models of all steps together are lowest, Σ g·u / Σ uᵀGu, and its standard error.

    A step more than `MAX_CURVATURE` times as curved as the median one is scaled down to that: the place where one has
    led astray must not outweigh all others. The error is that of a ratio of means over independent steps. Both are NaN
    where the curvatures do not add up to more than 0.

    >>> best_constant_rate([Along(1.0, 2.0), Along(3.0, 2.0)])
    (1.0, 0.5)
    """
    most = MAX_CURVATURE * median(each.curvature for each in steps)
    shares = [most / each.curvature if each.curvature > most > 0 else 1.0 for each in steps]
    slope = sum(share * each.slope for share, each in zip(shares, steps, strict=True))
    curvature = sum(share * each.curvature for share, each in zip(shares, steps, strict=True))
    if not curvature > 0:
        return math.nan, math.nan
    rate, count = slope / curvature, len(steps)
    left = sum((share * (each.slope - rate * each.curvature)) ** 2 for share, each in zip(shares, steps, strict=True))
    return rate, math.sqrt(left * count / (count - 1)) / curvature if count > 1 else math.nan
