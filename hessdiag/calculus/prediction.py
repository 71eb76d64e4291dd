"""The scaling calculus offline: ς, γ, ν and moments of every block from shapes and E[W²] alone."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import metadata
from typing import Any

import torch
from torch import nn

from hessdiag.arguments import check_model, check_whole
from hessdiag.calculus.block_prediction import predict_block, uses
from hessdiag.calculus.call import KERNEL, MOMENTS
from hessdiag.calculus.finite_width import gain_variances
from hessdiag.calculus.graph import Graph, trace_graph
from hessdiag.calculus.input_moments import InputMoments, example_inputs
from hessdiag.calculus.propagation import propagate
from hessdiag.calculus.weight_moments import WeightMoments, weight_moments
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import find_blocks
from hessdiag.parallel.progress import Progress, advance, announce, showing
from hessdiag.results.prediction import Prediction

BATCH_SIZE = 64  # of a measurement, where nothing else is said


def predict(
    model: nn.Module,
    inputs: Any,
    *,
    init: str | None = None,
    loss: str = "random-quadratic",
    moments: str = KERNEL,
    batch_size: int = BATCH_SIZE,
    progress: Progress = None,
) -> Prediction:
    """Predict ς, γ, ν and moments of every block from shapes and E[W²], without running the model.

    Second moments go forward and backward through the traced graph by the rules of arXiv 1906.04267 (see
    `hessdiag.calculus.rules.RULES`); the formulas of `hessdiag.scaling` then give ς and γ.

    Args:
        model: any module, also on the meta device; it is traced, never run.
        inputs: shape of one example, such as `(3, 32, 32)`, for inputs N(0, 1); or example inputs as `diagnose` takes
            them, whose second moments are used (on the meta device N(0, 1) is assumed, of token ids that they are
            drawn independently).
        init: a scheme of `hessdiag.init`, as if it had been applied; None for the weights as they are, or PyTorch's
            defaults where they are on the meta device.
        loss: `"random-quadratic"`, `"cross-entropy"` (random labels) or `"mse"` (targets N(0, 1)).
        moments: `"paper"`, its rules and nothing else; or `"kernel"`, also with the mean part of second moments,
            correlations between positions and examples, borders of padding, and the median over initialisations
            instead of the mean.
        batch_size: examples that a measurement would average over; enters the spread alone.
        progress: as in `hessdiag.diagnose`.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be traced.

    >>> prediction = predict(nn.Sequential(nn.Linear(4, 2, bias=False)), (4,), init="fan-in", moments="paper")
    >>> prediction.blocks[0].gamma  # n E[x²]² E[Δy²] / E[y²] = 4 (2 N + 2)
    24.0
    """
    check_model(model)
    if moments not in MOMENTS:
        raise HessdiagError(f"moments {moments!r}: use {' or '.join(MOMENTS)}")
    check_whole("batch_size", batch_size)
    if batch_size < 1:
        raise HessdiagError(f"batch size {batch_size}: ask for at least 1 example")
    args, kwargs, given = example_inputs(model, inputs)
    weights = weight_moments(model, init=init)
    graph = trace_graph(model, args, kwargs)
    with showing(progress, title=f"predicting {type(model).__name__}"):
        settings: dict[str, Any] = {"inputs": given, "loss": loss, "batch_size": batch_size}
        prediction = replace(predict_graph(model, graph, weights, moments=moments, **settings), init=init or "as given")
        if moments == KERNEL:
            return prediction
        # The spread rests on correlations, which the paper's moments do not have.
        finer = predict_graph(model, graph, weights, moments=KERNEL, **settings)
    blocks = tuple(
        replace(block, gamma_low=other.gamma_low, gamma_high=other.gamma_high)
        for block, other in zip(prediction.blocks, finer.blocks, strict=True)
    )
    return replace(prediction, blocks=blocks)


def predict_graph(
    model: nn.Module,
    graph: Graph,
    weights: WeightMoments,
    *,
    inputs: InputMoments,
    loss: str,
    moments: str,
    batch_size: int,
) -> Prediction:
    """Predict as `predict` does, from a graph that is traced and moments that are known already."""
    blocks, skipped = find_blocks(model)
    found = propagate(graph, weights, moments=moments, loss=loss, inputs=inputs)
    variances = gain_variances(found, examples=batch_size)
    applied = uses(found)
    never = len(found.steps)
    ranked = sorted(blocks, key=lambda block: min((use.order for use in applied.get(block.name, [])), default=never))
    predicted = []
    announce("blocks", len(ranked))
    for block in ranked:
        weight_sq = weights.sq.get(block.name, math.nan)
        predicted.append(predict_block(block, applied.get(block.name, []), found, weight_sq, variances, moments))
        advance("blocks")
    return Prediction(
        blocks=tuple(predicted),
        skipped=skipped,
        unsupported=tuple(found.remarks.unsupported),
        notes=tuple(found.remarks.notes),
        output_sq=float(found.output.second_moment.detach()),
        outputs=found.output.sq.numel() // graph.batch,
        model=type(model).__name__,
        init="as given",
        loss=loss,
        moments=moments,
        batch_size=batch_size,
        weights_from=weights.source,
        versions={"hessdiag": metadata.version("hessdiag"), "torch": torch.__version__},
    )
