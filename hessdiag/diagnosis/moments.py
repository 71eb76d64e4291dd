"""Second moments of activations, gradients and weights: one forward and one backward pass over the batch.

Gradients are those of each example's own loss. Moments are means over elements *and* examples, taken before any γ is
formed. The same pass gives the signals of the network and checks how it is read (`hessdiag.diagnosis.checks`).
"""

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hessdiag.curvature.measurement import Settings
from hessdiag.data.batch import Batch
from hessdiag.data.memory import Sums, sum_over
from hessdiag.data.seeds import gaussians, stream
from hessdiag.derivatives.losses import unit_cotangents
from hessdiag.derivatives.magnitude import largest_entry, sum_of_squares
from hessdiag.derivatives.problem import Problem, check_finite
from hessdiag.diagnosis import checks
from hessdiag.diagnosis.checks import GradientColumn, Squares
from hessdiag.diagnosis.signals import SignalPass
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import block_parameter
from hessdiag.network.trace import LayerCall, Trace, backpropagate, measured_layers
from hessdiag.results.signals import Signals

PASSES = 4  # backward passes for moments, signals and checks, more or less
GRADIENTS, LEAST = 8, 1  # of examples that meet in normalisations, of which each is sent back through the batch
MAX_CURVATURE_PROBES = 4  # per example, where the network has many outputs
EVERY = 4  # chunks, of which one is checked in full
HOOKED = "a hook of its own changes its gradient, which is not that of the loss: remove the hook to measure it"
LAYER_SUMS = 8  # of every layer: see `_call_sums`
CURVATURE_SAMPLES = 1024  # enough for about 2 % noise in gamma_curvature at an effective rank of 4


def sum_moments(
    problem: Problem, settings: Settings, *, chunk: int, mixed: Collection[str] = (), signals: int = 0
) -> tuple[Sums, tuple[Signals | None, str]]:
    """Sum what `moments_of` makes moments of over the examples of a batch; sums of several batches add up. A quick
    measurement has no second cotangents, and no γ from the curvature of the loss. Rows of `mixed` layers are no
    examples. Of the first examples, as many as `signals` says, signals are returned too, or why there are none. Refused
    are losses of examples that depend on others, as with batch normalisation in training mode.
    """
    batch, joined = problem.batch, problem.coupled or problem.loss.couples
    parts = [batch.narrow(0, signals)] if signals else []
    parts += batch.narrow(signals, batch.size).chunks(chunk) if signals < batch.size else ()
    parts = [batch] if joined else parts
    if problem.coupled:
        count = min(batch.size, LEAST if settings.quick else GRADIENTS)
        parts += batch.among_all([batch.size * n // count for n in range(count)]).chunks(1)
        problem = replace(problem, traced=problem.trace(batch, measured_layers(problem.model, problem.blocks)))
    checked = {part.numbers[0] for part in parts[::EVERY]}
    passes: list[SignalPass] = []

    def measure(part: Batch) -> Sums:
        if joined and part.within is None and part.size < batch.size:
            raise HessdiagError("out of memory with a whole batch, which belongs together: use a smaller one")
        first = signals and part.offset == batch.offset and part.within is None
        watched = SignalPass(problem.model, part, balanced=not settings.quick, noted=problem.noted) if first else None
        sums = _sums(problem, part, settings, mixed, watched, checked=part.numbers[0] in checked)
        if any(parameter.grad is not None for parameter in problem.model.parameters()):
            why = "where no gradient can be seen, as reversible blocks do: measure it without"
            raise HessdiagError(f"the model's own backward pass adds to .grad, {why}")
        passes.extend([watched] if watched else [])
        return sums

    sums = sum_over(parts, measure, step="moments", gradients=PASSES * (len(parts) if problem.coupled else 1))
    return sums, (passes[0].signals, passes[0].missing) if passes else (None, "they were not asked for")


def misread_in(problem: Problem, sums: Sums) -> dict[str, str]:
    """Why the Jacobians of some blocks cannot be had in the way that was tried, by name."""
    largest = max((float(sums[f"block {block.name}"][GradientColumn.SCALE]) for block in problem.blocks), default=0.0)
    found = {}
    for block in problem.blocks:
        parameter = block_parameter(problem.model, block)
        why = checks.why_misread(block, sums[f"block {block.name}"], torch.finfo(parameter.dtype).eps, largest)
        found[block.name] = HOOKED if why and parameter._backward_hooks else why
    return {name: why for name, why in found.items() if why}


def _sums(
    problem: Problem, part: Batch, settings: Settings, mixed: Collection[str], watched: SignalPass | None, *,
    checked: bool,
) -> Sums:  # fmt: skip
    """Sums over the examples of a chunk, half of it called alone; if `checked` both, one with a random cotangent."""
    model, loss, blocks, seed = problem.model, problem.loss, problem.blocks, settings.seed
    with ExitStack() as stack:
        if watched is not None:
            stack.enter_context(watched.watching())
        seen = problem.trace(part, measured_layers(model, blocks), keep_outputs=True)
        y, halves, calls = seen.y.detach(), checks.halves_of(part, seed), seen.calls
        check_finite(model, part, y)
        if loss.couples and part.within is not None:  # an example has no loss of its own
            own = torch.randn(y.shape, generator=stream(seed, f"cotangents of examples {part.within}")).to(y)
        else:
            own = loss.gradient(y, part.targets).detach()  # (B, *out)
        checks.finite_gradient(loss, own, y, part.targets)
        ends = [call.output_edge for call in calls]
        starts = [call.input_edge or call.output_edge for call in calls]  # what an embedding reads has no gradient
        parameters = [get_gradient_edge(block_parameter(model, block)) for block in blocks]
        more = [] if watched is None else watched.edges
        found = iter(backpropagate(seen.y, [*starts, *ends, *parameters, *more], own.unsqueeze(0)))
        dx, dout, of_own = ([*islice(found, len(edges))] for edges in (starts, ends, parameters))
        if watched is not None:
            watched.measure(seen.y, [*found], own.unsqueeze(0), loss)
        del found  # gradients of all parameters once more
    squares, sums = cache(sum_of_squares), Sums()  # of tensors that several ask for
    if part.within is None:
        curved = None if settings.quick else _curvature_cotangents(problem, part, y, seed)
        sums = _layer_sums(problem, part, seen, list(zip(dx, dout, strict=True)), curved, squares)
    if part.within is None and settings.per == "batch":
        for block, gradient in zip(blocks, of_own, strict=True):
            flat = torch.zeros(block.numel) if gradient is None else gradient.detach().flatten()
            sums[f"gradient {block.name}"] = flat.double().cpu().numpy()
    if problem.coupled and part.within is None:  # gradients are those of examples within it
        return sums
    sides = halves if checked else halves[:1]
    for half in sides if part.size > (1 if part.offset else 2) else ():  # the first two were told apart
        checks.agrees_alone(model, part, y, half)
    # Autograd's gradient of the loss, of all examples, tells most; a random one of one half what reaches the other.
    cotangents, phis, exact = own.unsqueeze(0), dout, of_own
    again: list[Tensor | None] = [None] * len(ends)
    if checked and not settings.quick:
        z = torch.randn(own.shape, generator=stream(seed, f"check of examples from {part.offset}")).to(own)
        size = largest_entry(own)  # that of the loss's gradient, which is compared with it
        z = checks.only(z * size if size > 0 else z, halves[:1])  # (1, B, *out)
        back = iter(backpropagate(seen.y, [*ends, *parameters], z))
        again, other = [*islice(back, len(ends))], [*back]
        phis = [None if a is None or b is None else torch.cat([a, b]) for a, b in zip(dout, again, strict=True)]
        cotangents, exact = torch.cat([cotangents, z]), _added(of_own, other)
    reached = {c.owner for c, g in zip(calls, again, strict=True) if checks.mixes_rows(c, g, halves[:1])}
    sent = list(zip(calls, phis, strict=True))
    rows = checks.gradients_agree(problem, part, sent, cotangents, exact, {*mixed, *reached}, squares=squares)
    sums |= {f"block {block.name}": np.array(row) for block, row in zip(blocks, rows, strict=True)}
    sums["measured"] = np.array(part.size)
    return sums


def _layer_sums(
    problem: Problem, part: Batch, seen: Trace, around: Sequence[tuple[Tensor | None, Tensor | None]],
    curved: Tensor | None, squares: Squares,
) -> Sums:  # fmt: skip
    """Sums over calls of the layers, with the gradients in their inputs and outputs at hand, and over outputs.
    Cotangents that tell the curvature of the loss are sent back, where there are any.
    """
    y = seen.y.detach()
    sums = Sums({f"layer {owner}": np.zeros(LAYER_SUMS) for owner in measured_layers(problem.model, problem.blocks)})
    ends = [call.output_edge for call in seen.calls]
    sent = [torch.tensor(math.nan)] * len(ends) if curved is None else backpropagate(seen.y, ends, curved)
    for call, gradients, dcurved in zip(seen.calls, around, sent, strict=True):
        if call.input_edge is not None:
            module = problem.model.get_submodule(call.owner)
            sums[f"layer {call.owner}"] += _call_sums(module, call, [*gradients, dcurved], squares)
    sums["outputs"] = np.array([part.size, y.numel(), float(y.double().sum()), sum_of_squares(y)])
    return sums


def _added(one: list[Tensor | None], other: list[Tensor | None]) -> list[Tensor | None]:
    """Sums of gradients, None where there is neither; both lists are emptied, so that few are held at once."""
    found = []
    while one:
        a, b = one.pop(0), other.pop(0)
        found.append(b if a is None else a if b is None else a + b)
    return found


def _call_sums(module: nn.Module, call: LayerCall, gradients: Sequence[Tensor | None], squares: Squares) -> list[float]:
    """One call: elements read and written, sums of squares for `LayerMoments`, whether it does more than multiply."""
    assert call.output is not None
    dx, dout, dcurved = (0.0 if g is None else squares(g) for g in gradients)
    own = [p.detach() for p in module.parameters(recurse=False)]
    multiplies = len(own) == 1 and own[0].numel() == 1 and call.output.shape == call.x.shape
    multiplies = multiplies and torch.allclose(call.output, call.x * own[0])
    x_sq, out_sq = squares(call.x), sum_of_squares(call.output)
    return [call.x.numel(), call.output.numel(), x_sq, dx, out_sq, dout, dcurved, float(not multiplies)]


def _curvature_cotangents(problem: Problem, part: Batch, y: Tensor, seed: int) -> Tensor:
    """S u for every example and directions u, (Q, B, *out), whose sum over Q averages u ~ N(0, 1). All unit vectors
    when there are few outputs; else Gaussian draws, fewer for each the more examples there are.
    """
    wanted = min(-(-CURVATURE_SAMPLES // problem.batch.size), MAX_CURVATURE_PROBES)
    if math.prod(y.shape[1:]) <= 2 * wanted and not problem.loss.couples:
        return problem.loss.hessian_products(y, part.targets, unit_cotangents(y))
    drawn = gaussians(seed, "curvature probes", part.numbers, (wanted, *y.shape[1:])).to(y).div_(math.sqrt(wanted))
    return problem.loss.hessian_products(y, part.targets, drawn)
