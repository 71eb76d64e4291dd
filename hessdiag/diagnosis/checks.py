"""Three checks that a model is what a measurement takes it for, so that no number rests on a layer that was misread.

It gives the same outputs twice (`as_read`). Each example alone gives what it gives in the batch, and its gradient
reaches no other (`examples_apart`); else no matrix of one example's loss exists. The gradient of each block, assembled
from what the hooks saw, is the one that autograd computes (`gradients_agree`). What fails is measured without a
structural rule, skipped with a reason, or refused.

What is kept apart gets exactly zero from the others, so that no tolerance hides a weak mixing. The first few examples
are taken one by one; random halves of every chunk separate any two of its examples with probability 1/2, hence layouts,
which concern them all, as good as surely. Behind a layer that starts at zero every gradient is zero, however the model
mixes examples before it and from wherever it reads a weight: two examples are also run at weights close by.
"""

import copy
import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import IntEnum
from itertools import compress, islice, product
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.arguments import is_finite, one_line
from hessdiag.data.batch import Batch, Layout
from hessdiag.data.memory import is_out_of_memory
from hessdiag.data.seeds import stream
from hessdiag.derivatives.backward import jacobians_of, rule_fits
from hessdiag.derivatives.jacobians import Jacobian
from hessdiag.derivatives.losses import Loss
from hessdiag.derivatives.magnitude import largest_entry, sum_of_squares
from hessdiag.derivatives.problem import Problem, check_finite
from hessdiag.diagnosis.network_view import LEVEL
from hessdiag.diagnosis.roles import Graph, mixing_views, passes_unchanged, shapes_of
from hessdiag.errors import REFUSALS, CoupledError, HessdiagError
from hessdiag.network.blocks import Block, parameter_slots
from hessdiag.network.preserve import caches_of, emptied
from hessdiag.network.torch_state import fixed_statistics
from hessdiag.network.trace import (
    BackwardError,
    LayerCall,
    Trace,
    attributes_of,
    backpropagate,
    first_broken,
    leaves_of,
    looked_up_in_common,
    measured_layers,
    parents_of,
    trace,
    walk,
)
from hessdiag.results.signals import FIXED

FEW, MORE = 4, 8  # examples of which all pairs are told apart, and where a part of the inputs of few does not arrive
SAME = {torch.float32: 3e-4, torch.float64: 1e-6}  # outputs of one example, in different batches; float32 may be inside
REPEATED = 1e-4  # outputs of the same examples, in another pass: relative to each of them
STEP, FAR = 0.1, 2.0  # to weights close by, relative to their size; to others
CHAOS = 0.1  # change of most outputs by one rounding of the weights, where gradients say nothing; XNOR-Net: 0.07
CHAOTIC = 10.0  # times what one rounding of the weights changes the outputs: no more than rounding
LOWER_PRECISION = 1e-8  # squared error of what a model in float64 computes in float32
CHANGED = 0.01  # of the largest output
RANDOM, MOST, UNRELATED = 64, 2**22, 0.25  # numbers; their mean over the deviation, and correlation: two to four errors
LEVELS, TOLD, SLIGHT = 8, 0.9, 1e-3  # examples, and numbers of one; a correlation; of what outputs differ by
ROUNDED, FAR_LESS = 1e-4, 1e-3  # of the largest gradient; of one in single precision
MANY = 0.2  # of the rows or columns of a matrix
LONG, UNTOLD = 8, 1e-3  # positions; of what outputs differ by, which is more than rounding
READ_ELSEWHERE = "its gradient is not the one that is found by replacing it where modules hold it:"
READ_ELSEWHERE += " the model also reads it from somewhere else, such as a list or a view of it"


Watched = tuple[Trace, list[GradientEdge]]  # a pass, and where gradients arrive at the inputs
Gradients = Mapping[str, Tensor | None]  # by name of the parameter
Squares = Callable[[Tensor], float]  # Σ v²


def as_read(problem: Problem, few: Batch, seed: int, *, before: Tensor, nearby: bool) -> tuple[Problem, set[str]]:
    """Check the model on a few examples: the problem with its blocks as they can be read, and the layers that mix rows.
    `before` are outputs of an earlier pass. `nearby`, at other weights, too: a second derivative is of these.
    """
    model, blocks = problem.model, problem.blocks
    before = before if len(before) == few.size else call_alone(model, few).detach()
    check_finite(model, few, before)
    try:
        mixed, unseen, view = _again(model, few, blocks, before, seed)
    except REFUSALS:
        if not any(b.looked_up and b.structured for b in blocks):
            raise
        blocks = [replace(b, structured=b.structured and not b.looked_up) for b in blocks]  # looked up for all at once
        problem = problem.read_as(blocks)
        mixed, unseen, view = _again(model, few, blocks, call_alone(model, few).detach(), seed)
    if unseen and problem.batch.size > few.size:  # a few may be shorter than others
        more = problem.batch.narrow(0, MORE)
        _, unseen, _ = examples_apart(model, more, blocks, watch(model, more, blocks), seed=seed)
    problem = replace(problem, noted={"unseen": unseen, "poured": view})
    tables = [block for block in problem.blocks if block.looked_up and block.structured]
    elsewhere = apart_nearby(model, few.narrow(0, 2), tables, seed=seed) if nearby else set()
    left = {block.name: READ_ELSEWHERE for block in problem.blocks if block.name in elsewhere}
    return problem.without(left), mixed


# The model gives the same outputs twice.


def _again(
    model: nn.Module, few: Batch, blocks: Sequence[Block], before: Tensor, seed: int
) -> tuple[set[str], tuple[str, ...], str]:
    """As `examples_apart`, of examples with these outputs `before`, refusing others; and a view that mixes axes."""
    watched = watch(model, few, blocks)
    if not _repeats(watched[0].y.detach(), before) and not _repeats(few.call(model).detach(), before):
        why = "a layer draws random numbers and is no dropout, or keeps a state; leave that out, or pass mode='eval'"
        why += " (--eval) if it does so in training"
        registered = set(map(id, model.parameters()))
        made = (p for p in leaves_of(watched[0].y.grad_fn) if isinstance(p, nn.Parameter) and id(p) not in registered)
        for p in made:
            why = f"a parameter of shape {tuple(p.shape)} is made anew in each: make its layer in `__init__`"
        raise HessdiagError(f"two forward passes of the same batch differ: {why}")
    return (*examples_apart(model, few, blocks, watched, seed=seed)[:2], poured(*watched, few.size))


def varies(values: Tensor) -> bool:
    """Whether examples differ."""
    return values.dim() > 0 and bool((values != values[:1]).any())


def alike(y: Tensor) -> bool:
    """Whether outputs (B, *out) are the same for all examples, as of zero weights, so that no mixing of these shows."""
    return len(y) > 1 and not varies(y)


def _repeats(again: Tensor, y: Tensor) -> bool:
    return again.shape == y.shape and torch.allclose(again, y, rtol=REPEATED, atol=0)


def _largest(y: Tensor) -> float:
    return float(y.flatten(1).norm(dim=1).max())


def finite_gradient(loss: Loss, gradient: Tensor, y: Tensor, targets: Tensor | None) -> None:
    """Check that the gradient in the outputs, which the loss has at y, is finite."""
    if not is_finite(gradient):
        why = first_broken(lambda: loss.gradient(y, targets))
        raise HessdiagError(f"the loss {loss.name!r} is finite, its gradient in the outputs NaN or infinite: {why}")


# Each example alone gives what it gives in the batch.


def watch(model: nn.Module, few: Batch, blocks: Sequence[Block], *, to_inputs: bool = True) -> Watched:
    """Run a few examples forward with the layers of the blocks traced; and where gradients arrive at the inputs."""
    part, _, inputs = differentiable(few) if to_inputs else (replace(few, targets=None), [], [])
    return trace(model, part, measured_layers(model, blocks), in_common=looked_up_in_common(blocks)), inputs


def examples_apart(
    model: nn.Module, few: Batch, blocks: Sequence[Block], watched: Watched, *, seed: int,
    elsewhere: Sequence[Tensor] = (),
) -> tuple[set[str], tuple[str, ...], list[bool]]:  # fmt: skip
    """Check all pairs of a few examples.

    Returns:
        The layers whose rows are not those of one example after the other: one runs over time, windows or a table;
        where the model keeps examples apart nevertheless, it is measured without a rule. Besides, what of the inputs
        reaches no output, see `Problem`; and whether gradients reach tensors that are held `elsewhere`.
    """
    (seen, inputs), several = watched, few.size > 1
    y, sides = seen.y.detach(), torch.eye(few.size, dtype=torch.bool)
    z = torch.randn(y.shape, generator=stream(seed, "pairs of examples")).to(y)
    for side in sides if several else ():
        agrees_alone(model, few, y, side)
    edges = [*inputs, *(call.output_edge for call in seen.calls)] if several else []
    try:
        rows = iter(backpropagate(seen.y, [*map(get_gradient_edge, elsewhere), *edges], only(z, sides)))
    except BackwardError:
        if not inputs:  # the model may write to what their gradients need
            raise
        watched = watch(model, few, blocks, to_inputs=False)
        return examples_apart(model, few, blocks, watched, seed=seed, elsewhere=elsewhere)
    reached = [gradient is not None for gradient in islice(rows, len(elsewhere))]
    found = list(rows)
    if any(reaches_others(gradient, sides) for gradient in found[: len(inputs)]):
        if any(g is not None and bool(g.any()) for g in backpropagate(seen.y, inputs, torch.zeros_like(z)[None])):
            what = "a backward pass of the model's own gives gradients where none arrive"
            raise HessdiagError(f"{what}: multiply by grad_output, or return it, in torch.autograd.Function.backward")
        raise mixing()
    calls = seen.calls if several else ()
    mixed = {c.owner for c, g in zip(calls, found[len(inputs) :], strict=True) if mixes_rows(c, g, sides)}
    floats = [value for value in replace(few, targets=None).leaves if value.is_floating_point()] if inputs else []
    hidden = few.targets if few.targets is not None else y  # of what is to be guessed a part may be held back
    read = [("" if torch.equal(v, hidden) else "the inputs", v) for v in floats]
    read += [(c.owner if c.input_edge is None and not c.x.is_floating_point() else "", c.x) for c in calls]
    masks = [v for v in few.leaves if v.dim() == 2 and (not v.is_floating_point() or torch.equal(v, v.round()))]

    def counts(value: Tensor, left: Tensor) -> bool:
        """Whether outputs change with what is `left` of an input: indices among floats, or read without gradients."""
        left = left.to(value.device)
        other = torch.where(left, value.flip(0), value)
        changed = few.with_leaves([other if v is value else v for v in few.leaves])
        whole = isinstance(few.output, Layout) or bool(left.all()) or torch.equal(other[left], other[left].round())
        return whole and not torch.equal(changed.call(model), y)

    arrived = [(name, v, _arrives(g, v)) for (name, v), g in zip(read, found, strict=False)]
    some = any(bool(there.any()) for name, _, there in arrived if name)
    told = ((name, v, _left_unseen(name, v, there, masks, some=some)) for name, v, there in arrived)
    unseen = (which for name, v, (which, left) in told if name and which and (len(which) > 1 or not counts(v, left)))
    return mixed, next(unseen, ()), reached


def _arrives(gradient: Tensor | None, like: Tensor) -> Tensor:
    """Where gradients (Q, *shape, or *shape and what is looked up there) are not all zero."""
    if gradient is None or not like.numel() or gradient[0].numel() % like.numel():
        return torch.ones_like(like, dtype=torch.bool, device="cpu")
    return (gradient != 0).any(0).cpu().reshape(*like.shape, -1).any(-1)


def _left_unseen(
    name: str, values: Tensor, arrived: Tensor, masks: Sequence[Tensor], *, some: bool
) -> tuple[tuple[str, ...], Tensor]:
    """The first or last half, or more, of a dimension from which nothing reaches the outputs, and which varies, or all
    if `some` other inputs do; and where that is, like `values`. What `masks` (B, T) have one number for is padding.
    """
    if some and name == "the inputs" and not arrived.any() and varies(values):
        return (f"the input of shape ({', '.join(['B', *map(str, values.shape[1:])])})",), ~arrived
    for dim in range(1, values.dim()):
        there = arrived.movedim(dim, 0).flatten(1).any(1)
        size, count = len(there), int(there.sum())
        if size > 2 and 0 < count <= size // 2 and (there[:count].all() or there[-count:].all()):
            left = values.movedim(dim, 0)[~there.to(values.device)]
            first, last = (count, size - 1) if there[0] else (0, size - count - 1)
            fit = [m for m in masks if dim == 1 and m.shape[1] == size]
            hidden = [m[:, ~there] for m in fit if bool((m[:, there] != m[0, ~there][0]).any())]
            if not any(bool((each == each.flatten()[0]).all()) for each in [left, *hidden]):  # no padding
                which = f"positions {first} to {last} of {size} in dimension {dim} of {name}"
                told = (which,) if name == "the inputs" else (which, name)
                return told, ~there.view(-1, *[1] * (values.dim() - dim - 1)).expand(values.shape)
    return (), arrived


def poured(seen: Trace, inputs: Sequence[GradientEdge], examples: int) -> str:
    """Shapes of a view of the inputs that mixes axes, as of (B, H, W, C) as (B, C, H, W); nothing where there is none.
    What is a view of them was never written by a layer, so that the graph of the signals does not hold it.
    """
    leaves = {edge.node for edge in inputs}
    with suppress(Exception):  # of an operation of the user's
        for view in mixing_views(Graph(seen.y.grad_fn, (), ()), examples) if leaves else ():
            way = [*walk(view, parents_of)]
            if leaves & {*way} and all(passes_unchanged(node) or hasattr(node, "variable") for node in way):
                return shapes_of(view)
    return ""


def agrees_alone(model: nn.Module, part: Batch, y: Tensor, side: Tensor) -> None:
    """Check that the examples on one side, (B,) booleans, give the outputs y (B, *out) also without the others."""
    chosen = side.nonzero().flatten().tolist()
    alone = call_alone(model, part.select(chosen)).detach()
    if alone.shape != y[chosen].shape:
        raise mixing()
    if not (off := _largest(alone - y[chosen])) <= SAME[y.dtype] * _largest(y):
        rounding = torch.zeros_like(y)  # what one rounding of the weights changes: few examples, where it turns a sign
        with suppress(*REFUSALS), torch.no_grad(), moved(model, 0, torch.finfo(y.dtype).eps, least=0.0):
            rounding = (part.call(model) - y).abs()
        if float(rounding.median()) > CHAOS * float(y.abs().median()):
            what = "the model is chaotic: one rounding of its weights changes all outputs, so that gradients are noise"
            raise HessdiagError(f"{what}; draw the weights smaller, above all recurrent ones (nn.init.orthogonal_)")
        if not off <= CHAOTIC * float(rounding.max()):
            raise mixing()


def where_mixed(problem: Problem, few: Batch, seed: int) -> dict[str, Any]:
    """Fields of `Signals`: the layer behind which examples meet, or nothing, and whether it matters in which order they
    come; whether all have other outputs when alone; and whether their places matter, and not what the others are.
    """
    seen, _ = watch(problem.model, few, problem.blocks, to_inputs=False)
    sides, y = torch.eye(few.size, dtype=torch.bool), seen.y.detach()
    z = only(torch.randn(y.shape, generator=stream(seed, "pairs of examples")).to(y), sides)
    found = backpropagate(seen.y, [call.output_edge for call in seen.calls], z)
    back, turned = [*range(few.size)][::-1], y
    with suppress(HessdiagError):  # it wants them sorted
        turned = call_alone(problem.model, few.select(back)).detach()[back]
    ordered = _largest(turned - y) > SAME[y.dtype] * _largest(y)
    sizes = [c.output_shape[0] / few.size for c in seen.calls]  # more rows may be positions ahead of examples
    told = [size == 1 or (ordered and size.is_integer()) for size in sizes]
    reached = [c.owner for c, g in compress(zip(seen.calls, found, strict=True), told) if reaches_others(g, sides)]
    all_change = by_place = False
    with suppress(*REFUSALS), fixed_statistics(), torch.no_grad():  # it wants several
        together, each = call_alone(problem.model, few), (few.select([n]) for n in range(few.size))
        apart = (torch.cat([call_alone(problem.model, one) for one in each]) - together).abs()
        all_change = bool((apart.flatten(1).amax(1) > CHANGED * together.abs().max()).all())
        ends = ([1, *range(1, few.size)], slice(1, None)), ([*range(few.size - 1), 0], slice(-1))  # another one there
        off = max(_largest((call_alone(problem.model, few.select(rows)) - together)[kept]) for rows, kept in ends)
        by_place = ordered and off <= SAME[y.dtype] * _largest(y)
    return {"meeting": (next(reversed(reached), ""), ordered), "all_change": all_change, "by_place": by_place}


def halves_of(part: Batch, seed: int) -> Tensor:
    """A random half of the examples, or the only one, and the others, as (2, B) booleans."""
    order = torch.randperm(part.size, generator=stream(seed, f"halves of examples from {part.offset}"))
    half = order < max(1, part.size // 2)
    return torch.stack([half, ~half])


def only(cotangent: Tensor, sides: Tensor) -> Tensor:
    """A cotangent (B, *out) of the examples on some sides, (Q, B) booleans, and zero of the others, as (Q, B, *out)."""
    return cotangent * sides.to(cotangent).view(*sides.shape, *[1] * (cotangent.dim() - 1))


def reaches_others(gradient: Tensor | None, sides: Tensor) -> bool:
    """Whether what was sent back from examples on some sides, (Q, rows, ...), reached rows of others."""
    if gradient is None:
        return False
    strays = gradient.reshape(*sides.shape, -1)[~sides.to(gradient.device)]
    return bool(((strays != 0) & ~strays.isnan()).any())


def mixes_rows(call: LayerCall, gradient: Tensor | None, sides: Tensor) -> bool:
    """Whether the rows of a layer's output are not equally many of one example after the other. The gradients in it,
    (Q, *shape), were sent back from the examples on some sides, (Q, B) booleans.
    """
    shapes = (call.output_shape,) if call.input_edge is None else (call.output_shape, call.x.shape)
    if any(len(shape) < 2 or shape[0] == 0 or shape[0] % sides.shape[1] for shape in shapes):  # (F,) is one row
        return True
    return reaches_others(gradient, sides)


def differentiable(part: Batch) -> tuple[Batch, list[Tensor], list[GradientEdge]]:
    """The batch with copies of its floating-point tensors that gradients flow to; these; and where they arrive."""

    def copied(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        leaf = value if value.requires_grad else value.detach().requires_grad_()  # the user's own, for a loss's sake
        return leaf.clone()  # no leaf: the model may write to it

    copy = replace(part, targets=None).map(copied)
    floats = [value for value in copy.leaves if value.is_floating_point()]
    return copy, floats, [*map(get_gradient_edge, floats)]


def call_alone(model: nn.Module, part: Batch) -> Tensor:
    """Outputs of some examples, without the rest of the batch; refused is a model that does not run without."""
    try:
        return part.call(model)
    except REFUSALS as error:
        if isinstance(error, HessdiagError) or is_out_of_memory(error):
            raise
        why = f"cannot be run: the model needs the rest of the batch ({one_line(error)}); keep examples apart"
        if part.size > 1:
            raise HessdiagError(f"{part.size} of the examples on their own {why}") from error
        raise CoupledError(f"an example on its own {why}, and take .squeeze(-1) in place of .squeeze()") from error


def mixing() -> HessdiagError:
    """The refusal of a model that mixes examples, with what to do about it."""
    return CoupledError(
        "an example on its own gives other outputs than in the batch: the model runs over the first dimension (a layer"
        " without batch_first=True, a sum over it, a view with positions ahead of examples), uses statistics of the"
        " batch other than those of torch's batch normalisation, branches on its values, or updates itself; keep them"
        ' apart, or pass mode="eval" (--eval) where it does so in training alone'
    )


# The same at weights close by.


def apart_nearby(model: nn.Module, few: Batch, tables: Sequence[Block], *, seed: int) -> set[str]:
    """Check that examples are kept apart at weights close by, and return names of parameters that are read elsewhere.
    Modules hold other tensors in the parameters' places: a gradient that reaches the parameter itself took another way.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
    with moved(model, seed):
        try:
            watched = watch(model, few, tables)
        except REFUSALS:
            return set()
        y = watched[0].y
        if not y.requires_grad or not is_finite(y):  # some models do not run at all weights
            return set()
        *_, reached = examples_apart(model, few, tables, watched, seed=seed, elsewhere=[*named.values()])
    return set(compress(named, reached))


@contextmanager
def moved(model: nn.Module, seed: int, step: float = STEP, *, least: float = 1.0) -> Iterator[None]:
    """Hold others in place of the parameters, a step away, of their size or `least` times that of an initialisation."""
    generator, others = stream(seed, "weights close by"), {}
    for name, weight in model.named_parameters():
        if weight.requires_grad and weight.is_floating_point() and not nn.parameter.is_lazy(weight):
            w = weight.detach()
            reads = w[:1].numel() if w.dim() > 1 else 1
            size = max(float(w.square().mean().sqrt()), least * reads**-0.5) if w.numel() else 0.0
            direction = size * torch.randn(w.shape, generator=generator, dtype=w.dtype).to(w)
            others[name] = nn.Parameter(w + step * direction)
    with holding(model, others):
        yield


def level_left_out(model: nn.Module, part: Batch, y: Tensor, loss: Loss) -> float:
    """The share of a loss that outputs (B, *out) moved to the mean of each example's targets would take away, where
    they stay as they are when examples exchange the means of inputs, which tell it; else 0.
    """
    targets, at = part.targets, y.detach()
    several = targets is not None and targets.is_floating_point() and min(len(at), at[0].numel()) >= LEVELS
    if targets is None or not several or targets.numel() != at.numel():
        return 0.0
    with suppress(*REFUSALS):  # of a loss or a model that takes no such numbers
        level, now = _means(targets).to(at), float(loss.of_all(at, targets).detach())
        gain = 1 - float(loss.of_all(_with_means(at, level), targets).detach()) / now
        if gain > LEVEL and bool((at < 0).any()) and _on_one_level(at):  # no shares
            with moved(model, 0):  # whatever the weights are
                return gain if _on_one_level(part.call(model).detach()) else 0.0
        for x in part.leaves[:-1] if gain > LEVEL else ():
            if x.is_floating_point() and len(x) == len(at) and x[0].numel() >= LEVELS:
                means = _means(x)
                tells = float(torch.corrcoef(torch.stack([means.to(level), level]))[0, 1]) > TOLD
                other = part.with_leaves([_with_means(x, means.flip(0)) if v is x else v for v in part.leaves])
                if tells and _largest(other.call(model).detach() - at) < SLIGHT * _largest(at.flip(0) - at):
                    return gain
    return 0.0


def _on_one_level(y: Tensor) -> bool:
    """Whether the outputs of all examples have the same mean, and are not the same."""
    return float(_means(y).max() - _means(y).min()) < SLIGHT * _largest(y.flip(0) - y) / math.sqrt(y[0].numel())


def _means(values: Tensor) -> Tensor:
    return values.detach().flatten(1).mean(1)


def _with_means(values: Tensor, means: Tensor) -> Tensor:
    return values + (means - _means(values)).view(-1, *[1] * (values.dim() - 1))


@contextmanager
def holding(model: nn.Module, others: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Hold other parameters in place of some of the model's, by name."""
    slots = parameter_slots(model)
    places = [(model.get_submodule(path)._parameters, a, p) for name, p in others.items() for path, a in slots[name]]
    held = [parameters[attribute] for parameters, attribute, _ in places]
    try:
        with emptied(caches_of(model)):
            for parameters, attribute, other in places:
                parameters[attribute] = other
            yield
    finally:
        for (parameters, attribute, _), parameter in zip(places, held, strict=True):
            parameters[attribute] = parameter


def fixed_weights(model: nn.Module, part: Batch) -> tuple[str, ...]:
    """Random matrices that modules keep, neither as parameters nor as buffers, and that the outputs depend on."""
    kept = [each for each in attributes_of(model) if isinstance(each[2], Tensor) and _is_noise(each[2])]
    known, found = {p.data_ptr() for p in (*model.parameters(), *model.buffers()) if kept}, list[str]()
    for path, name, value in (each for each in kept if each[2].data_ptr() not in known):
        held, few = vars(model.get_submodule(path)), part.narrow(0, 2)
        with suppress(*REFUSALS), fixed_statistics(), torch.no_grad():
            y = few.call(model)
            try:
                held[name] = value.flip(0)
                found += [f"{path}.{name}{FIXED}".lstrip(".")] * (not torch.equal(few.call(model), y))
            finally:
                held[name] = value
    return tuple(found)


def _is_noise(value: Tensor) -> bool:
    """Whether a matrix is random, as far as its mean and what neighbours have in common tell, and no table."""
    if value.requires_grad or not value.is_floating_point() or value.dim() < 2 or not RANDOM <= value.numel() < MOST:
        return False  # more of them may be a buffer of experience
    with suppress(*REFUSALS):  # of a layout without such operations
        rows = value.flatten(1)
        ways = [torch.stack([each.flatten()[1:], each.flatten()[:-1]]) for each in (rows, rows.T)]
        shared = [value.mean() / value.std(), *(torch.corrcoef(way)[0, 1] for way in ways)]
        return all(abs(float(each)) < UNRELATED for each in shared) and len(torch.unique(value)) == value.numel()
    return False


# Each block's gradient is autograd's.


class GradientColumn(IntEnum):
    """Columns of the sums that are kept of every block: of its gradient, and of how it was read."""

    SQ = 0  # of each example's own gradient of the loss
    MISMATCH = 1  # squared, between the gradient that was assembled and autograd's, of the loss and a random cotangent
    SCALE = 2  # autograd's, squared
    TERMS = 3  # each site's own: what rounding is relative to where a sum over sites cancels
    MIXED = 4  # calls whose rows are not those of one example after the other, or whose shapes no rule has
    CHUNKS = 5
    ROWS = 6  # rows of an example in each of the layers' calls, as one number
    ROWS_SQ = 7


def gradients_agree(
    problem: Problem, part: Batch, sent: Sequence[tuple[LayerCall, Tensor | None]], cotangents: Tensor,
    exact: Sequence[Tensor | None], mixed: Collection[str], *, squares: Squares,
) -> list[list[float]]:  # fmt: skip
    """Compare gradients that are assembled from what the hooks saw with autograd's: a `GradientColumn` row a block.
    `sent` has each call with the (C, *output shape) gradients in its output, or None, of `cotangents` (C, B, *out): the
    loss's gradient, and perhaps a random one. By block, `exact` is autograd's gradient of all together, or None.
    """
    model, blocks = problem.model, problem.blocks
    own = {b.name: [(c, phi) for c, phi in sent if c.owner in b.owners] for b in blocks}
    unfit = {b.name for b in blocks if b.structured and not _fits(model, b, [c for c, _ in own[b.name]], mixed)}
    read = [b for b in blocks if b.name not in unfit]
    found = jacobians_of(model, part, read, [c for c, _ in sent], [phi for _, phi in sent], cotangents)
    rows = []
    for block, truth in zip(blocks, exact, strict=True):
        row = [0.0] * len(GradientColumn)
        if block.name in unfit:
            row[GradientColumn.MIXED] = 1.0
        else:
            row[: GradientColumn.TERMS] = _compared(next(found), truth)
        if block.structured:
            terms = (_terms(block, c, phi, squares) for c, phi in own[block.name] if phi is not None)
            row[GradientColumn.TERMS] = sum(terms)
            pattern = sum((k + 1) * c.output_shape[:1].numel() / part.size for k, (c, _) in enumerate(own[block.name]))
            row[GradientColumn.CHUNKS :] = [1.0, pattern, pattern**2]
        rows.append(row)
    return rows


def _fits(model: nn.Module, block: Block, calls: Sequence[LayerCall], mixed: Collection[str]) -> bool:
    """Whether the block's rule can be applied to the calls of its layers."""
    if any(owner in mixed for owner in block.owners):
        return False
    return block.kind == "scalar" or all(rule_fits(model.get_submodule(call.owner), block, call) for call in calls)


def _terms(block: Block, call: LayerCall, phi: Tensor, squares: Squares) -> float:
    """Σ ‖φ_t‖² ‖u_t‖² over the sites of a call, with the mean of ‖u_t‖² for each."""
    read = 1.0
    if block.kind != "bias" and call.input_edge is not None:
        read = squares(call.x) / max(call.x.numel(), 1) * block.fan_in
    if block.kind == "weight" and call.x.dim() > 1 and block.kernel:
        read *= math.prod(block.kernel)
    return squares(phi) * read


def _compared(found: Jacobian | None, exact: Tensor | None) -> list[float]:
    """The first columns: of the loss's gradient Σ_b ‖g_b‖², of both together ‖difference‖² and ‖autograd's‖²."""
    size = 0.0 if exact is None else sum_of_squares(exact)
    if found is None:
        return [0.0, size, size]
    square = float(found.of_cotangents(0, 1).gram().sum(dtype=torch.float64))
    total = found.total()  # (P,)
    if exact is None:
        size = sum_of_squares(total)
        return [square, size, size]
    return [square, sum_of_squares(total.sub_(exact.flatten())), size]


def why_misread(block: Block, row: npt.NDArray[Any], eps: float, largest: float) -> str:
    """Why a block was not read right, as a clause; empty where it was. Its gradient may differ from autograd's by
    rounding: relative to its own size; where a sum over sites cancels, as that of an attention's key bias does, to the
    size of the terms; of a block that is differentiated as it is, to the `largest` of all, as one that is zero is not.
    """
    where = f"{block.layer} {block.owners[0]!r}"
    chunks, rows, rows_sq = row[GradientColumn.CHUNKS :]
    if row[GradientColumn.MIXED] or chunks * rows_sq > rows**2 * (1 + 1e-9):
        return f"what {where} reads and writes is not a fixed number of rows for each example, as its class has it"
    if not math.isfinite(row[GradientColumn.SCALE]):
        return "its gradient is NaN or infinite"
    rounding = 1e4 * eps**2  # squared, of a sum, relative to the squares of its terms
    same, terms = (eps, row[GradientColumn.TERMS]) if block.structured else (max(eps, LOWER_PRECISION), largest)
    if row[GradientColumn.MISMATCH] <= same * row[GradientColumn.SCALE] + rounding * terms:  # false for NaN
        return ""
    return f"its gradient is not what {where} sees in its forward call" if block.structured else READ_ELSEWHERE


def summed_gradients(model: nn.Module, part: Batch, loss: Loss, names: Container[str]) -> Gradients:
    """Gradients of the batch's summed loss in some parameters."""
    y, held = part.call(model), {name: p for name, p in model.named_parameters() if name in names and p.requires_grad}
    own = loss.gradient(y.detach(), part.targets).unsqueeze(0)
    found = backpropagate(y, [get_gradient_edge(p) for p in held.values()], own)
    return {name: None if g is None else g[0] for name, g in zip(held, found, strict=True)}


def without_rounding(
    model: nn.Module, part: Batch, loss: Loss, found: Gradients, ends: Collection[str] = ()
) -> tuple[Gradients, dict[str, float]]:
    """Gradients in which rows and columns of matrices get zero for what is rounding alone, far less in double
    precision; and of each matrix that has many such the share of these. Layers at the `ends` may have unseen classes.
    """
    some = {name: g for name, g in found.items() if g is not None}
    tiny = ROUNDED * max(map(largest_entry, some.values()), default=0.0)
    inner = {name: g for name, g in some.items() if name.rpartition(".")[0] not in ends or largest_entry(g) < tiny}
    sizes = {name: _along(g) for name, g in inner.items() if g.dim() > 1 and g[:1].numel() > 1}
    small = {o for o, each in sizes.items() if any(((n > 0) & (n < tiny)).double().mean() > MANY for n in each)}
    shares = dict[str, float]()
    with suppress(Exception):  # a model that is no other in double precision
        part = part.map(lambda value: value.double() if value.is_floating_point() else value, common=True)
        exact = summed_gradients(copy.deepcopy(model).double(), part, loss, small) if small else {}
        for name, g in exact.items():
            now = _along(torch.zeros_like(some[name]) if g is None else g)
            off = [(n > 0) & (size < FAR_LESS * part.size * n) for n, size in zip(sizes[name], now, strict=True)]
            kept = ~(off[0].unsqueeze(1) | off[1]).view(*some[name].shape[:2], *[1] * (some[name].dim() - 2))
            some[name], shares[name] = some[name] * kept, max(float(each.double().mean()) for each in off)
    return {**found, **some}, {name: share for name, share in shares.items() if share > MANY}


def _along(g: Tensor) -> list[Tensor]:
    """Largest entries of the rows, and of the columns, of a gradient."""
    size, others = g.abs(), range(2, g.dim())
    return [size.amax((1, *others)), size.amax((0, *others))]


def holds(x: Tensor, part: Tensor) -> bool:
    """Whether some of the columns of x (..., C) are those of another tensor, as they are."""
    n, apart = part.shape[-1] if part.dim() else 0, part.dim() != x.dim() or part.shape[:-1] != x.shape[:-1]
    if apart or x.dim() < 2 or not 0 < n < x.shape[-1] or not x.numel() or part.is_sparse:
        return False
    first = (x.flatten(0, -2)[0].unfold(0, n, 1) == part.flatten(0, -2)[0]).all(-1)
    return any(torch.equal(x[..., k : k + n], part) for k in first.nonzero().flatten().tolist())


def orderless(model: nn.Module, part: Batch, y: Tensor) -> bool:
    """Whether outputs (B, C) of pictures (B, C, H, W) stay as they are when two quarters of these change places."""
    few = part.narrow(0, 2)
    pictures = [v for v in replace(few, targets=None).leaves if v.dim() == 4 and v.is_floating_point()]
    if y.dim() != 2 or len(pictures) != 1 or min(pictures[0].shape[2:]) < LONG or isinstance(part.output, Layout):
        return False
    (one, *_), (h, w) = pictures, (size // 2 for size in pictures[0].shape[2:])
    other = one.clone()
    other[..., :h, :w], other[..., h : 2 * h, w : 2 * w] = one[..., h : 2 * h, w : 2 * w], one[..., :h, :w]
    turned = few.with_leaves([other if v is one else v for v in few.leaves])

    def alike_at(step: float) -> bool:
        with moved(model, 0, step):
            now, then = few.call(model), turned.call(model)
        apart = float((now - now[:1]).abs().max())
        return apart > UNTOLD * float(now.abs().max()) and float((now - then).abs().max()) < UNTOLD * apart

    with suppress(*REFUSALS), fixed_statistics(), torch.no_grad():
        return alike_at(STEP) and alike_at(FAR)  # positions may start at zero, and attention at equal shares
    return False


def looks_ahead(model: nn.Module, part: Batch) -> tuple[str, ...]:
    """What outputs (B, T, ...) or (B, C, T) do not depend on where each sees inputs of its position and later alone."""
    few, *inputs = differentiable(part.narrow(0, 2))
    rows = [(value, edge) for value, edge in zip(*inputs, strict=True) if value.dim() == 3]
    with suppress(*REFUSALS), fixed_statistics():
        y = few.call(model) if rows else torch.empty(0)
        for (value, edge), dim in product(rows, (1, 2)):
            if y.dim() == 3 and LONG <= y.shape[dim] == value.shape[dim]:
                middle, reached = y.shape[dim] // 2, sent_to(y, dim, edge, dim).any(1).nonzero()
                if len(reached) > 1 and int(reached[0]) >= middle:
                    return ("inputs before their own positions",)
    return ()


def sent_to(y: Tensor, dim: int, edge: GradientEdge, axis: int) -> Tensor:
    """The gradients (places, ...) along an axis of what has this edge of outputs y in the middle of a dimension."""
    sent = torch.zeros_like(y).index_fill(dim, torch.tensor(y.shape[dim] // 2, device=y.device), 1.0)
    (found,) = backpropagate(y, [edge], sent.unsqueeze(0))
    return torch.zeros(1, 1) if found is None else found[0].movedim(axis, 0).flatten(1)
