"""Learning rates before training, along a few virtual steps on copies of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_loss, check_whole
from hessdiag.curvature.settings import Settings
from hessdiag.data.batch import Batch, Inputs
from hessdiag.data.stream import batches_of
from hessdiag.derivatives.losses import Loss, LossFunction, check_targets
from hessdiag.diagnosis.batch_pairs import BatchPairs
from hessdiag.diagnosis.diagnose import TRIED, check_weights, read_loss
from hessdiag.diagnosis.session import check_tensors
from hessdiag.diagnosis.virtual_steps import VirtualStep, Walk, best_constant_rate
from hessdiag.errors import HessdiagError
from hessdiag.execution.progress import Progress, watched
from hessdiag.network.preserve import preserve_state
from hessdiag.results.learning_rates import LearningRate, LearningRates
from hessdiag.suggestions import did_you_mean, few
from hessdiag.torch_arguments import check_model
from hessdiag.user_code.trial import try_model

# Best rate of a sweep over the measured one, in the median of the fitting half of docs/results.md's networks.
FACTORS: Mapping[str, float] = {"sgd": 2.0, "momentum": 0.52, "adam": 0.88}


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
    progress: Progress | bool | None = None,
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
        with watched(progress, title=f"stepping {type(model).__name__}", total=steps) as told:
            walked = [_told(step, told) for step in walk.steps(pairs.draw(steps, seed=seed))]
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


def _told(step: VirtualStep, progress: Callable[..., None]) -> VirtualStep:
    progress("virtual steps")
    return step


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
