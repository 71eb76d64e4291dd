"""Parameters without a gradient, that outputs depend on or not; and what layers wrote that is read at few places."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, product
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from hessdiag.data.batch import Batch, tensors_in
from hessdiag.data.seeds import draws_outside
from hessdiag.diagnosis.checks import LONG, Gradients
from hessdiag.network.torch_state import seeded_rng
from hessdiag.results.signals import Gradient

Parameters = Mapping[str, nn.Parameter]

COMPARED = 16  # examples: in a comparison with a parameter few of them change sides
MOST_TRIED = 32  # parameters that are changed one by one, else a module at a time
DRAWN = 8  # times
LOST = 1e-11  # of the squares of a gradient; 2e-9 of it train


def unreached(model: nn.Module, batch: Batch, gradients: Gradients) -> dict[str, Gradient]:
    """What is known of parameters without a gradient, by name; see `ParameterSignals.gradient`."""
    parameters, found = dict(model.named_parameters()), _detached(model, batch, gradients)
    none = {name: parameters[name] for name, g in gradients.items() if g is None and name not in found}
    found |= _unread(model, batch, none)
    return found | _by_chance(model, batch, {name: p for name, p in none.items() if name not in found})


def _detached(model: nn.Module, batch: Batch, gradients: Gradients) -> dict[str, Gradient]:
    """Those that change the outputs of a few examples: `"cut"`, or `"targets"` where some are a copy of what learns."""
    few = batch.narrow(0, COMPARED)
    without = [name for name, g in gradients.items() if g is None]  # those of a module one after the other

    def outputs_with(changed: Sequence[str]) -> Tensor:
        kept = [(p.data, p.detach().clone()) for name, p in model.named_parameters() if name in changed]
        for w, _ in kept:
            w.mul_(2).add_(torch.linspace(0.1, 0.2, w.numel()).view(w.shape).to(w))  # normalised behind it, perhaps
        try:
            return few.call(model)
        finally:
            for w, before in kept:
                w.copy_(before)

    if not without or torch.equal(y := few.call(model), outputs_with(without)):
        return {}
    each = [[name] for name in without]
    if len(without) > MOST_TRIED:
        each = [[*names] for _, names in groupby(without, key=lambda name: name.rpartition(".")[0])]
    found = [name for names in each if not torch.equal(y, outputs_with(names)) for name in names]
    pairs = product(_matrices(model, found), _matrices(model, {*gradients} - {*without}))
    copied = any(own == known and len(own) > 1 and kind != other for (kind, own), (other, known) in pairs)
    return dict.fromkeys(found, "targets" if copied else "cut")


def _matrices(model: nn.Module, names: Collection[str]) -> list[tuple[str, set[Any]]]:
    """Parts of the model, without numbers, with the names in them, and shapes, of the matrices that each holds."""
    held = defaultdict[str, set[Any]](set)
    for name, p in model.named_parameters():
        if name in names and p.dim() > 1:
            held[part := name.rsplit(".", 2)[0]].add((name.removeprefix(part), p.shape))
    return [(re.sub(r"\d", "", part), matrices) for part, matrices in held.items()]


class _Used(TorchFunctionMode):
    """Notes of which parameters operations make something."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(v.requires_grad for v in tree_leaves(result) if isinstance(v, Tensor)):
            self.ids |= {id(v) for v in tree_leaves((args, kwargs)) if isinstance(v, nn.Parameter)}
        return result


def _unread(model: nn.Module, batch: Batch, parameters: Parameters) -> dict[str, Gradient]:
    """Those that are used, and on which nothing depends that the model returns, beside the outputs as well."""
    with _Used() as used:
        returned = tensors_in(batch.narrow(0, 2).run(model)) if parameters else []
    ends = [y.real.sum() for y in returned if y.requires_grad]
    found = torch.autograd.grad(ends, [*parameters.values()], allow_unused=True) if ends else ()
    pairs = zip(parameters.items(), found, strict=bool(ends))
    return {name: "unread" for (name, p), g in pairs if g is None and id(p) in used.ids}


def _by_chance(model: nn.Module, batch: Batch, parameters: Parameters) -> dict[str, Gradient]:
    """Parameters that outputs depend on at other draws, of a model that draws which of its layers run."""
    found: dict[str, Gradient] = {}
    for number in range(DRAWN if parameters and (batch.noise or draws_outside()) else 0):
        args, kwargs = tree_map_only(Tensor, Tensor.clone, batch.narrow(0, 2).arguments)
        with seeded_rng(number):
            ends = [y.real.sum() for y in tensors_in(model(*args, **kwargs)) if y.requires_grad]
        gradients = torch.autograd.grad(ends, [*parameters.values()], allow_unused=True) if ends else ()
        found |= {name: "later" for name, g in zip(parameters, gradients, strict=bool(ends)) if g is not None}
    return found


def where_read(module: nn.Module, x: Tensor | None, gradient: Tensor, inputs: Sequence[Tensor]) -> tuple[str, ...]:
    """Labels of a layer whose output, by the gradient there, is read for padding alone, or at one end."""
    return ("padded",) * _read_in_padding(x, gradient, inputs) + ("one end",) * _read_at_one_end(module, gradient)


def _read_at_one_end(module: nn.Module, gradient: Tensor) -> bool:
    """Whether a recurrent layer in both directions is read where one of these has seen a single step."""
    if not (isinstance(module, nn.RNNBase) and module.bidirectional and gradient.dim() == 3):
        return False
    steps = gradient.transpose(0, 1) if module.batch_first else gradient
    felt = steps.flatten(1).any(1).nonzero().flatten().tolist()
    return len(steps) >= LONG and felt in ([0], [len(steps) - 1])


def _read_in_padding(tokens: Tensor | None, gradient: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Whether most examples (B, T) have a gradient (B, T, N) where the last token of most is repeated, alone."""
    if tokens is None or tokens.dim() != 2 or tokens.shape != gradient.shape[:-1]:
        return False
    if any(torch.equal(tokens.T, v) for v in inputs):  # steps first
        tokens, gradient = tokens.T, gradient.transpose(0, 1)
    if not any(torch.equal(tokens, v) for v in inputs):
        return False
    padding = (tokens == tokens[:, -1].mode().values).flip(1).cumprod(1).flip(1).bool()
    felt = gradient.square().flatten(2).sum(2)
    there = ((felt * ~padding).sum(1) < LOST * felt.sum(1)) & (padding.sum(1) > 1)
    return bool(there.double().mean() > 0.5)
