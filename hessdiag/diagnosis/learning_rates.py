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
from functools import partial
from itertools import chain, cycle, islice
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_choice, check_kind, check_whole, matching
from hessdiag.curvature.measurement import Settings
from hessdiag.data.batch import Batch, BatchDim, Inputs
from hessdiag.data.seeds import stream
from hessdiag.data.stream import batches_for
from hessdiag.derivatives.backward import FunctionalModel, mean_gradient, outputs_and_tangent
from hessdiag.derivatives.losses import Loss, LossFunction
from hessdiag.errors import HessdiagError
from hessdiag.loading.first_call import first_call
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import seed_again
from hessdiag.parallel.progress import Progress, advance, announce, showing
from hessdiag.results.learning_rates import LearningRate, LearningRates
from hessdiag.results.records import versions

# Best rate of a sweep over the measured one, in the median of the fitting half of docs/evidence.md's networks.
FACTORS: Mapping[str, float] = {"sgd": 2.0, "momentum": 0.52, "adam": 0.88}
MIN_BATCHES = 8  # with fewer, what was acted on comes back too soon to be fresh
SHARE = 0.5  # of the way to the minimum
ROUNDINGS = 16  # of one number, that the sum of many is off by at most
MAX_CURVATURE = 10.0  # of the median curvature
RISING, DOUBLINGS = 1.5, 3  # rate of the later over that of the earlier steps; doublings of a walk along which it rises
COMPARED = 8  # examples on which both ways to a derivative along u are compared
SAME = {torch.float32: 1e-3, torch.float64: 1e-8}  # of both

Values = Mapping[str, Tensor]  # by name of the parameter
Pair = tuple[Batch, Batch]  # for the directions, and for what is measured along them


def learning_rates(
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None = None, *,
    loss: str | LossFunction | None = None, class_dim: int | None = None, output: str | int | None = None,
    batch_dim: BatchDim = 0, examples: str = "batch", optimizers: Sequence[str] = ("sgd", "adam"), steps: int = 12,
    batch_size: int = 128, blocks: str | Sequence[str] | None = None, seed: int = 0, mode: str = "train",
    progress: Progress = None,
) -> LearningRates:  # fmt: skip
    """Estimate the constant learning rates that a model is best trained with, before training it.

    A copy of the trainable parameters takes a few virtual steps of Adam. Before each, a batch gives the direction u of
    every optimiser, its gradient for SGD, and a fresh batch the slope g·u and the curvature uᵀGu along it, with G the
    Gauss-Newton matrix. Σ g·u / Σ uᵀGu over the steps is the constant rate at which their quadratic models together
    are lowest; the learning rate is `FACTORS` times that, as calibrated on sweeps of small networks (docs/evidence.md).
    Where the later half of the steps has a rate more than 1.5 times that of the earlier half, the walk goes on, twice
    as far each time, up to eight times, as long as the rate of all steps is higher for it; the report says where a rate
    rises even then. The model is left exactly as it was.

    Args:
        model: any module that maps a batch to one tensor (B, *outputs).
        inputs, targets: as in `hessdiag.diagnose`: real data, because the rates are for the data they are measured on.
            Of an iterable, two batches are read for each step, as far as there are some; then they take turns. Of less
            than eight, all examples serve at every step for directions and slopes alike: less exact, above all for SGD.
        loss: what the model will be trained with: `"cross-entropy"`, `"mse"`, `"model"`, or a callable
            `(outputs, targets) -> scalar`; by default that of the targets.
        class_dim, output, batch_dim, examples: see `hessdiag.diagnose`.
        optimizers: any of `"sgd"`, `"momentum"` (SGD with momentum 0.9) and `"adam"`.
        steps: virtual steps, and where a rate rises along them, up to eight times as many.
        batch_size: of the training, where inputs are a single batch: so many examples are drawn of it, twice a step.
            Larger batches are less noisy and allow larger rates.
        blocks: patterns of the names of parameters or modules that are trained, the others kept as they are.
        seed: of what is drawn.
        mode: `"train"` for the model as it trains, nothing dropped, or `"eval"`: see `hessdiag.diagnose`.
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
    check_whole("steps", steps, least=1)
    check_whole("batch_size", batch_size, least=1)
    check_kind("optimizers", optimizers or None, (list, tuple), "pass a list, such as ['sgd', 'adam']")
    for name in optimizers:
        check_choice("optimizer", name, tuple(FACTORS))
    settings = Settings(per="batch", mode=mode, class_dim=class_dim, output=output, seed=seed)
    given = batches_for(model, inputs, targets, loss=loss, batch_dim=batch_dim, examples=examples, output=output)
    first = next(given)
    look = None if callable(loss) else partial(first.look, model, "batch")  # a loss may draw, too
    with preserve_state(model, seed=seed, mode=mode, call=look, loss=loss):
        ready = first_call(model, first, given, loss, settings, vectors=True)
        resolved, weight = ready.problem.loss, next(iter(model.parameters()))
        if loss is None and resolved.name == "random-quadratic":  # also of what is one example
            raise HessdiagError("learning rates are of a loss: pass targets, or loss=")
        stream = (_drawing_anew(batch, resolved, ready.y) for batch in ready.stream)
        batches = list(islice(stream, 2 * steps))
        walk = Walk(model, resolved, batches[0], seed=seed, blocks=blocks)
        size, fresh = next(pairs_of(batches, batch_size, seed=seed))[0].size, are_fresh(batches, batch_size)
        walked = walk.steps(pairs_of(batches, batch_size, seed=seed, more=stream))
        with showing(progress, title=f"stepping {type(model).__name__}"):
            rates = walked_rates(optimizers, walked, steps, examples=size)
    return LearningRates(
        rates=rates, model=type(model).__name__, loss=resolved.name, batch_size=size, fresh=fresh, seed=seed,
        device=weight.device.type, dtype=str(weight.dtype).removeprefix("torch."), versions=versions(),
    )  # fmt: skip


def _drawing_anew(batch: Batch, loss: Loss, y: Tensor) -> Batch:
    """A batch whose targets fit, for which the model draws other numbers at every step."""
    loss.check_targets(batch.targets, y)
    return replace(batch, noise=(), noise_at=())


def walked_rates(
    optimizers: Sequence[str], steps: Iterator[tuple[Along, Along]], count: int, *, examples: int
) -> dict[str, LearningRate]:
    """Walk `count` steps, and twice as far while a rate rises along them and is higher for it."""
    walked: list[tuple[Along, Along]] = []
    rates: dict[str, LearningRate] = {}
    rising = list(optimizers)
    for doubling in range(DOUBLINGS + 1):
        announce("virtual steps", count * 2**doubling - len(walked))
        walked += islice(steps, count * 2**doubling - len(walked))
        for name in rising:
            rate, before = _rate(name, walked, examples), rates.get(name)
            stands = before is not None and (rate.value <= before.value or not rate.value > 0)
            rates[name] = replace(before, rises=False) if before is not None and stands else rate
        if not (rising := [name for name in rising if rates[name].rises]):
            break
    return rates


def _rate(optimizer: str, walked: Sequence[tuple[Along, Along]], examples: int) -> LearningRate:
    """The optimiser's rate, from what was measured before each step."""
    factor = FACTORS[optimizer]
    along = [adam if optimizer == "adam" else gradient for gradient, adam in walked]
    rate, stderr = best_constant_rate(along)
    falls, middle = rate > 0 and not rate < stderr, len(along) // 2  # else noise hides whether the loss falls
    halves = [best_constant_rate(half)[0] if half else math.nan for half in (along[:middle], along[middle:])]
    return LearningRate(
        value=factor * rate if falls else math.nan, stderr=factor * stderr if falls else math.nan, examples=examples,
        steps=tuple(factor * each.rate for each in along), halves=(factor * halves[0], factor * halves[1]),
        rises=halves[1] > 0 and halves[1] > RISING * halves[0],
    )  # fmt: skip


def are_fresh(batches: Sequence[Batch], batch_size: int) -> bool:
    """Whether there are enough examples that the batches of a pair share none."""
    return (len(batches) if len(batches) > 1 else batches[0].size // batch_size) >= MIN_BATCHES


def pairs_of(batches: Sequence[Batch], batch_size: int, *, seed: int, more: Iterable[Batch] = ()) -> Iterator[Pair]:
    """Pairs of batches without end: several, and `more`, in turn; of one alone random examples, or all of too few."""
    if not are_fresh(batches, batch_size):
        yield from cycle((each, each) for each in (batches if batches[0].structure else [Batch.concatenate(batches)]))
    if len(batches) > 1:
        turns = cycle(chain(batches, more))
        yield from zip(turns, turns, strict=False)
    (whole,), generator = batches, stream(seed, "examples of virtual steps")
    count = whole.size // (2 * batch_size)
    while True:
        order = torch.randperm(whole.size, generator=generator)[: 2 * batch_size * count]
        for first, second in order.reshape(count, 2, batch_size).tolist():
            yield whole.select(first), whole.select(second)


class AdamDirection:
    """The direction u of `torch.optim.Adam`, W ← W − rate · u: where it takes weights of zero at a rate of 1."""

    def __init__(self, like: Values) -> None:
        self._steps = {name: nn.Parameter(torch.zeros_like(value)) for name, value in like.items()}
        self._optimizer = torch.optim.Adam(self._steps.values(), lr=1.0)

    def __call__(self, gradient: Values) -> Values:
        """Return the direction of the next step, after a batch with this gradient."""
        for name, step in self._steps.items():
            step.detach().zero_()
            step.grad = gradient[name]
        self._optimizer.step()
        return {name: -step.detach() for name, step in self._steps.items()}


@dataclass(frozen=True)
class Along:
    """What was measured along one direction."""

    slope: float  # g·u, of a batch that u does not depend on
    curvature: float  # uᵀGu of the same batch, with G its Gauss-Newton matrix

    @property
    def rate(self) -> float:
        """Where the quadratic model along u is lowest; NaN where it has no minimum."""
        return self.slope / self.curvature if self.curvature > 0 else math.nan


class Walk:
    """Steps on copies of a model's trainable parameters, or of those that `blocks` name; the model stays as it is.
    `batch` is any that the model reads, `seed` that of what the model draws.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, batch: Batch, *, seed: int, blocks: str | Sequence[str] | None = None
    ) -> None:
        self.network, self.seed = FunctionalModel(model), seed
        trained = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
        kept = matching(blocks, list(trained))
        self.start: Values = {name: value for name, value in trained.items() if name in kept}
        few, u = batch.narrow(0, COMPARED), {name: torch.ones_like(value) for name, value in self.start.items()}
        (y, one), (_, other) = (self._pushed(self.start, u, few, 0, forward_mode=mode) for mode in (True, False))
        self.loss = loss.at_once(y, few.targets)
        self.forward_mode = bool((one - other).norm() <= SAME.get(one.dtype, 1e-3) * other.norm())  # differ by no_grad

    def steps(self, pairs: Iterable[Pair]) -> Iterator[tuple[Along, Along]]:
        """Measure along the gradient of the first batch of each pair, and along Adam's direction, on the second."""
        at, adam = self.start, AdamDirection(self.start)
        for number, (stepped, measured) in enumerate(pairs):
            leaves = {name: value.detach().requires_grad_() for name, value in at.items()}
            seed_again(stream(self.seed, f"virtual step {2 * number}").initial_seed())
            gradient = mean_gradient(self.network, self.loss, leaves, stepped)[1]
            u = adam(gradient)
            along, along_adam = (self._along(at, each, measured, 2 * number + 1) for each in (gradient, u))
            advance("virtual steps")
            yield along, along_adam
            if math.isfinite(along_adam.rate) and along_adam.rate > 0:
                at = {name: value - SHARE * along_adam.rate * u[name] for name, value in at.items()}

    def _along(self, at: Values, u: Values, batch: Batch, number: int) -> Along:
        """Slope and curvature along u, of the outputs' own slope and curvature along J u."""
        y, moved = self._pushed(at, u, batch, number, forward_mode=self.forward_mode)  # (B, *out)
        loss = self.loss.of_batch(batch.targets, y)
        slope = loss.gradient(y, batch.targets).detach() * moved
        curvature = loss.hessian_product(y, batch.targets, moved).detach() * moved
        found = Along(*(float(each.sum(dtype=torch.float64)) / batch.size for each in (slope, curvature)))
        unit = torch.randn(y.shape, generator=stream(self.seed, f"unit {number}")).to(y)
        size = float(loss.hessian_product(y, batch.targets, unit).detach().norm() / unit.norm())
        rounding = ROUNDINGS * torch.finfo(y.dtype).eps * size * float(moved.double().square().sum()) / batch.size
        return found if abs(found.curvature) > rounding else replace(found, curvature=0.0)

    def _pushed(self, at: Values, u: Values, batch: Batch, number: int, *, forward_mode: bool) -> tuple[Tensor, Tensor]:
        """Outputs and J u, with dropout that draws alike whenever the same batch is read."""
        seed_again(stream(self.seed, f"virtual step {number}").initial_seed())
        return outputs_and_tangent(self.network, at, u, batch, forward_mode=forward_mode)


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
    slopes, curvatures = zip(*((s * a.slope, s * a.curvature) for s, a in zip(shares, steps, strict=True)), strict=True)
    if not sum(curvatures) > 0:
        return math.nan, math.nan
    rate, count = sum(slopes) / sum(curvatures), len(steps)
    left = sum((slope - rate * curvature) ** 2 for slope, curvature in zip(slopes, curvatures, strict=True))
    return rate, math.sqrt(left * count / (count - 1)) / sum(curvatures) if count > 1 else math.nan
