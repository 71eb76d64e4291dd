"""Which examples are kept apart: those of the model must be, and the rows of a layer may be.

Random cotangents of some examples' outputs are sent back alone. Where they reach another example's inputs, or where
the same examples have other outputs without the rest of the batch, the model mixes examples, and no matrix of one
example's loss exists. Where they reach another example's rows of a layer, only that layer's rows are no examples: it
runs over time, windows or a table, and is measured without a rule. What is kept apart gets exactly zero, so that no
tolerance hides a weak mixing. Random halves of every chunk of examples separate any two of them with probability 1/2,
hence layouts, which concern them all, as good as surely; the first few examples are taken one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.execution.memory import is_out_of_memory
from hessdiag.execution.seeds import stream
from hessdiag.network.trace import LayerCall, Trace, backpropagate, trace
from hessdiag.user_code.named_function import one_line
from hessdiag.user_code.trial import REFUSALS

PAIRWISE = 4  # examples of which all pairs are told apart
SAME = {torch.float32: 3e-4, torch.float64: 1e-10}  # outputs of one example, in different batches
PIECE = 2**18  # numbers that are compared at a time
REPEATED = 1e-4  # outputs of the same examples, in another pass: relative to each of them
SAME_GRADIENT = {torch.float32: 2e-2, torch.float64: 1e-6}  # where rounding may turn a ReLU on or off


def halves_of(part: Batch, seed: int) -> list[Tensor]:
    """A random half of the examples and the other half, as (B,) booleans; of one example itself."""
    if part.size == 1:
        return [torch.ones(1, dtype=torch.bool)]
    order = torch.randperm(part.size, generator=stream(seed, f"halves of examples from {part.offset}"))
    half = order < part.size // 2
    return [half, ~half]


def alone_in(cotangent: Tensor, sides: Sequence[Tensor]) -> Tensor:
    """A cotangent (B, *out) of some examples, zero of the others, for every side: (sides, B, *out)."""
    shape = (-1, *[1] * (cotangent.dim() - 1))
    return torch.stack([cotangent * side.to(cotangent).view(shape) for side in sides])


def reaches_others(gradient: Tensor | None, sides: Sequence[Tensor]) -> bool:
    """Whether what was sent back from the examples of each side, (sides, rows, ...), reached rows of others.

    The rows must run over the examples, equally many of each.
    """
    if gradient is None:
        return False
    for sent, side in zip(gradient, sides, strict=True):
        strays = sent.reshape(len(side), -1)[~side.to(sent.device)]
        if bool(((strays != 0) & ~strays.isnan()).any()):
            return True
    return False


def mixes_rows(call: LayerCall, gradient: Tensor | None, sides: Sequence[Tensor], examples: int) -> bool:
    """Whether the rows of a layer's output are not equally many of one example after the other.

    Args:
        call: a call of the layer.
        gradient: what was sent back from each side to its output.
        sides: (B,) booleans each.
        examples: B.
    """
    shapes = (call.output_shape,) if call.input_edge is None else (call.output_shape, call.x.shape)
    if any(len(shape) < 2 or shape[0] == 0 or shape[0] % examples for shape in shapes):  # (F,) is one row
        return True
    return reaches_others(gradient, sides)


def differentiable(part: Batch) -> tuple[Batch, list[GradientEdge]]:
    """The batch with copies of its floating-point tensors that gradients flow to, and where they arrive."""
    edges: list[GradientEdge] = []

    def watched(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        copied = value.detach().requires_grad_().clone()  # no leaf: the model may write to it
        edges.append(get_gradient_edge(copied))
        return copied

    args = tuple(map(watched, part.args))
    kwargs = {key: watched(value) for key, value in part.kwargs.items()}
    return replace(part, args=args, kwargs=kwargs), edges


@dataclass(frozen=True)
class SentAlone:
    """What a random cotangent of one example of a few became.

    Attributes:
        seen: the watched pass of all of them.
        cotangent: (1, B, *out), zero of the others.
        phis: for each call the (1, *output shape) gradient in its output, or None.
        gradients: in the parameters (1, *shape) that are trained, by identity.
    """

    seen: Trace
    cotangent: Tensor
    phis: Sequence[Tensor | None]
    gradients: Mapping[int, Tensor | None]


def check_repeatable(model: nn.Module, part: Batch, y: Tensor, again: Tensor | None = None) -> None:
    """A second forward pass gives the same.

    Args:
        model: the model.
        part: the examples.
        y: outputs of the first pass.
        again: of another one; where it rounds otherwise, as watched layers may, a second one decides.

    Raises:
        HessdiagError: it does not.
    """
    if again is not None and _repeats(again, y):
        return
    if not _repeats(part.call(model).detach(), y):
        raise HessdiagError(
            "two forward passes of the same batch differ: dropout or another random layer is in training mode,"
            " call model.eval() first"
        )


def _repeats(again: Tensor, y: Tensor) -> bool:
    """Whether two passes gave the same; a piece after the other, as new memory for many logits takes long."""
    pieces = zip(torch.split(again.flatten(), PIECE), torch.split(y.flatten(), PIECE), strict=True)
    return again.shape == y.shape and all(torch.allclose(a, b, rtol=REPEATED, atol=0) for a, b in pieces)


def check_pairs(
    model: nn.Module,
    few: Batch,
    owners: Sequence[str],
    seed: int,
    in_common: Collection[str] = (),
    *,
    before: Tensor | None = None,
) -> tuple[set[str], SentAlone]:
    """Layers whose rows are not those of one example after the other, from all pairs of a few examples.

    Also the gradients of each example's outputs are the same without the others: where outputs are zero, as of a last
    layer that starts there, only those show a mixing.

    Args:
        model, few: the model, and examples.
        owners, in_common: as in `hessdiag.network.trace.trace`.
        seed: of random cotangents.
        before: outputs of an earlier pass, if they are to be the same.

    Returns:
        And what was sent back from the first of them.

    Raises:
        HessdiagError: the model mixes examples, or is random.
    """
    watched, inputs = differentiable(few)
    seen = trace(model, watched, owners, in_common=in_common)
    y = seen.y.detach()
    if before is not None:
        check_repeatable(model, few, before, y)
    sides = list(torch.eye(few.size, dtype=torch.bool))
    z = torch.randn(y.shape, generator=stream(seed, "pairs of examples")).to(y)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    ends = [call.output_edge for call in seen.calls]
    arrived = len(inputs) + len(ends)
    edges = [*inputs, *ends, *map(get_gradient_edge, parameters)]
    rows: list[list[Tensor | None]] = []
    found: list[Tensor | None] = []
    for b in reversed(range(few.size)):  # one at a time: gradients in all parameters may take much memory
        found.clear()
        alone = _sent_alone(model, few, b, y, z[b : b + 1], parameters)
        cotangent = torch.zeros_like(z)  # a new one each time: at the outputs it is the gradient itself
        cotangent[b] = z[b]
        found += backpropagate(seen.y, edges, cotangent.unsqueeze(0))
        rows.insert(0, found[:arrived])
        if not _alike(parameters, alone, found[arrived:]) and not _alike_in_float64(model, few, b, z[b : b + 1]):
            raise _mixing(model)
        alone.clear()
    columns = [None if column[0] is None else torch.cat(column) for column in zip(*rows, strict=True)]
    check_inputs(model, columns[: len(inputs)], sides)
    calls = zip(seen.calls, columns[len(inputs) :], strict=True)
    mixed = {call.owner for call, gradient in calls if mixes_rows(call, gradient, sides, few.size)}
    gradients = {id(parameter): one for parameter, one in zip(parameters, found[arrived:], strict=True)}
    return mixed, SentAlone(seen, cotangent.unsqueeze(0), rows[0][len(inputs) :], gradients)


def _sent_alone(
    model: nn.Module, few: Batch, number: int, y: Tensor, z: Tensor, parameters: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradients (1, *shape) in the parameters, of an example whose outputs alone are what they are among others.

    Of several examples y are all outputs, and z (1, *out) the cotangent of this one's.

    Raises:
        HessdiagError: its outputs are others.
    """
    example = few.narrow(number, number + 1)
    with called_alone(model, example.size):
        own = example.call(model)
    _check_same(model, own.detach(), y[number : number + 1], largest=_largest(y))
    return backpropagate(own, [get_gradient_edge(p) for p in parameters], z.unsqueeze(0))


def _alike(parameters: Sequence[Tensor], alone: Sequence[Tensor | None], together: Sequence[Tensor | None]) -> bool:
    """Whether gradients (1, *shape) in the parameters are the same."""
    dtype = parameters[0].dtype if parameters else torch.float64
    tolerance, eps = SAME_GRADIENT.get(dtype, max(SAME_GRADIENT.values())), torch.finfo(dtype).eps
    pairs = [
        (torch.zeros_like(p) if one is None else one[0], torch.zeros_like(p) if other is None else other[0])
        for p, one, other in zip(parameters, alone, together, strict=True)
        if one is not None or other is not None
    ]
    largest = max((float(other.norm()) for _, other in pairs), default=0.0)
    rounding = 100 * eps * largest  # of a gradient that is zero by symmetry
    return all(float((one - other).norm()) <= tolerance * float(other.norm()) + rounding for one, other in pairs)


def _alike_in_float64(model: nn.Module, few: Batch, number: int, z: Tensor) -> bool:
    """Whether a copy of the model in float64, where rounding turns no ReLU on or off, keeps an example apart.

    Where it cannot be copied or does not run, float32 has the last word.
    """
    if z.dtype != torch.float32:
        return False
    try:
        copied = deepcopy(model).double()
        few = replace(few.to(z.device, torch.float64), targets=None)
        y = few.call(copied)
        one = few.narrow(number, number + 1).call(copied)
    except (RuntimeError, TypeError):
        return False
    parameters = [parameter for parameter in copied.parameters() if parameter.requires_grad]
    edges = [get_gradient_edge(p) for p in parameters]
    sent = torch.zeros_like(y)
    sent[number] = z[0]
    largest = float(y.detach().flatten(1).norm(dim=1).max())
    if not float((one - y[number : number + 1]).detach().norm()) <= SAME[torch.float64] * largest:
        return False
    alone = backpropagate(one, edges, z.to(one).unsqueeze(0))
    return _alike(parameters, alone, backpropagate(y, edges, sent.unsqueeze(0)))


def check_outputs(model: nn.Module, part: Batch, y: Tensor, groups: Sequence[Tensor]) -> None:
    """Examples give the same outputs without the rest of the batch.

    Args:
        model: the model.
        part: B examples.
        y: their outputs (B, *out).
        groups: (B,) booleans each; examples that are called without the others.

    Raises:
        HessdiagError: they do not.
    """
    largest = _largest(y)
    for side in groups:
        chosen = [number for number, inside in enumerate(side.tolist()) if inside]
        with called_alone(model, len(chosen)):
            alone = part.select(chosen).call(model).detach()
        _check_same(model, alone, y[chosen], largest=largest)


def _check_same(model: nn.Module, alone: Tensor, together: Tensor, *, largest: float) -> None:
    """Outputs are the same, but for rounding of the `largest` of any example."""
    if alone.shape != together.shape:
        raise _mixing(model)
    off = float((alone - together).flatten(1).norm(dim=1).max())
    if not off <= SAME[together.dtype] * largest:
        raise _mixing(model)


def _largest(y: Tensor) -> float:
    """Norm of the outputs (B, *out) of one example, at most."""
    return float(y.flatten(1).norm(dim=1).max())


@contextmanager
def called_alone(model: nn.Module, examples: int) -> Iterator[None]:
    """Call the model in this context with some examples, without the rest of the batch.

    Raises:
        HessdiagError: the model, which runs with all of them, does not without.
    """
    try:
        yield
    except HessdiagError:  # a ValueError
        raise
    except REFUSALS as error:
        if is_out_of_memory(error):
            raise
        if _in_training(model):  # batch normalisation refuses a single example
            raise _mixing(model) from None
        which = "an example on its own" if examples == 1 else f"{examples} of the examples on their own"
        raise HessdiagError(
            f"{which} cannot be run: the model needs the rest of the batch ({one_line(error)}); keep examples apart"
        ) from error


def check_inputs(model: nn.Module, gradients: Sequence[Tensor | None], sides: Sequence[Tensor]) -> None:
    """Outputs of examples on one side do not depend on the inputs of others.

    Raises:
        HessdiagError: they do.
    """
    if any(reaches_others(gradient, sides) for gradient in gradients):
        raise _mixing(model)


def _in_training(model: nn.Module) -> list[str]:
    """Paths of the batch normalisation layers that are in training mode."""
    kind = nn.modules.batchnorm._BatchNorm
    return [name for name, module in model.named_modules() if isinstance(module, kind) and module.training]


def _mixing(model: nn.Module) -> HessdiagError:
    """The refusal of a model that mixes examples, with what to do about it."""
    if name := _in_training(model):
        return HessdiagError(
            "the outputs of one example depend on others:"
            f" batch normalisation {name[0]!r} is in training mode, call model.eval() first"
        )
    return HessdiagError(
        "an example on its own gives other outputs than in the batch: the model runs over the first dimension (a layer"
        " without batch_first=True, a sum over it), uses statistics of the batch, branches on its values, or updates"
        " itself; call model.eval() first, or keep examples apart"
    )
